package tree

import (
	"context"
	"sync/atomic"

	"golang.org/x/mod/sumdb/tlog"

	"micronode/fault"
)

// reader passes the tiles of a view to tlog's reader of hashes, which checks
// each against the root before it returns any hash of it. It serves one call.
type reader struct {
	ctx  context.Context
	view *View

	err        error  // why a tile could not be loaded
	wantedTile TileID // the tile that the caller wants for itself
	wantedData []byte
}

func (v *View) reader(ctx context.Context) *reader { return &reader{ctx: ctx, view: v} }

func (r *reader) hashes() tlog.HashReader {
	return tlog.TileHashReader(tlog.Tree{N: int64(r.view.size), Hash: r.view.root}, r)
}

// Height is part of tlog.TileReader.
func (r *reader) Height() int { return tileHeight }

// ReadTiles is part of tlog.TileReader.
func (r *reader) ReadTiles(tiles []tlog.Tile) ([][]byte, error) {
	all := make([][]byte, len(tiles))
	for i, t := range tiles {
		data, err := r.tile(TileID{t.L, uint64(t.N)})
		if err != nil {
			r.err = err
			return nil, err
		}
		all[i] = data[:t.W*HashSize]
	}
	return all, nil
}

// SaveTiles is part of tlog.TileReader: it is called with the tiles that were
// verified.
func (r *reader) SaveTiles(tiles []tlog.Tile, data [][]byte) {
	for i, t := range tiles {
		at := TileID{t.L, uint64(t.N)}
		if at == r.wantedTile {
			r.wantedData = data[i]
		}
		if t.W == TileWidth && r.view.inMemory(at) == nil {
			r.view.cache.put(at, data[i])
		}
	}
}

func (r *reader) tile(at TileID) ([]byte, error) {
	if data := r.view.inMemory(at); data != nil {
		return data, nil
	}
	if data := r.view.cache.get(at); data != nil {
		return data, nil
	}
	return loadTile(r.ctx, r.view.load, at)
}

// readError distinguishes a tile that could not be loaded from one that is
// wrong.
func (r *reader) readError(op string, err error) error {
	switch {
	case err == nil:
		return nil
	case r.err != nil:
		return fault.Wrap(op, r.err)
	}
	return fault.New(op, fault.IntegrityFail, "a stored tile does not belong to the tree of %d leaves", r.view.size).
		Advise("Run `micronode registry verify` on the data folder to see which one, and delete it: the node creates tiles again from the records.").Because(err)
}

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
