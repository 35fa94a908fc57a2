package tree

import "sync/atomic"

// cache holds a few verified tiles, half a megabyte of them. Neighbouring
// proofs share all but the lowest of their tiles. It is direct-mapped, and the
// newest tile stays: that needs no lock and no order of use.
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

// slot spreads the tiles of a level over all slots and gives the levels
// different offsets, so that a tile and its parent seldom collide.
func (c *cache) slot(at TileID) *atomic.Pointer[Tile] {
	return &c[(at.N+uint64(at.Level)*23)%uint64(len(c))]
}
