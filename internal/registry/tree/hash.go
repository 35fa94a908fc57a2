package tree

import (
	"crypto/sha256"

	"golang.org/x/mod/sumdb/tlog"

	"micronode/fault"
)

// Hash is a node of the tree: SHA-256 as in RFC 6962, section 2.1.
type Hash = tlog.Hash

const (
	// HashSize is how many bytes a hash has.
	HashSize = tlog.HashSize

	// TileWidth is how many hashes a full tile has, and TileSize how many bytes.
	TileWidth = 1 << tileHeight
	TileSize  = TileWidth * HashSize

	// MaxSize is the largest tree: a version is an integer that JSON can hold.
	// The bound is checked before any arithmetic on a number from outside.
	MaxSize uint64 = 1 << 53

	tileHeight = 8
	levels     = 7 // of tiles: enough for MaxSize leaves
)

// EmptyRoot is the root of the tree without leaves.
var EmptyRoot Hash = sha256.Sum256(nil)

// LeafHash returns the leaf of a header.
func LeafHash(header []byte) Hash { return tlog.RecordHash(header) }

// Fold returns the one hash that a full tile is in the level above. With it a
// lost tile can be rebuilt from the 256 tiles below it.
func Fold(tile []byte) (Hash, error) {
	if len(tile) != TileSize {
		return Hash{}, fault.New("tree.fold", fault.IntegrityFail,
			"a full tile has %d bytes, this one %d", TileSize, len(tile))
	}
	var f Frontier
	f.appendAll(tile)
	return f.newest(tileHeight), nil
}
