package tree

import (
	"context"

	"golang.org/x/mod/sumdb/tlog"

	"micronode/fault"
)

// reader brings the tiles of a view to tlog's reader of hashes, which checks
// each against the root before it gives out any hash of it. It serves one call.
type reader struct {
	ctx  context.Context
	view *View

	err  error  // why a tile could not be had
	keep TileID // the tile that the caller wants for itself
	kept []byte
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

// SaveTiles is part of tlog.TileReader: it is told which tiles were found right.
func (r *reader) SaveTiles(tiles []tlog.Tile, data [][]byte) {
	for i, t := range tiles {
		at := TileID{t.L, uint64(t.N)}
		if at == r.keep {
			r.kept = data[i]
		}
		if t.W == TileWidth && r.view.own(at) == nil {
			r.view.cache.put(at, data[i])
		}
	}
}

func (r *reader) tile(at TileID) ([]byte, error) {
	if data := r.view.own(at); data != nil {
		return data, nil
	}
	if data := r.view.cache.get(at); data != nil {
		return data, nil
	}
	return loadTile(r.ctx, r.view.load, at)
}

// verdict tells a tile that could not be had from one that is wrong.
func (r *reader) verdict(op string, err error) error {
	switch {
	case err == nil:
		return nil
	case r.err != nil:
		return fault.Wrap(op, r.err)
	}
	e := fault.New(op, fault.IntegrityFail, "a stored tile does not belong to the tree of %d leaves", r.view.size)
	e.Err = err
	e.Next = "Run `micronode registry verify` on the data folder to see which one, and delete it: tiles are made again from the records."
	return e
}
