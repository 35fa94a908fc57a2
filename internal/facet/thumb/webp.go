package thumb

// readWebP goes through the chunks of a file up to the picture. A file with an
// extended header states its size twice, and the decoder trusts each for
// another buffer, so both must be the same.
func readWebP(r *headerReader) Header {
	p := Header{Format: WebP, Orientation: 1}
	end := min(r.size, 8+r.little32(4))
	for at := int64(12); r.err == nil; {
		if at+8 > end {
			r.fail(errShort)
			break
		}
		kind := string(r.readAt(at, 4)) // copied before the next read overwrites it
		length := r.little32(at + 4)
		switch body := at + 8; kind {
		case "VP8X":
			p.Width, p.Height = 1+little24(r, body+4), 1+little24(r, body+7)
		case "VP8 ":
			const between = 1 // a picture that depends on another one
			if r.byte(body)&between != 0 || r.byte(body+3) != 0x9d || r.byte(body+4) != 0x01 || r.byte(body+5) != 0x2a {
				r.fail(errHeader)
			}
			p.setSize(r, r.little16(body+6)&0x3fff, r.little16(body+8)&0x3fff)
			return p
		case "VP8L":
			bits := r.little32(body + 1)
			if r.byte(body) != 0x2f {
				r.fail(errHeader)
			}
			p.setSize(r, 1+int(bits&0x3fff), 1+int(bits>>14&0x3fff))
			return p
		}
		at += 8 + length + length&1
	}
	return p
}

func little24(r *headerReader, at int64) int {
	b := r.readAt(at, 3)
	return int(b[0]) | int(b[1])<<8 | int(b[2])<<16
}

// setSize sets the size of the picture itself, which must be what the file said
// before, if it did. The decoder takes up to eight bytes for a pixel, and more
// for the edges of blocks.
func (h *Header) setSize(r *headerReader, width, height int) {
	if h.Width != 0 && (h.Width != width || h.Height != height) {
		r.fail(errHeader)
	}
	h.Width, h.Height = width, height
	h.Cost = 8 * int64(width+16) * int64(height+16)
}
