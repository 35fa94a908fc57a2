package journal

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"

	"micronode/internal/registry/ledger"
)

// A segment is a header, then frames, then zeros up to the room that was made
// in advance; or, once it is sealed, the index (see index.go). All numbers are
// little-endian, and everything begins at a multiple of eight.
//
//	segment header   magic 8, first version 8, zero 4, crc32c of these 4
//	frame            magic 4, three lengths 4 each, version 8, batch 8,
//	                 crc32c of the body 4, crc32c of these 4,
//	                 body: header, payload, preconditions, zeros up to eight
//
// The batch is the version of the first record that was written together with
// this one. It is there for the day on which a frame is not right: if a header
// of a later batch is behind it, then it had been synced, and this is damage;
// if not, it is the torn end of a batch that was never acknowledged.
const (
	segmentMagic  = "MNJRNL\xf5\x01"
	segmentHeader = 24
	frameMagic    = 0xf8524dff // bytes that no UTF-8 text has
	frameHeader   = 40
	alignment     = 8
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

func align(n int) int { return (n + alignment - 1) &^ (alignment - 1) }

// appendSegmentHeader appends the header of a segment.
func appendSegmentHeader(to []byte, first uint64) []byte {
	at := len(to)
	to = append(to, segmentMagic...)
	to = binary.LittleEndian.AppendUint64(to, first)
	to = binary.LittleEndian.AppendUint32(to, 0)
	return binary.LittleEndian.AppendUint32(to, checksum(to[at:]))
}

// isSegment reports whether bytes begin with the header of a segment.
func isSegment(b []byte, first uint64) bool {
	return len(b) >= segmentHeader && string(b[:segmentHeader]) == string(appendSegmentHeader(nil, first))
}

// frameSize is how many bytes the frame of a record has.
func frameSize(r ledger.Record) int { return frameHeader + align(sizeOf(r)) }

// appendFrame appends the frame of a record.
func appendFrame(to []byte, r ledger.Record, batch uint64) []byte {
	at, le := len(to), binary.LittleEndian
	to = append(to, make([]byte, frameHeader)...)
	to = append(append(append(to, r.Header...), r.Payload...), r.Preconditions...)
	to = append(to, make([]byte, align(sizeOf(r))-sizeOf(r))...)
	h := to[at : at+frameHeader]
	le.PutUint32(h, frameMagic)
	le.PutUint32(h[4:], uint32(len(r.Header)))
	le.PutUint32(h[8:], uint32(len(r.Payload)))
	le.PutUint32(h[12:], uint32(len(r.Preconditions)))
	le.PutUint64(h[16:], r.Version)
	le.PutUint64(h[24:], batch)
	le.PutUint32(h[32:], checksum(to[at+frameHeader:]))
	le.PutUint32(h[36:], checksum(h[:36]))
	return to
}

// frame is the header of a frame.
type frame struct {
	header, payload, preconditions int
	version, batch                 uint64
	body                           uint32 // checksum
}

// size is how many bytes the frame has.
func (f frame) size() int { return frameHeader + align(f.header+f.payload+f.preconditions) }

// frameAt reads the header of a frame at the start of b, if there is one.
func frameAt(b []byte) (frame, bool) {
	le := binary.LittleEndian
	if len(b) < frameHeader || le.Uint32(b) != frameMagic || le.Uint32(b[36:]) != checksum(b[:36]) {
		return frame{}, false
	}
	lengths := [3]uint32{le.Uint32(b[4:]), le.Uint32(b[8:]), le.Uint32(b[12:])}
	if uint64(lengths[0])+uint64(lengths[1])+uint64(lengths[2]) > MaxRecord {
		return frame{}, false
	}
	return frame{header: int(lengths[0]), payload: int(lengths[1]), preconditions: int(lengths[2]),
		version: le.Uint64(b[16:]), batch: le.Uint64(b[24:]), body: le.Uint32(b[32:])}, true
}

// whole reports whether b holds all of the frame, and it is right.
func (f frame) whole(b []byte) bool {
	return len(b) >= f.size() && checksum(b[frameHeader:f.size()]) == f.body
}

// record cuts the record out of b, which holds the whole frame.
func (f frame) record(b []byte) ledger.Record {
	body := b[frameHeader:]
	payload, preconditions := f.header, f.header+f.payload
	end := preconditions + f.preconditions
	return ledger.Record{Version: f.version, Header: body[:payload:payload],
		Payload: body[payload:preconditions:preconditions], Preconditions: body[preconditions:end:end]}
}

// survey is what is found in a segment by reading all of it.
type survey struct {
	offsets []uint32 // where each version is, from the first on; zero where it is damaged
	end     int      // behind the last frame that is right
	torn    int      // bytes behind the end that are not zero, up to the last of them
	damaged []hole
}

// hole is where a record should be.
type hole struct {
	offset  int
	version uint64
}

// lookThrough reads the segment that begins with version first. The caller
// knows from elsewhere that the versions below known were acknowledged. It
// allocates in proportion to the frames that are there, never to what a length
// field says.
func lookThrough(b []byte, first, known uint64) survey {
	s := survey{end: min(segmentHeader, len(b))}
	var later []sighting
	looked := false
	for at, next := s.end, first; ; {
		if f, ok := frameAt(b[at:]); ok && f.version == next && f.whole(b[at:]) {
			s.offsets = append(s.offsets, uint32(at))
			at, next = at+f.size(), next+1
			s.end = at
			continue
		}
		if !looked {
			later, looked = sightings(b, at), true
		}
		if next >= known && !synced(later, at, next) {
			break // nothing behind it was ever acknowledged
		}
		found := nextWhole(b, later, at, next)
		if found == nil || found.version-next > uint64(len(b)/frameHeader) { // no segment has so many
			s.damaged = append(s.damaged, hole{at, next})
			break
		}
		for ; next < found.version; next++ {
			s.damaged, s.offsets = append(s.damaged, hole{at, next}), append(s.offsets, 0)
		}
		at = found.at
	}
	s.torn = lastByte(b) - s.end
	return s
}

// sighting is a place that looks like the header of a frame.
type sighting struct {
	at int
	frame
}

// sightings finds every header of a frame from a place on, whatever may be
// between them.
func sightings(b []byte, from int) (all []sighting) {
	magic := binary.LittleEndian.AppendUint32(nil, frameMagic)
	for at := from; ; at++ {
		next := bytes.Index(b[at:], magic)
		if next < 0 {
			return all
		}
		at += next
		if f, ok := frameAt(b[at:]); ok && at%alignment == 0 {
			all = append(all, sighting{at, f})
		}
	}
}

// synced reports whether a batch was begun, behind a place, that is later than
// the one that a version was in. It was begun only after that one was synced.
func synced(later []sighting, at int, version uint64) bool {
	for _, s := range later {
		if s.at >= at && s.batch > version && s.version >= s.batch {
			return true
		}
	}
	return false
}

// nextWhole finds the next frame of a higher version that is right.
func nextWhole(b []byte, later []sighting, at int, version uint64) *sighting {
	for _, s := range later {
		if s.at >= at && s.version > version && s.whole(b[s.at:]) {
			return &s
		}
	}
	return nil
}

// lastByte is the length of b without the zeros at its end.
func lastByte(b []byte) int { return len(bytes.TrimRight(b, "\x00")) }
