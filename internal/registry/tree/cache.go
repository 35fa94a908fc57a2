package tree

import "sync/atomic"

// cache remembers a few tiles that were found right, half a megabyte of them.
// Neighbouring proofs share all but the lowest of their tiles. A tile has one
// place, and the newest stays: that needs no lock and no order of use.
type cache [64]atomic.Pointer[Tile]

func (c *cache) get(at TileID) []byte {
	if t := c.slot(at).Load(); t != nil && t.ID == at {
		return t.Data
	}
	return nil
}

func (c *cache) put(at TileID, data []byte) {
	if c.get(at) == nil {
		c.slot(at).Store(&Tile{at, data})
	}
}

// slot spreads the tiles of a level over all places and gives the levels
// different beginnings, so that a tile and its parent seldom meet.
func (c *cache) slot(at TileID) *atomic.Pointer[Tile] {
	return &c[(at.N+uint64(at.Level)*23)%uint64(len(c))]
}
