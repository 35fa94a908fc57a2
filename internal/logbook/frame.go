package logbook

import (
	"encoding/binary"
	"hash/crc32"
)

// A book is a header, then frames, then zeros up to the room that was made in
// advance. All numbers are little-endian, and everything begins at a multiple
// of eight.
//
//	book header   magic 8, salt 8, zero 4, crc32c of these 4
//	frame         magic 4, length 4, batch 8, crc32c of the body 4,
//	              crc32c of the salt and these 4, body, zeros up to eight
//
// The batch is where in the file those frames begin that were written together
// with this one. It is there for the day on which a frame is not right: if a
// batch was begun behind it, then it had been synced, and this is damage; if
// not, it is the torn end of a batch that was never acknowledged.
//
// The salt is random and never leaves the file. Records hold what strangers
// send, and without it one of them could send something that looks like the
// header of a later batch, and make a torn end pass for damage.
const (
	bookMagic   = "MNLOGB\xf5\x01"
	bookHeader  = 24
	frameMagic  = 0xf84c4dff
	frameHeader = 24
	alignment   = 8
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

func align(n int) int { return (n + alignment - 1) &^ (alignment - 1) }

// appendBookHeader appends the header of a book.
func appendBookHeader(to []byte, salt uint64) []byte {
	at := len(to)
	to = append(to, bookMagic...)
	to = binary.LittleEndian.AppendUint64(to, salt)
	to = binary.LittleEndian.AppendUint32(to, 0)
	return binary.LittleEndian.AppendUint32(to, checksum(to[at:]))
}

// bookSalt reads the salt out of the header of a book.
func bookSalt(b []byte) (uint64, bool) {
	salt := binary.LittleEndian.Uint64(b[len(bookMagic):])
	return salt, string(b) == string(appendBookHeader(nil, salt))
}

// appendFrame appends the frame of a record.
func appendFrame(to []byte, salt uint64, batch int64, record []byte) []byte {
	at, le := len(to), binary.LittleEndian
	to = le.AppendUint32(to, frameMagic)
	to = le.AppendUint32(to, uint32(len(record)))
	to = le.AppendUint64(to, uint64(batch))
	to = le.AppendUint32(to, checksum(record))
	to = le.AppendUint32(to, headerSum(salt, to[at:]))
	to = append(to, record...)
	return append(to, make([]byte, align(len(record))-len(record))...)
}

// headerSum is the checksum of the header of a frame, of which h is at least
// what comes before the sum.
func headerSum(salt uint64, h []byte) uint32 {
	var salted [8]byte
	binary.LittleEndian.PutUint64(salted[:], salt)
	return crc32.Update(checksum(salted[:]), castagnoli, h[:frameHeader-4])
}

// frame is the header of a frame.
type frame struct {
	length int
	batch  int64
	body   uint32 // checksum
}

func (f frame) size() int { return frameSize(f.length) }

func frameSize(length int) int { return frameHeader + align(length) }

// frameAt reads the header of a frame at the start of b, if there is one.
func frameAt(b []byte, salt uint64) (frame, bool) {
	le := binary.LittleEndian
	if len(b) < frameHeader || le.Uint32(b) != frameMagic || le.Uint32(b[20:]) != headerSum(salt, b) {
		return frame{}, false
	}
	return frame{length: int(le.Uint32(b[4:])), batch: int64(le.Uint64(b[8:])), body: le.Uint32(b[16:])}, true
}
