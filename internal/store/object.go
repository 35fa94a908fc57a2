package store

import (
	"sync/atomic"

	"micronode/b3"
)

// entryCost is what the bookkeeping of an object takes: the struct, its place
// in the map and in the ring. It is charged for objects of one block only. For
// larger ones it is lost in the noise, and without it an object as large as the
// whole budget fits.
const entryCost = 256

// object is an object in RAM or on disk. A million of them is as much as anybody
// keeps on one disk, so it is kept to 128 bytes.
type object struct {
	// set at construction
	address b3.Address
	size    int64
	cost    int64       // what it takes of the budget
	blocks  [][]byte    // the content, in RAM; all but the last are whole slabs
	single  [1][]byte   // where blocks lies if there is just one
	count   handleCount // who keeps the bytes alive

	// guarded by the mutex of its shard
	file  *diskFile // on disk: open while somebody reads it, or did so last
	class Class
	used  uint8 // how often it was used lately, at most maxUsed
	slot  int32 // its place in the ring, if it is cached

	// owned by whoever made room by evicting it
	next *object
}

// handleCount counts the handles of an object, plus one while it is visible.
// Only who holds the shard's mutex and sees the object there, or has a handle
// already, may add to it; so it never comes back from zero.
type handleCount struct{ n atomic.Int64 }

func (c *handleCount) add()         { c.n.Add(1) }
func (c *handleCount) done() bool   { return c.n.Add(-1) == 0 }
func (c *handleCount) isOpen() bool { return c.n.Load() > 1 }

// costOf is what an object of a size takes of the budget.
func costOf(size int64) int64 {
	whole := size / slabSize * slabSize
	var cost int64
	if tail := int(size - whole); tail > 0 {
		cost = int64(blockSizes[kindOf(tail)])
	}
	if size <= slabSize {
		cost += entryCost
	}
	return whole + cost
}

func (o *object) info() Info {
	return Info{Address: o.address, Size: o.size, Class: o.class}
}
