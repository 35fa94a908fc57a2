package oap

import "sync"

// bufferSizes are the size classes of buffers. Each is a little more than the
// power of two below it, because what travels is a round number of bytes with a
// header and a few keys around it; and each is a whole number of the
// allocator's own sizes, so that nothing is lost in rounding.
var bufferSizes = [...]int{512, 2 << 10, 8 << 10, 16 << 10, 72 << 10, 104 << 10, 264 << 10, MaxPayload + 8<<10}

// defaultClass is the class that a busy reader starts with: as much as one TLS
// record holds.
const defaultClass = 3

// fullReadClass is the class for a reader that fills its buffers: as much as
// one read from a socket returns, and what TLS may have held back of the read
// before. So what came together is returned together.
const fullReadClass = 5

// bufferPools keep released buffers, one pool a class. The collector empties
// them when they are not used.
var bufferPools [len(bufferSizes)]sync.Pool

// Buffer is a payload that has an owner. The owner calls Release once, when the
// bytes are not used any more; then the memory is reused for another frame. A
// buffer that is never released is ordinary garbage.
type Buffer struct {
	memory []byte // set at construction; its length is bufferSizes[class]
	class  int    // set at construction

	bytes    []byte // owned by the owner of the buffer
	released bool   // owned by the owner of the buffer
}

// Bytes is the payload.
func (b *Buffer) Bytes() []byte { return b.bytes }

// Release returns the memory to its pool. It panics when that was done before:
// two owners of one buffer would read each other's bytes.
func (b *Buffer) Release() {
	if b.released {
		panic("oap: a buffer was released twice")
	}
	b.released, b.bytes = true, nil
	bufferPools[b.class].Put(b)
}

// newBuffer returns a buffer for size bytes, at most MaxPayload and a header.
func newBuffer(size int) *Buffer {
	class := 0
	for bufferSizes[class] < size {
		class++
	}
	return bufferOfClass(class)
}

func bufferOfClass(class int) *Buffer {
	b, ok := bufferPools[class].Get().(*Buffer)
	if !ok {
		b = &Buffer{memory: make([]byte, bufferSizes[class]), class: class}
	}
	b.released = false
	return b
}
