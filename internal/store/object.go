package store

import (
	"sync/atomic"
	"time"

	"micronode/b3"
)

// objectOverhead is the cost of the bookkeeping of an object: the struct, its
// entries in the map and in the ring. It is charged for objects of one block
// only. For larger ones it is negligible, and without it an object as large as
// the whole budget fits.
const objectOverhead = 256

// object is an object in RAM or on disk. A disk may hold a million of them, so
// it is kept to 128 bytes.
type object struct {
	// set at construction
	address     b3.Address
	size        int64
	extra       int32     // its cost in the budget beyond its size
	stored      uint32    // when it was put, in seconds since 1970
	blocks      [][]byte  // the content, in RAM; all but the last are whole slabs
	inlineBlock [1][]byte // backing array of blocks if there is just one
	refs        refCount  // handles, and one while it is visible

	// guarded by the mutex of its shard
	file      *diskFile // on disk: open while it is read, or was read last
	class     Class
	useCount  uint8 // how often it was used recently, at most maxUseCount
	ringIndex int32 // its index in the ring, if it is cached

	// owned by the reclaim that evicted it
	next *object
}

// refCount counts the handles of an object, plus one while it is visible. It
// may be incremented only with the shard's mutex held and the object visible,
// or with an open handle; so it never rises from zero.
type refCount struct{ n atomic.Int64 }

func (c *refCount) retain()       { c.n.Add(1) }
func (c *refCount) release() bool { return c.n.Add(-1) == 0 }
func (c *refCount) isOpen() bool  { return c.n.Load() > 1 }

// ramCost is the cost of an object of a size in the budget.
func ramCost(size int64) int64 {
	whole := size / slabSize * slabSize
	var cost int64
	if tail := int(size - whole); tail > 0 {
		cost = int64(blockSizes[sizeClass(tail)])
	}
	if size <= slabSize {
		cost += objectOverhead
	}
	return whole + cost
}

// newObject describes a complete object that was put at a time.
func newObject(a b3.Address, size, cost int64, class Class, at time.Time) *object {
	return &object{address: a, size: size, extra: int32(cost - size), stored: uint32(max(0, at.Unix())), class: class}
}

// cost is its cost in the budget. It differs from the size by the rounding of one
// block and the bookkeeping.
func (o *object) cost() int64 { return o.size + int64(o.extra) }

func (o *object) info() Info {
	return Info{Address: o.address, Size: o.size, Class: o.class}
}
