package tree

import (
	"filippo.io/torchwood"
	"golang.org/x/mod/sumdb/tlog"

	"micronode/fault"
)

// Entries in place of a level means the headers themselves: 256 of them make an
// entry bundle.
const Entries = -1

// TilePath returns where C2SP tlog-tiles serves a tile: "tile/0/x001/234", or
// "tile/0/x001/234.p/7" if it has fewer than 256 hashes.
func TilePath(at TileID, width int) string {
	return torchwood.TilePath(tlog.Tile{H: tileHeight, L: at.Level, N: int64(at.N), W: width})
}

// ParseTilePath reads what TilePath writes, and nothing else. It rejects a tile
// that no tree can have.
func ParseTilePath(path string) (at TileID, width int, err error) {
	t, err := torchwood.ParseTilePath(path)
	if err != nil || t.L >= levels || uint64(t.N) > MaxSize>>(tileHeight*(max(t.L, 0)+1)) ||
		torchwood.TilePath(t) != path { // torchwood also accepts the older name of entries
		return TileID{}, 0, fault.New("tree.path", fault.Malformed, "this is not the path of a tile: %.80q", path)
	}
	return TileID{t.L, uint64(t.N)}, t.W, nil
}

// AppendEntry appends a header to an entry bundle.
func AppendEntry(bundle, header []byte) ([]byte, error) {
	longer, err := torchwood.AppendTileEntry(bundle, header)
	if err != nil {
		return nil, fault.New("tree.entry", fault.BodyTooLarge, "a header of %d bytes does not fit into an entry bundle", len(header))
	}
	return longer, nil
}

// SplitEntries returns the headers of an entry bundle. They share its memory.
func SplitEntries(bundle []byte) ([][]byte, error) {
	var headers [][]byte
	for len(bundle) > 0 {
		header, rest, err := torchwood.ReadTileEntry(bundle)
		if err != nil {
			return nil, fault.New("tree.entries", fault.Malformed, "the entry bundle ends within entry %d", len(headers))
		}
		headers, bundle = append(headers, header), rest
	}
	return headers, nil
}
