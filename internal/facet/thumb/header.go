package thumb

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"

	"micronode/fault"
)

// Limits is what a picture may cost.
type Limits struct {
	Pixels int64 // of the picture
	Bytes  int64 // of memory, while it is decoded
	Input  int64 // bytes of the file
}

// Format is the file format of a picture.
type Format string

// The supported formats.
const (
	JPEG Format = "jpeg"
	PNG  Format = "png"
	GIF  Format = "gif"
	WebP Format = "webp"
)

// Header is what is known of a picture before it is decoded.
type Header struct {
	Format        Format
	Width, Height int
	Cost          int64 // bytes of memory that its decoder takes, at most
	Orientation   int   // from 1 to 8 as EXIF counts; 1 is upright
}

// Check reads the header of a picture and refuses what costs too much. A file
// that is no picture is fault.Malformed, and so is a header that contradicts
// itself; too long a file is fault.BodyTooLarge, and one that would become too
// large fault.RatioCap.
func Check(ctx context.Context, file io.ReaderAt, size int64, limits Limits) (Header, error) {
	const op = "thumb.check"
	if size > limits.Input {
		return Header{}, fault.New(op, fault.BodyTooLarge, "a picture of %d bytes; the cap is %d", size, limits.Input).
			Advise(nextWithoutThumb)
	}
	p, err := readHeader(&headerReader{ctx: ctx, file: file, size: size})
	if err != nil {
		return Header{}, typedError(op, err)
	}
	p.Cost += scaleCost(p.Width, p.Height)
	if pixels := int64(p.Width) * int64(p.Height); max(p.Width, p.Height) > longestSide || pixels > limits.Pixels || p.Cost > limits.Bytes {
		return Header{}, fault.New(op, fault.RatioCap, "a picture of %d by %d would take %d bytes of memory; the caps are %d a side, %d pixels and %d bytes", p.Width, p.Height, p.Cost, longestSide, limits.Pixels, limits.Bytes).
			Advise(nextWithoutThumb)
	}
	return p, nil
}

// longestSide is how long a side of a picture may be. Of all formats, only PNG
// allows more.
const longestSide = 1<<16 - 1

const nextWithoutThumb = "Request it without ?thumb=, or put a smaller one."

// Why a header is refused.
var (
	errNoPicture = errors.New("it is not a JPEG, PNG, GIF or WebP")
	errShort     = errors.New("it ends too soon")
	errHeader    = errors.New("its header is not valid")
)

// typedError gives an error its kind. Those of the store and of the context
// have their own.
func typedError(op string, err error) error {
	if fault.KindOf(err) != fault.Internal {
		return fault.Wrap(op, err)
	}
	return &fault.Error{Op: op, Kind: fault.Malformed, Detail: "no thumbnail can be made of this object: " + err.Error(),
		Next: "Request it without ?thumb=."}
}

// readHeader detects the format by the first bytes, and reads its header.
func readHeader(r *headerReader) (Header, error) {
	head := r.readUpTo(0, 12)
	var p Header
	switch {
	case bytes.HasPrefix(head, []byte("\xff\xd8")):
		p = readJPEG(r)
	case bytes.HasPrefix(head, []byte("\x89PNG\r\n\x1a\n")):
		p = readPNG(r)
	case bytes.HasPrefix(head, []byte("GIF87a")) || bytes.HasPrefix(head, []byte("GIF89a")):
		p = readGIF(r)
	case len(head) == 12 && string(head[:4]) == "RIFF" && string(head[8:]) == "WEBP":
		p = readWebP(r)
	default:
		r.fail(errNoPicture)
	}
	if r.err == nil && (p.Width < 1 || p.Height < 1) {
		r.fail(errHeader)
	}
	return p, r.err
}

// headerReader reads a header at any offset. After the first error it returns
// zeros.
type headerReader struct {
	// set at construction
	ctx  context.Context
	file io.ReaderAt
	size int64

	err     error
	scratch [32]byte

	// a part of the file that was read at once
	buffer       [4096]byte
	bufferOffset int64
	bufferLen    int
}

func (r *headerReader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

// readUpTo returns up to n bytes at an offset, 32 at most; fewer at the end of
// the file.
func (r *headerReader) readUpTo(at int64, n int) []byte {
	got := r.scratch[:0]
	for len(got) < n && r.err == nil && at+int64(len(got)) < r.size {
		here := at + int64(len(got))
		if here < r.bufferOffset || here >= r.bufferOffset+int64(r.bufferLen) {
			r.fillBuffer(here)
			continue
		}
		rest := r.buffer[here-r.bufferOffset : r.bufferLen]
		got = append(got, rest[:min(len(rest), n-len(got))]...)
	}
	return got
}

// fillBuffer reads the part of the file at an offset.
func (r *headerReader) fillBuffer(at int64) {
	if err := r.ctx.Err(); err != nil {
		r.fail(context.Cause(r.ctx))
		return
	}
	n, err := r.file.ReadAt(r.buffer[:min(int64(len(r.buffer)), r.size-at)], at)
	if r.bufferOffset, r.bufferLen = at, n; n == 0 {
		r.fail(errors.Join(err, errShort))
	}
}

// readAt returns exactly n bytes; zeros if there are fewer.
func (r *headerReader) readAt(at int64, n int) []byte {
	got := r.readUpTo(at, n)
	if len(got) < n {
		r.fail(errShort)
		clear(r.scratch[:n])
	}
	return r.scratch[:n]
}

func (r *headerReader) byte(at int64) int    { return int(r.readAt(at, 1)[0]) }
func (r *headerReader) big16(at int64) int   { return int(binary.BigEndian.Uint16(r.readAt(at, 2))) }
func (r *headerReader) big32(at int64) int64 { return int64(binary.BigEndian.Uint32(r.readAt(at, 4))) }
func (r *headerReader) little16(at int64) int {
	return int(binary.LittleEndian.Uint16(r.readAt(at, 2)))
}
func (r *headerReader) little32(at int64) int64 {
	return int64(binary.LittleEndian.Uint32(r.readAt(at, 4)))
}

// readGIF reads the size of the screen. No picture is larger: the decoder
// checks that. It takes one byte for a pixel, and as many again to put rows in
// order.
func readGIF(r *headerReader) Header {
	p := Header{Format: GIF, Width: r.little16(6), Height: r.little16(8), Orientation: 1}
	p.Cost = 2 * int64(p.Width) * int64(p.Height)
	return p
}

// deflateRatio is the most bytes that one byte of deflate can become.
const deflateRatio = 1032

// readPNG reads the first chunk, which has all that is needed. The decoder
// takes four or eight bytes for a pixel; if the rows are interlaced, it holds
// both the passes and the picture. A file too short for its rows has a false
// header, which would be found only after the memory was allocated.
func readPNG(r *headerReader) Header {
	if string(r.readAt(12, 4)) != "IHDR" {
		r.fail(errHeader)
	}
	width, height := r.big32(16), r.big32(20)
	depth, color, interlaced := r.byte(24), r.byte(25), r.byte(28)
	channels := map[int]int64{0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[color]
	if channels == 0 || depth < 1 || depth > 16 || width > 1<<31-1 || height > 1<<31-1 || width > 0 && height > (1<<40)/width {
		r.fail(errHeader)
		return Header{}
	}
	row := 1 + (width*channels*int64(depth)+7)/8
	if interlaced == 0 && row*height/deflateRatio > r.size {
		r.fail(errShort)
	}
	p := Header{Format: PNG, Width: int(width), Height: int(height), Orientation: 1}
	each := int64(4)
	if depth == 16 {
		each = 8
	}
	if interlaced != 0 {
		each *= 2
	}
	p.Cost = each*width*height + 2*row
	return p
}

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
