package tree

import (
	"context"
	"crypto/sha256"
	"math/bits"

	"filippo.io/torchwood"
	"golang.org/x/mod/sumdb/tlog"

	"micronode/fault"
)

// TileID identifies a tile: the hashes N·256 to N·256+255 of a level. A level
// is eight heights of the tree; level 0 holds the leaves. The level [Entries]
// means the headers themselves.
type TileID struct {
	Level int
	N     uint64
}

// Tile is a full tile: 256 hashes, concatenated.
type Tile struct {
	ID   TileID
	Data []byte
}

// Loader returns a full tile that Unsaved returned earlier. It must be safe for
// concurrent use. What it returns must not change afterwards and need not be
// trusted: it is checked against the root before it is used.
type Loader func(ctx context.Context, at TileID) ([]byte, error)

// Tree is the end of a tree to which leaves are appended. It has one owner,
// which appends; all others read through a [View].
type Tree struct {
	// set at construction
	load  Loader
	cache *cache

	// owned by the appender
	frontier Frontier
	edge     [levels]*edge // the unfinished tile of each level; nil before its first hash
	unsaved  []Tile
}

// edge is a tile that is being filled. Hashes are only ever added after those
// that a view can see, and a full one is never modified, so views share it
// without a lock.
type edge [TileSize]byte

// New returns an empty tree. Tiles that were reported as saved are read back
// through load.
func New(load Loader) *Tree {
	return &Tree{load: load, cache: new(cache)}
}

// Open returns the tree of a size, given the leaves of its unfinished tile: the
// last size mod 256 of them. The unfinished tiles of the higher levels are not
// stored. They are made from the finished ones one level below, of which each
// is one hash: at most 255 loads per level, so 255·log₂₅₆(size) in all and
// mostly half of that.
//
// Open cannot know whether its input is right. Compare the root of its [View]
// with that of a signed checkpoint.
func Open(ctx context.Context, size uint64, leaves []Hash, load Loader) (*Tree, error) {
	const op = "tree.open"
	if size > MaxSize {
		return nil, fault.New(op, fault.Malformed, "a tree of %d leaves: at most %d are possible", size, MaxSize)
	}
	if want := size % TileWidth; uint64(len(leaves)) != want {
		return nil, fault.New(op, fault.Malformed, "a tree of %d leaves has %d in its unfinished tile, not %d", size, want, len(leaves))
	}
	t := New(load)
	t.frontier.size = size
	t.setEdge(0, leaves)
	for level := 1; level < levels; level++ {
		hashes, err := t.foldBelow(ctx, level)
		if err != nil {
			return nil, fault.Wrap(op, err)
		}
		t.setEdge(level, hashes)
	}
	return t, nil
}

// foldBelow makes the hashes of the unfinished tile of a level from the
// finished tiles below.
func (t *Tree) foldBelow(ctx context.Context, level int) ([]Hash, error) {
	end := t.frontier.size >> (tileHeight * level)
	var hashes []Hash
	for n := end - end%TileWidth; n < end; n++ {
		data, err := loadTile(ctx, t.load, TileID{level - 1, n})
		if err != nil {
			return nil, err
		}
		h, err := Fold(data)
		if err != nil {
			return nil, err
		}
		hashes = append(hashes, h)
	}
	return hashes, nil
}

// setEdge fills the unfinished tile of a level, and finds the nodes of the
// frontier that lie within it.
func (t *Tree) setEdge(level int, hashes []Hash) {
	if len(hashes) == 0 {
		return
	}
	var within Frontier
	e := new(edge)
	for i, h := range hashes {
		copy(e[i*HashSize:], h[:])
		within.Append(h)
	}
	t.edge[level] = e
	copy(t.frontier.nodes[tileHeight*level:], within.nodes[:tileHeight])
}

// Size is the number of leaves.
func (t *Tree) Size() uint64 { return t.frontier.Size() }

// Root is the root of the tree as it is now.
func (t *Tree) Root() Hash { return t.frontier.Root() }

// Append adds a leaf. A tile that becomes full is kept in memory until the
// owner has fetched it with Unsaved and reported it with MarkSaved.
func (t *Tree) Append(leaf Hash) {
	t.frontier.Append(leaf)
	size := t.frontier.size
	for level := range levels {
		at := size>>(tileHeight*level) - 1 // the hash of this level that has become complete
		within := at % TileWidth
		if t.edge[level] == nil {
			t.edge[level] = new(edge)
		}
		copy(t.edge[level][within*HashSize:], t.frontier.nodes[tileHeight*level][:])
		if within < TileWidth-1 {
			return
		}
		t.unsaved = append(t.unsaved, Tile{TileID{level, at / TileWidth}, t.edge[level][:]})
		t.edge[level] = nil // and the tile is one hash of the level above
	}
}

// Unsaved lists the full tiles that were not reported as saved, oldest first.
// Their bytes must not be changed.
func (t *Tree) Unsaved() []Tile { return t.unsaved[:len(t.unsaved):len(t.unsaved)] }

// MarkSaved reports that the first n tiles of Unsaved are now available from
// the loader. Views that were taken before do not need the loader for them.
func (t *Tree) MarkSaved(n int) { t.unsaved = t.unsaved[n:] }

// View returns the tree as it is now. Any number of readers may use it for any
// length of time.
func (t *Tree) View() *View {
	return &View{
		load:    t.load,
		cache:   t.cache,
		size:    t.frontier.size,
		root:    t.frontier.Root(),
		edge:    t.edge,
		unsaved: t.Unsaved(),
	}
}

// Frontier is the minimum needed to append to a tree: its size, and the newest
// complete node of each height. It takes two kilobytes at any size. The zero
// Frontier is the empty tree. Copy it to try something out.
type Frontier struct {
	size uint64

	// nodes[h] is the newest complete node of height h. If bit h of the size is
	// set it has no right sibling yet, and so the root is made of it.
	nodes [64]Hash
}

// Append adds a leaf. It hashes once for each node that becomes complete, which
// is less than once per leaf on average.
func (f *Frontier) Append(leaf Hash) {
	node := leaf
	height := bits.TrailingZeros64(f.size + 1)
	for h := range height {
		left := f.nodes[h]
		f.nodes[h] = node
		node = tlog.NodeHash(left, node)
	}
	f.nodes[height] = node
	f.size++
}

// Size is the number of leaves.
func (f *Frontier) Size() uint64 { return f.size }

// Root is the root of the tree as it is now.
func (f *Frontier) Root() Hash {
	if f.size == 0 {
		return EmptyRoot
	}
	height := bits.TrailingZeros64(f.size)
	root := f.nodes[height]
	for h := height + 1; h < bits.Len64(f.size); h++ {
		if f.size>>h&1 == 1 {
			root = tlog.NodeHash(f.nodes[h], root)
		}
	}
	return root
}

// loadTile calls the loader and checks the length of the tile.
func loadTile(ctx context.Context, load Loader, at TileID) ([]byte, error) {
	data, err := load(ctx, at)
	if err != nil {
		return nil, fault.Wrap("tree.load", err)
	}
	if len(data) != TileSize {
		return nil, fault.New("tree.load", fault.IntegrityFail, "%s has %d bytes instead of %d",
			TilePath(at, TileWidth), len(data), TileSize)
	}
	return data, nil
}

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
	for ; len(tile) > 0; tile = tile[HashSize:] {
		f.Append(Hash(tile[:HashSize]))
	}
	return f.nodes[tileHeight], nil
}

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
