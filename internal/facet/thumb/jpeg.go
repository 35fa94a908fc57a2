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
func readJPEG(r *reader) Picture {
	p := Picture{Format: JPEG, Orientation: 1}
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
			readFrame(r, at+2, length-2, marker == markSOF2, &p)
			return p
		case markAPP1:
			if o := orientation(r, at+2, length-2); o != 0 {
				p.Orientation = o
			}
		}
		at += length
	}
	return p
}

// nextMarker finds the next marker and what follows it. Bytes before it are
// passed over, as every decoder does.
func nextMarker(r *reader, at int64) (marker int, after int64) {
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

// readFrame reads the size of a picture and works out what its decoder takes:
// for each part of the colour as many bytes as it has samples, in whole blocks;
// four times that for the coefficients of a progressive one; and four bytes for
// each pixel if the colours must be changed at the end, which may be found out
// late.
func readFrame(r *reader, at, length int64, progressive bool, p *Picture) {
	p.Height, p.Width = r.big16(at+1), r.big16(at+3)
	parts := r.byte(at + 5)
	if parts != 1 && parts != 3 && parts != 4 || length != int64(6+3*parts) {
		r.fail(errHeader)
		return
	}
	var each [4][2]int64
	most := [2]int64{1, 1}
	for i := range parts {
		sampling := r.byte(at + 7 + 3*int64(i))
		each[i] = [2]int64{int64(sampling >> 4), int64(sampling & 15)}
		for k := range each[i] {
			if each[i][k] < 1 || each[i][k] > 4 {
				r.fail(errHeader)
				return
			}
			most[k] = max(most[k], each[i][k])
		}
	}
	across := (int64(p.Width) + 8*most[0] - 1) / (8 * most[0])
	down := (int64(p.Height) + 8*most[1] - 1) / (8 * most[1])
	for _, one := range each[:parts] {
		p.Cost += across * down * 64 * one[0] * one[1]
	}
	if progressive {
		p.Cost *= 5
	}
	if parts > 1 {
		p.Cost += 4 * int64(p.Width) * int64(p.Height)
	}
}

// mostTags is how many tags of a camera are looked through.
const mostTags = 256

// orientation reads how a camera was held from its notes; zero if it does not
// say. Whatever is wrong with them is no reason to refuse the picture.
func orientation(r *reader, at, length int64) int {
	if length < 14 || string(r.at(at, 6)) != "Exif\x00\x00" {
		return 0
	}
	at, length = at+6, length-6
	var order binary.ByteOrder
	switch string(r.at(at, 4)) {
	case "II*\x00":
		order = binary.LittleEndian
	case "MM\x00*":
		order = binary.BigEndian
	default:
		return 0
	}
	tags := int64(order.Uint32(r.at(at+4, 4)))
	if tags < 8 || tags > length-2 {
		return 0
	}
	count := int(order.Uint16(r.at(at+tags, 2)))
	for i := range int64(min(count, mostTags)) {
		tag := tags + 2 + 12*i
		if tag+12 > length {
			return 0
		}
		entry := r.at(at+tag, 12)
		if order.Uint16(entry) == 0x0112 && order.Uint16(entry[2:]) == 3 {
			if value := order.Uint16(entry[8:]); value >= 1 && value <= 8 {
				return int(value)
			}
			return 0
		}
	}
	return 0
}
