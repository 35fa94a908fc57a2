package journal

import (
	"encoding/binary"

	"micronode/internal/wal"
)

// When a segment is sealed, the offsets of its frames are written after them,
// so that finding one does not need reading all of it:
//
//	index   an offset 4 for each version, zeros up to eight,
//	        magic 8, first version 8, how many 4, where the index begins 4,
//	        crc32c of all of this 4, zero 4
//
// Its end is the end of the file.
const (
	indexMagic   = "MNINDX\xf5\x01"
	indexTrailer = 32
)

// appendIndex appends the index of a segment whose frames end at end.
func appendIndex(to []byte, first uint64, offsets []uint32, end int64) []byte {
	at, le := len(to), binary.LittleEndian
	for _, offset := range offsets {
		to = le.AppendUint32(to, offset)
	}
	to = append(to, make([]byte, wal.Align(len(to)-at)-(len(to)-at))...)
	to = append(to, indexMagic...)
	to = le.AppendUint64(to, first)
	to = le.AppendUint32(to, uint32(len(offsets)))
	to = le.AppendUint32(to, uint32(end))
	to = le.AppendUint32(to, wal.Checksum(to[at:]))
	return le.AppendUint32(to, 0)
}

// indexSize reads the trailer of an index and returns how many bytes the whole
// index of a file of a size has.
func indexSize(trailer []byte, first uint64, size int64) (int64, bool) {
	le := binary.LittleEndian
	if len(trailer) != indexTrailer || string(trailer[:8]) != indexMagic || le.Uint64(trailer[8:]) != first {
		return 0, false
	}
	count, end := int64(le.Uint32(trailer[16:])), int64(le.Uint32(trailer[20:]))
	span := int64(wal.Align(int(4*count))) + indexTrailer
	return span, end >= wal.FileHeaderSize && end+span == size
}

// parseIndex reads a whole index whose size indexSize has validated.
func parseIndex(b []byte) (offsets []uint32, end int64, ok bool) {
	le, trailer := binary.LittleEndian, b[len(b)-indexTrailer:]
	if wal.Checksum(b[:len(b)-8]) != le.Uint32(trailer[24:]) {
		return nil, 0, false
	}
	offsets = make([]uint32, le.Uint32(trailer[16:]))
	for i := range offsets {
		offsets[i] = le.Uint32(b[4*i:])
	}
	return offsets, int64(le.Uint32(trailer[20:])), true
}
