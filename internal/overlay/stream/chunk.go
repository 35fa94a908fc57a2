package stream

import (
	"sync"

	"micronode/internal/oap"
)

// chunk is a piece of an object that lies in memory of ours. It has one owner
// at a time, and the owner calls free once.
type chunk struct {
	bytes []byte
	whole *[oap.Chunk]byte // what to give back to the pool, if it came from there
}

var chunks = sync.Pool{New: func() any { return new([oap.Chunk]byte) }}

// worthPooling is from when on a piece gets a whole chunk of memory. Small
// objects are many, and each would pin sixty times what it needs.
const worthPooling = oap.Chunk / 8

// newChunk finds memory for n bytes, which are at most oap.Chunk.
func newChunk(n int) chunk {
	if n < worthPooling {
		return chunk{bytes: make([]byte, n)}
	}
	whole := chunks.Get().(*[oap.Chunk]byte)
	return chunk{bytes: whole[:n], whole: whole}
}

// free gives the memory back. The bytes are another's from then on.
func (c chunk) free() {
	if c.whole != nil {
		chunks.Put(c.whole)
	}
}
