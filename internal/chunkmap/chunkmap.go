package chunkmap

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/flow"
)

const op = "chunkmap"

// The lengths of chunks, which are those of the paper. All nodes must use the same: otherwise their chunks have different ends, and
// nothing is found. Docs/oap1.md describes it.
const (
	minChunk    = 2 << 10
	normalChunk = 8 << 10
	maxChunk    = 64 << 10
)

// MinObject is the size from which on an object has a map. A smaller one comes
// whole in the time that it takes to ask for its map.
const MinObject = 1 << 20

// The encoding of a map: the size of the object, then for each chunk its hash
// and its length less one, little endian.
const (
	headerSize = 8
	entrySize  = 10
)

// Chunk is a part of an object.
type Chunk struct {
	Hash uint64 // the first eight bytes of its BLAKE3
	Size int32
}

// maxChunks is how many chunks an object may have if it has a map: then that is
// 0.3 % of it, and some bytes. That of random bytes has 0.11 %. With the tree, which
// has 0.4 %, and an older version that has nothing in common, less than 101 % of the
// object move.
func maxChunks(size int64) int { return 16 + int(size/10_000*3) }

// Limit is how many bytes the map of an object has at most.
func Limit(size int64) int64 { return headerSize + entrySize*int64(maxChunks(size)) }

// Make makes the map of an object. It fails with QuotaExceeded if it would be
// over the limit, as for bytes that repeat in an unlucky way.
func Make(ctx context.Context, object io.ReaderAt, size int64) ([]Chunk, error) {
	from := bufio.NewReaderSize(io.NewSectionReader(object, 0, size), 4*maxChunk)
	most := maxChunks(size)
	list := make([]Chunk, 0, min(most, int(size/normalChunk)))
	for left := size; left > 0; {
		bytes, err := from.Peek(int(min(maxChunk, left)))
		switch {
		case err == io.EOF:
			return nil, fault.New(op, fault.IntegrityFail, "the object ends %d bytes before its end", left-int64(len(bytes)))
		case err != nil:
			return nil, fault.Wrap(op, err)
		}
		bytes = bytes[:cut(bytes)]
		if len(list) == most {
			return nil, fault.New(op, fault.QuotaExceeded, "an object of %d bytes has more than %d chunks", size, most)
		}
		hash := b3.Of(bytes)
		list = append(list, Chunk{Hash: binary.LittleEndian.Uint64(hash[:]), Size: int32(len(bytes))})
		left -= int64(len(bytes))
		_, _ = from.Discard(len(bytes)) // they are in the buffer
		if ended := flow.Ended(ctx, op); ended != nil {
			return nil, ended
		}
	}
	return list, nil
}

// Encode returns the map as it is sent.
func Encode(chunks []Chunk) []byte {
	out, size := make([]byte, headerSize, headerSize+entrySize*len(chunks)), int64(0)
	for _, one := range chunks {
		out = binary.LittleEndian.AppendUint64(out, one.Hash)
		out = binary.LittleEndian.AppendUint16(out, uint16(one.Size-1))
		size += int64(one.Size)
	}
	binary.LittleEndian.PutUint64(out, uint64(size))
	return out
}

// ErrWrong is in the error of a map that came, and cannot be that of the object.
var ErrWrong = errors.New("the map is wrong")

func wrong(kind fault.Kind, format string, args ...any) error {
	return &fault.Error{Op: op, Kind: kind, Detail: fmt.Sprintf(format, args...), Err: ErrWrong}
}

// Read reads the map of an object of a size. It is Malformed if it is that of an
// object of another size, and QuotaExceeded as soon as it is over the limit.
func Read(from io.Reader, size int64) ([]Chunk, error) {
	buffered := bufio.NewReaderSize(from, 64<<10)
	var header [headerSize]byte
	if _, err := io.ReadFull(buffered, header[:]); err != nil {
		return nil, fault.Wrap(op, err)
	}
	if said := binary.LittleEndian.Uint64(header[:]); said != uint64(size) {
		return nil, wrong(fault.Malformed, "the map is of an object of %d bytes, not of %d", said, size)
	}
	most := maxChunks(size)
	var list []Chunk // it grows with what arrives
	for left := size; left > 0; {
		var entry [entrySize]byte
		if _, err := io.ReadFull(buffered, entry[:]); err != nil {
			return nil, fault.Wrap(op, err)
		}
		one := Chunk{Hash: binary.LittleEndian.Uint64(entry[:]), Size: int32(binary.LittleEndian.Uint16(entry[8:])) + 1}
		if len(list) == most {
			return nil, wrong(fault.QuotaExceeded, "the map has more than %d chunks", most)
		}
		if left -= int64(one.Size); left < 0 {
			return nil, wrong(fault.Malformed, "the chunks of the map have more than %d bytes", size)
		}
		list = append(list, one)
	}
	if _, err := buffered.ReadByte(); err != io.EOF {
		return nil, wrong(fault.Malformed, "the map goes on behind the end of the object")
	}
	return list, nil
}
