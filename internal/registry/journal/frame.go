package journal

import (
	"micronode/internal/registry/ledger"
	"micronode/internal/wal"
)

// segmentFormat is the format of a segment: a frame has the three parts of a
// record, and its version as number; the number in the header of the file is
// the first version. Once it is sealed, the index follows the frames (see
// index.go).
//
// It has no salt, so a record could hold what looks like the header of a later
// batch. It could make a torn end pass for damage, until an operator has looked;
// it could not make anything be lost.
var segmentFormat = &wal.Format{Magic: "MNJRNL\xf5\x01", FrameMagic: 0xf8524dff, Parts: 3, Numbered: true, PaddedSum: true, MaxRecord: MaxRecord, FirstRoom: 256 << 10}

// frameSize is how many bytes the frame of a record has.
func frameSize(r ledger.Record) int { return segmentFormat.FrameSize(recordSize(r)) }

// toRecord cuts the parts of a record out of the body of its frame.
func toRecord(f wal.Frame, body []byte) ledger.Record {
	payload, preconditions := f.Lengths[0], f.Lengths[0]+f.Lengths[1]
	return ledger.Record{Version: f.ID, Header: body[:payload:payload],
		Payload: body[payload:preconditions:preconditions], Preconditions: body[preconditions:]}
}

// hole is a missing record.
type hole struct {
	offset  int64
	version uint64
}

// scanFrames finds the records by reading the whole segment, and returns which
// are damaged. The caller knows from elsewhere that the versions below known
// were acknowledged. A journal with holes is readable, because each frame has
// its version: so this continues after them.
func (s *segment) scanFrames(known uint64) (damaged []hole, err error) {
	size := s.file.Allocated()
	scan := s.file.Scan(min(wal.FileHeaderSize, size), size)
	for next := s.first; ; {
		f, _, valid, err := scan.Next(func(f wal.Frame) bool { return f.ID == next })
		if err != nil {
			return nil, err
		}
		if valid {
			s.offsets, s.lastBatch = append(s.offsets, uint32(f.Offset)), f.Batch
			next++
			continue
		}
		acknowledged := next < known
		if !acknowledged {
			if acknowledged, err = scan.Acknowledged(next); err != nil {
				return nil, err
			}
		}
		if !acknowledged {
			break // neither was anything after it
		}
		found, any, err := scan.FindAfter(next)
		if err != nil {
			return nil, err
		}
		if !any || found.ID-next > uint64(size)/uint64(frameSize(ledger.Record{})) { // no segment has that many
			damaged = append(damaged, hole{scan.End(), next})
			break
		}
		for ; next < found.ID; next++ {
			damaged, s.offsets = append(damaged, hole{scan.End(), next}), append(s.offsets, 0)
		}
		scan.Resume(found)
	}
	s.end = scan.End()
	return damaged, nil
}
