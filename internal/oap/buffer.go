package oap

import "sync"

// sizes are the rooms that buffers come in. Each is a little more than the
// power of two below it, because what travels is a round number of bytes with
// a header and a few keys around it; and each is a whole number of the
// allocator's own sizes, so that nothing is lost in rounding.
var sizes = [...]int{512, 2 << 10, 8 << 10, 16 << 10, 72 << 10, 104 << 10, 264 << 10, MaxPayload + 8<<10}

// work is the size that a busy reader starts with: as much as one TLS record
// holds.
const work = 3

// brim is the size for a reader that fills what it gets: as much as is read from
// a socket in one go, and what TLS may have held back of the go before. So what
// came together is handed out together.
const brim = 5

// pools keep released buffers, one pool a size. The collector empties them
// when they are not used.
var pools [len(sizes)]sync.Pool

// Buffer is a payload that has an owner. Whoever holds one calls Release once,
// when nobody looks at the bytes any more; then the memory serves another
// frame. One that is never released is only garbage.
type Buffer struct {
	room  []byte // set at construction; its length is sizes[class]
	class int    // set at construction

	bytes []byte // owned by whoever holds the buffer
	free  bool   // owned by whoever holds the buffer
}

// Bytes is the payload.
func (b *Buffer) Bytes() []byte { return b.bytes }

// Release gives the memory back. It panics when that was done before: two
// owners of one buffer would read each other's bytes.
func (b *Buffer) Release() {
	if b.free {
		panic("oap: a buffer was released twice")
	}
	b.free, b.bytes = true, nil
	pools[b.class].Put(b)
}

// newBuffer finds a buffer with room for size bytes, at most MaxPayload and a
// header.
func newBuffer(size int) *Buffer {
	class := 0
	for sizes[class] < size {
		class++
	}
	return bufferOf(class)
}

func bufferOf(class int) *Buffer {
	b, ok := pools[class].Get().(*Buffer)
	if !ok {
		b = &Buffer{room: make([]byte, sizes[class]), class: class}
	}
	b.free = false
	return b
}
