package wal

import (
	"encoding/binary"
	"hash/crc32"
)

// Format is the layout of a file of frames. A file is a header, then frames,
// then zeros up to the room that was allocated in advance. All numbers are
// little-endian, and everything begins at a multiple of eight.
//
//	file header   magic 8, number 8, zero 4, crc32c of these 4
//	frame         magic 4, the length of each part 4, number 8 if Numbered,
//	              batch 8, crc32c of the body 4, crc32c of the salt, if there
//	              is one, and these 4, body: the parts, zeros up to eight
//
// The batch is the ID of the first frame that was written together with this
// one. It matters when a frame is not valid: see Scanner.Acknowledged.
//
// The number in the header of a file is the caller's, or a salt. A salt is
// random and never leaves the file. It is for records that hold what strangers
// send: without it one of them could send something that looks like the header
// of a later batch, and make a torn end pass for damage.
type Format struct {
	Magic      string // eight bytes; the last is the version of the format
	FrameMagic uint32 // with bytes that no UTF-8 text has
	Parts      int    // how many parts a record has, at most three
	Numbered   bool   // each frame has a number, which is its ID; otherwise that is its offset
	Salted     bool   // the number in the header of the file is a salt
	PaddedSum  bool   // the checksum of a body includes the zeros behind it
	MaxRecord  int    // bytes of a record; a header that says more is not one
	FirstRoom  int64  // bytes that are allocated in advance at first
}

// logFormat is the format of a Log.
var logFormat = &Format{Magic: "MNLOGB\xf5\x01", FrameMagic: 0xf84c4dff, Parts: 1, Salted: true, MaxRecord: recordSizeLimit, FirstRoom: 64 << 10}

// FileHeaderSize is how many bytes the header of a file has.
const FileHeaderSize = 24

const (
	alignment = 8
	maxParts  = 3
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Checksum is the CRC-32C of bytes that lie one behind the other.
func Checksum(parts ...[]byte) (sum uint32) {
	for _, p := range parts {
		sum = crc32.Update(sum, castagnoli, p)
	}
	return sum
}

// Align rounds up to a multiple of eight.
func Align(n int) int { return (n + alignment - 1) &^ (alignment - 1) }

// appendFileHeader appends the header of a file.
func (f *Format) appendFileHeader(to []byte, number uint64) []byte {
	at := len(to)
	to = append(to, f.Magic...)
	to = binary.LittleEndian.AppendUint64(to, number)
	to = binary.LittleEndian.AppendUint32(to, 0)
	return binary.LittleEndian.AppendUint32(to, Checksum(to[at:]))
}

// headerSize is how many bytes the header of a frame has.
func (f *Format) headerSize() int {
	size := 4 + 4*f.Parts + 8 + 4 + 4
	if f.Numbered {
		size += 8
	}
	return size
}

// FrameSize is how many bytes the frame of a record has.
func (f *Format) FrameSize(record int) int { return f.headerSize() + Align(record) }

// Frame is the header of a frame, and where it is.
type Frame struct {
	ID      uint64 // its number, or its offset if it has none
	Batch   uint64 // the ID of the first frame that was written together with it
	Offset  int64
	Lengths [maxParts]uint32

	headerSize int
	bodySum    uint32
	paddedSum  bool
}

// Len is how many bytes its record has.
func (f Frame) Len() int { return int(f.Lengths[0]) + int(f.Lengths[1]) + int(f.Lengths[2]) }

// Size is how many bytes the whole frame has.
func (f Frame) Size() int { return f.headerSize + Align(f.Len()) }

// summed is how many bytes of the body the checksum covers.
func (f Frame) summed() int {
	if f.paddedSum {
		return Align(f.Len())
	}
	return f.Len()
}

// isBody reports whether b begins with the body of the frame.
func (f Frame) isBody(b []byte) bool {
	return len(b) >= f.summed() && Checksum(b[:f.summed()]) == f.bodySum
}

// encoding is the format of one file, with its salt.
type encoding struct {
	*Format
	seed uint32 // with which the checksums of headers begin
}

func (f *Format) encoding(number uint64) encoding {
	if !f.Salted {
		return encoding{Format: f}
	}
	return encoding{Format: f, seed: Checksum(binary.LittleEndian.AppendUint64(nil, number))}
}

// AppendFrame appends the frame of a record to a buffer, for WriteBatch. The
// number is written if the format has numbers.
func (f *File) AppendFrame(to []byte, number, batch uint64, parts ...[]byte) []byte {
	e, at, le, length := f.encoding, len(to), binary.LittleEndian, 0
	to = le.AppendUint32(to, e.FrameMagic)
	for _, p := range parts {
		to, length = le.AppendUint32(to, uint32(len(p))), length+len(p)
	}
	if e.Numbered {
		to = le.AppendUint64(to, number)
	}
	to = le.AppendUint64(to, batch)
	sums := len(to)
	to = le.AppendUint64(to, 0) // the two checksums
	body := len(to)
	for _, p := range parts {
		to = append(to, p...)
	}
	var padding [alignment]byte
	to = append(to, padding[:Align(length)-length]...)
	summed := body + length
	if e.PaddedSum {
		summed = len(to)
	}
	le.PutUint32(to[sums:], Checksum(to[body:summed]))
	le.PutUint32(to[sums+4:], crc32.Update(e.seed, castagnoli, to[at:sums+4]))
	return to
}

// parseFrame reads the header of a frame at the start of b, if there is one.
func (e encoding) parseFrame(b []byte, offset int64) (Frame, bool) {
	le, size := binary.LittleEndian, e.headerSize()
	if len(b) < size || le.Uint32(b) != e.FrameMagic || le.Uint32(b[size-4:]) != crc32.Update(e.seed, castagnoli, b[:size-4]) {
		return Frame{}, false
	}
	f := Frame{ID: uint64(offset), Batch: le.Uint64(b[size-16:]), Offset: offset, headerSize: size, bodySum: le.Uint32(b[size-8:]), paddedSum: e.PaddedSum}
	length := uint64(0)
	for i := range e.Parts {
		f.Lengths[i] = le.Uint32(b[4+4*i:])
		length += uint64(f.Lengths[i])
	}
	if e.Numbered {
		f.ID = le.Uint64(b[size-24:])
	}
	return f, length <= uint64(e.MaxRecord)
}

// parseFileHeader reads the header of a file.
func (f *Format) parseFileHeader(b []byte) (number uint64, version byte, valid bool) {
	name := len(f.Magic) - 1
	if string(b[:name]) == f.Magic[:name] {
		version = b[name]
	}
	number = binary.LittleEndian.Uint64(b[len(f.Magic):])
	return number, version, string(b) == string(f.appendFileHeader(nil, number))
}
