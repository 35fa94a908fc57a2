package thumb

import "encoding/binary"

// The markers of JPEG that matter here.
const (
	markSOF0 = 0xc0
	markSOF2 = 0xc2 // progressive
	markSOS  = 0xda
	markRST0 = 0xd0
	markRST7 = 0xd7
	markEOI  = 0xd9
	markAPP1 = 0xe1
)

// readJPEG goes from marker to marker up to the frame, the way the decoder
// does: both must see the same frame.
func readJPEG(r *headerReader) Header {
	p := Header{Format: JPEG, Orientation: 1}
	for at := int64(2); r.err == nil; {
		var marker int
		if marker, at = nextMarker(r, at); marker >= markRST0 && marker <= markRST7 {
			continue
		}
		if marker == markEOI || marker == markSOS {
			r.fail(errHeader) // there is no frame
			break
		}
		length := int64(r.big16(at))
		if length < 2 {
			r.fail(errHeader)
		}
		switch marker {
		case markSOF0, markSOF0 + 1, markSOF2:
			readFrameHeader(r, at+2, length-2, marker == markSOF2, &p)
			return p
		case markAPP1:
			if o := exifOrientation(r, at+2, length-2); o != 0 {
				p.Orientation = o
			}
		}
		at += length
	}
	return p
}

// nextMarker finds the next marker and the offset behind it. Bytes before it
// are skipped, as every decoder does.
func nextMarker(r *headerReader, at int64) (marker int, after int64) {
	for r.err == nil {
		first, second := r.byte(at), r.byte(at+1)
		at += 2
		for first != 0xff && r.err == nil {
			first, second = second, r.byte(at)
			at++
		}
		for second == 0xff && r.err == nil {
			second = r.byte(at)
			at++
		}
		if second != 0 {
			return second, at
		}
	}
	return 0, at
}

// readFrameHeader reads the size of a picture and works out what its decoder
// takes: for each colour component as many bytes as it has samples, in whole
// blocks; four times that for the coefficients of a progressive one; and four
// bytes for each pixel if the colours must be converted at the end, which may
// be found out late.
func readFrameHeader(r *headerReader, at, length int64, progressive bool, p *Header) {
	p.Height, p.Width = r.big16(at+1), r.big16(at+3)
	components := r.byte(at + 5)
	if components != 1 && components != 3 && components != 4 || length != int64(6+3*components) {
		r.fail(errHeader)
		return
	}
	var sampling [4][2]int64
	most := [2]int64{1, 1}
	for i := range components {
		packed := r.byte(at + 7 + 3*int64(i))
		sampling[i] = [2]int64{int64(packed >> 4), int64(packed & 15)}
		for k := range sampling[i] {
			if sampling[i][k] < 1 || sampling[i][k] > 4 {
				r.fail(errHeader)
				return
			}
			most[k] = max(most[k], sampling[i][k])
		}
	}
	across := (int64(p.Width) + 8*most[0] - 1) / (8 * most[0])
	down := (int64(p.Height) + 8*most[1] - 1) / (8 * most[1])
	for _, one := range sampling[:components] {
		p.Cost += across * down * 64 * one[0] * one[1]
	}
	if progressive {
		p.Cost *= 5
	}
	if components > 1 {
		p.Cost += 4 * int64(p.Width) * int64(p.Height)
	}
}

// maxExifTags is how many EXIF tags are searched.
const maxExifTags = 256

// exifOrientation reads the orientation from the EXIF data; zero if there is
// none. Invalid EXIF data is no reason to refuse the picture.
func exifOrientation(r *headerReader, at, length int64) int {
	if length < 14 || string(r.readAt(at, 6)) != "Exif\x00\x00" {
		return 0
	}
	at, length = at+6, length-6
	var order binary.ByteOrder
	switch string(r.readAt(at, 4)) {
	case "II*\x00":
		order = binary.LittleEndian
	case "MM\x00*":
		order = binary.BigEndian
	default:
		return 0
	}
	tags := int64(order.Uint32(r.readAt(at+4, 4)))
	if tags < 8 || tags > length-2 {
		return 0
	}
	count := int(order.Uint16(r.readAt(at+tags, 2)))
	for i := range int64(min(count, maxExifTags)) {
		tag := tags + 2 + 12*i
		if tag+12 > length {
			return 0
		}
		entry := r.readAt(at+tag, 12)
		if order.Uint16(entry) == 0x0112 && order.Uint16(entry[2:]) == 3 {
			if value := order.Uint16(entry[8:]); value >= 1 && value <= 8 {
				return int(value)
			}
			return 0
		}
	}
	return 0
}
