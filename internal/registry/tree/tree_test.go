package tree_test

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"micronode/fault"
	"micronode/internal/registry/tree"
	"micronode/internal/testkit"
)

var ctx = context.Background()

// The vectors are those of Certificate Transparency's own tests for RFC 6962:
// the eight leaves and the roots after each of them.
func TestKnownAnswers(t *testing.T) {
	leaves := []string{
		"", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f",
	}
	roots := []string{
		"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
		"6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
		"fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
		"aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
		"d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
		"4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
		"76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
		"ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
		"5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
	}
	var f tree.Frontier
	log := tree.New(nil)
	for size, want := range roots {
		if got := f.Root(); hex.EncodeToString(got[:]) != want || f.Size() != uint64(size) {
			t.Errorf("the root of %d leaves is %x, want %s", size, got, want)
		}
		if log.View().Root() != f.Root() {
			t.Errorf("tree and frontier disagree at %d leaves", size)
		}
		if size < len(leaves) {
			header, _ := hex.DecodeString(leaves[size])
			f.Append(tree.LeafHash(header))
			log.Append(tree.LeafHash(header))
		}
	}
	if tree.EmptyRoot.String() != "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=" {
		t.Errorf("the empty root is %v", tree.EmptyRoot)
	}
}

// Every size up to 600, and for each a handful of leaves and older sizes: a
// view agrees with the RFC, and so do the checks.
func TestEverySmallSize(t *testing.T) {
	const most = 600
	rfc, s := newRFCTree(most), newTileStore()
	log := tree.New(s.load)
	for size := uint64(0); size <= most; size++ {
		grow(log, s, size)
		view := log.View()
		if view.Size() != size || view.Root() != rfc.root(0, int(size)) {
			t.Fatalf("wrong root at %d leaves", size)
		}
		for _, i := range []uint64{0, 1, size / 3, size / 2, size - 256, size - 2, size - 1} {
			if i < size {
				compareInclusion(t, view, rfc, i, size)
			}
		}
		for _, old := range []uint64{0, 1, 2, size / 3, size / 2, 255, 256, 257, 512, size - 1, size} {
			if old <= size {
				compareConsistency(t, view, rfc, old, size)
			}
		}
	}
}

func compareInclusion(t testkit.T, view *tree.View, rfc *rfcTree, index, size uint64) {
	t.Helper()
	proof, err := view.ProveInclusion(ctx, index, size)
	if testkit.Value(t, proof, err); !slices.Equal(proof, rfc.path(int(index), 0, int(size))) {
		t.Fatalf("wrong inclusion proof of %d in %d", index, size)
	}
	root, err := view.RootAt(ctx, size)
	if testkit.Value(t, root, err); root != rfc.root(0, int(size)) {
		t.Fatalf("wrong root at %d", size)
	}
	if err := tree.CheckInclusion(proof, size, root, index, leaf(index)); err != nil {
		t.Fatalf("a good proof of %d in %d is refused: %v", index, size, err)
	}
	if err := tree.CheckInclusion(proof, size, root, index, leaf(index+1)); fault.KindOf(err) != fault.IntegrityFail {
		t.Fatalf("another leaf is proved: %v", err)
	}
	if after := tree.FrontierAfter(proof, size, index, leaf(index)); after.Size() != index+1 || after.Root() != rfc.root(0, int(index)+1) {
		t.Fatalf("the proof of %d in %d gives another root for %d leaves", index, size, index+1)
	}
}

func compareConsistency(t testkit.T, view *tree.View, rfc *rfcTree, old, size uint64) {
	t.Helper()
	proof, err := view.ProveConsistency(ctx, old, size)
	var want []tree.Hash
	if old > 0 {
		want = rfc.subproof(int(old), 0, int(size), true)
	}
	if testkit.Value(t, proof, err); !slices.Equal(proof, want) {
		t.Fatalf("wrong consistency proof from %d to %d", old, size)
	}
	oldRoot, root := rfc.root(0, int(old)), rfc.root(0, int(size))
	if err := tree.CheckConsistency(proof, size, root, old, oldRoot); err != nil {
		t.Fatalf("a good proof from %d to %d is refused: %v", old, size, err)
	}
	oldRoot[7] ^= 1
	if err := tree.CheckConsistency(proof, size, root, old, oldRoot); fault.KindOf(err) != fault.IntegrityFail {
		t.Fatalf("another past is proved: %v", err)
	}
}

// Trees of any size up to 70,000 leaves: opened somewhere, grown to the end,
// proofs for sizes in between, with all full tiles in the loader.
func TestLargeTrees(t *testing.T) {
	const most = 70_000
	rfc, s := newRFCTree(most), newTileStore()
	grow(tree.New(s.load), s, most)

	rapid.Check(t, func(t *rapid.T) {
		size := rapid.Uint64Range(1, most).Draw(t, "size")
		opened := rapid.Uint64Range(size-min(size, 700), size).Draw(t, "opened")
		log := reopen(t, s, opened)
		if got := log.View().Root(); got != rfc.root(0, int(opened)) {
			t.Fatalf("opened at %d with the wrong root", opened)
		}
		for log.Size() < size {
			log.Append(leaf(log.Size()))
		}
		view := log.View()
		at := rapid.Uint64Range(1, size).Draw(t, "at")
		compareInclusion(t, view, rfc, rapid.Uint64Range(0, at-1).Draw(t, "index"), at)
		compareConsistency(t, view, rfc, rapid.Uint64Range(0, at).Draw(t, "old"), at)
	})
}

func reopen(t testkit.T, s *tileStore, size uint64) *tree.Tree {
	t.Helper()
	var leaves []tree.Hash
	for i := size - size%tree.TileWidth; i < size; i++ {
		leaves = append(leaves, leaf(i))
	}
	log, err := tree.Open(ctx, size, leaves, s.load)
	return testkit.Value(t, log, err)
}

// A tree that is opened returns the same tiles as one that was never closed.
func TestOpenedTreeFillsTheSameTiles(t *testing.T) {
	const most = 66_000 // beyond the first full tile of level 1
	whole := newTileStore()
	grow(tree.New(whole.load), whole, most)

	s := newTileStore()
	log := tree.New(s.load)
	for _, stop := range []uint64{1, 255, 256, 257, 5000, 65_000, 65_535, 65_536, 65_537, most} {
		grow(log, s, stop)
		log = reopen(t, s, stop)
	}
	if len(s.tiles) != len(whole.tiles) || len(s.tiles) != most/256+1 {
		t.Fatalf("%d and %d tiles, want %d", len(s.tiles), len(whole.tiles), most/256+1)
	}
	for at, data := range whole.tiles {
		if !slices.Equal(s.tiles[at], data) {
			t.Errorf("tile %v differs", at)
		}
	}
	fold, err := tree.Fold(whole.tiles[tree.TileID{Level: 0, N: 3}])
	if testkit.Value(t, fold, err); !slices.Equal(fold[:], whole.tiles[tree.TileID{Level: 1}][3*32:4*32]) {
		t.Error("a folded tile is not its hash in the level above")
	}
}

// Opening costs by the number of levels, not of leaves.
func TestOpenLoadsFewTiles(t *testing.T) {
	s := newTileStore()
	grow(tree.New(s.load), s, 70_000)
	for size, most := range map[uint64]int{200: 0, 256: 1, 65_535: 255, 65_536: 1, 70_000: 18} {
		s.loads = 0
		if reopen(t, s, size); s.loads != most {
			t.Errorf("opening at %d took %d tiles, want %d", size, s.loads, most)
		}
	}
}

// A proof loads at most one tile per level, and a second one beside it mostly
// none.
func TestProofsLoadFewTiles(t *testing.T) {
	s := newTileStore()
	log := tree.New(s.load)
	grow(log, s, 70_000)
	view := log.View()

	s.loads = 0
	testkit.Value(t, 0, testkit.ErrOf(view.ProveInclusion(ctx, 1000, 70_000)))
	if s.loads == 0 || s.loads > 3 {
		t.Errorf("the first proof took %d tiles", s.loads)
	}
	s.loads = 0
	testkit.Value(t, 0, testkit.ErrOf(view.ProveInclusion(ctx, 1001, 70_000)))
	if s.loads != 0 {
		t.Errorf("the proof beside it took %d tiles more", s.loads)
	}
}

// Tiles are served as they are stored, and unfinished ones as far as they go.
func TestTiles(t *testing.T) {
	s := newTileStore()
	log := tree.New(s.load)
	grow(log, s, 1000)
	view := log.View()

	for _, c := range []struct {
		level      int
		n          uint64
		width, has int
	}{
		{0, 0, 256, 256}, {0, 2, 256, 256}, {0, 2, 17, 256}, {0, 3, 232, 232}, {0, 3, 1, 232}, {1, 0, 3, 3},
	} {
		at := tree.TileID{Level: c.level, N: c.n}
		data, err := view.Tile(ctx, at, c.width)
		if testkit.Value(t, data, err); len(data) != c.width*tree.HashSize {
			t.Fatalf("%v has %d bytes", at, len(data))
		}
		for i := range c.width {
			want := leaf(c.n*256 + uint64(i))
			if c.level == 1 {
				want, _ = tree.Fold(s.tiles[tree.TileID{Level: 0, N: uint64(i)}])
			}
			if tree.Hash(data[i*32:i*32+32]) != want {
				t.Fatalf("hash %d of %v is wrong", i, at)
			}
		}
		testkit.WantKind(t, testkit.ErrOf(view.Tile(ctx, at, c.has+1)), fault.NotFound)
		testkit.WantKind(t, testkit.ErrOf(view.Tile(ctx, at, 0)), fault.NotFound)
	}
	for _, at := range []tree.TileID{{Level: 0, N: 4}, {Level: 1, N: 1}, {Level: 2}, {Level: 7}, {Level: -1}, {Level: 0, N: 1 << 60}} {
		testkit.WantKind(t, testkit.ErrOf(view.Tile(ctx, at, 1)), fault.NotFound)
	}
}

// One view reads every tile there is, so that tiles evict each other from its
// cache.
func TestAllTilesThroughOneView(t *testing.T) {
	s := newTileStore()
	log := tree.New(s.load)
	grow(log, s, 70_000)
	view := log.View()
	for range 2 {
		for at, want := range s.tiles {
			if data, err := view.Tile(ctx, at, tree.TileWidth); err != nil || !slices.Equal(data, want) {
				t.Fatalf("%v: other bytes, or %v", at, err)
			}
		}
	}
}

// What is full but not saved is read all the same, also by a view from before it
// was saved.
func TestUnsavedTilesAreRead(t *testing.T) {
	log := tree.New(func(context.Context, tree.TileID) ([]byte, error) { return nil, errDisk })
	for i := range uint64(700) {
		log.Append(leaf(i))
	}
	if n := len(log.Unsaved()); n != 2 {
		t.Fatalf("%d tiles are unsaved, want 2", n)
	}
	rfc, before := newRFCTree(700), log.View()
	compareInclusion(t, before, rfc, 3, 700)

	log.MarkSaved(1)
	if left := log.Unsaved(); len(left) != 1 || left[0].ID != (tree.TileID{Level: 0, N: 1}) {
		t.Fatalf("left are %v", left)
	}
	compareInclusion(t, before, rfc, 3, 700)
	testkit.Value(t, 0, testkit.ErrOf(before.Tile(ctx, tree.TileID{}, 256)))

	after := log.View()
	for _, err := range []error{
		testkit.ErrOf(after.ProveInclusion(ctx, 3, 700)),
		testkit.ErrOf(after.Tile(ctx, tree.TileID{}, 256)),
		testkit.ErrOf(after.RootAt(ctx, 5)),
		testkit.ErrOf(after.ProveConsistency(ctx, 5, 700)),
	} {
		if fault.KindOf(err) != fault.Internal || fault.OpOf(err) == "" {
			t.Errorf("the loader's failure became %v", err)
		}
	}
}

// One appends, many read what was published: run with -race.
func TestReadersBesideTheAppender(t *testing.T) {
	const most = 3000
	rfc := newRFCTree(most)
	for size := range most + 1 {
		rfc.root(0, size) // the cache of the reference tree is for one goroutine
	}
	var mu sync.Mutex
	tiles := make(map[tree.TileID][]byte)
	log := tree.New(func(_ context.Context, at tree.TileID) ([]byte, error) {
		mu.Lock()
		defer mu.Unlock()
		return tiles[at], nil
	})

	views := make(chan *tree.View)
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for v := range views {
				size := v.Size()
				proof, err := v.ProveInclusion(ctx, size/2, size)
				if err == nil {
					err = tree.CheckInclusion(proof, size, v.Root(), size/2, leaf(size/2))
				}
				edge := tree.TileID{Level: 0, N: (size - 1) / 256}
				if err == nil {
					_, err = v.Tile(ctx, edge, int((size-1)%256)+1)
				}
				if err != nil {
					t.Errorf("at %d: %v", size, err)
				}
			}
		})
	}
	for log.Size() < most {
		log.Append(leaf(log.Size()))
		if log.Size()%300 == 0 {
			mu.Lock()
			for _, tile := range log.Unsaved() {
				tiles[tile.ID] = tile.Data
			}
			mu.Unlock()
			log.MarkSaved(len(log.Unsaved()))
		}
		v := log.View()
		if log.Size()%7 == 0 {
			views <- v
		}
	}
	close(views)
	readers.Wait()
}

// Any changed byte of any tile is detected by a reader of it.
func TestChangedTilesAreFound(t *testing.T) {
	const most = 66_000
	s := newTileStore()
	grow(tree.New(s.load), s, most)
	rfc := newRFCTree(most)

	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Uint64Range(0, most/256-1).Draw(t, "n")
		at := tree.TileID{Level: 0, N: n}
		if rapid.IntRange(0, 9).Draw(t, "level") == 0 {
			at, n = tree.TileID{Level: 1}, rapid.Uint64Range(0, 255).Draw(t, "child")
		}
		offset := rapid.IntRange(0, tree.TileSize-1).Draw(t, "offset")
		bad := slices.Clone(s.tiles[at])
		bad[offset] ^= byte(rapid.IntRange(1, 255).Draw(t, "flip"))
		log := openWith(t, s, most, at, bad, rfc)
		if log == nil { // the root at opening was wrong: detected
			return
		}
		view := log.View()
		testkit.WantKind(t, testkit.ErrOf(view.Tile(ctx, at, tree.TileWidth)), fault.IntegrityFail)
		testkit.WantKind(t, testkit.ErrOf(view.ProveInclusion(ctx, n*256+uint64(offset%256), most)), fault.IntegrityFail)
		if fault.NextOf(testkit.ErrOf(view.Tile(ctx, at, 1))) == fault.IntegrityFail.Next() {
			t.Fatalf("the refusal does not say what to do")
		}
	})
}

// openWith opens a tree with one tile replaced; nil if its root is another.
func openWith(t testkit.T, s *tileStore, size uint64, at tree.TileID, bad []byte, rfc *rfcTree) *tree.Tree {
	t.Helper()
	var leaves []tree.Hash
	for i := size - size%tree.TileWidth; i < size; i++ {
		leaves = append(leaves, leaf(i))
	}
	log, err := tree.Open(ctx, size, leaves, func(ctx context.Context, want tree.TileID) ([]byte, error) {
		if want == at {
			return bad, nil
		}
		return s.load(ctx, want)
	})
	if testkit.Value(t, log, err).View().Root() != rfc.root(0, int(size)) {
		return nil
	}
	return log
}

// Any changed, missing or added hash of a proof is detected, and so is any
// other index, size or root.
func TestChangedProofsAreFound(t *testing.T) {
	const most = 2000
	s, rfc := newTileStore(), newRFCTree(most)
	log := tree.New(s.load)
	grow(log, s, most)
	view := log.View()

	rapid.Check(t, func(t *rapid.T) {
		size := rapid.Uint64Range(2, most).Draw(t, "size")
		index := rapid.Uint64Range(0, size-1).Draw(t, "index")
		old := rapid.Uint64Range(1, size-1).Draw(t, "old")
		root, oldRoot := rfc.root(0, int(size)), rfc.root(0, int(old))
		inclusion, err := view.ProveInclusion(ctx, index, size)
		testkit.Value(t, inclusion, err)
		consistency, err := view.ProveConsistency(ctx, old, size)
		testkit.Value(t, consistency, err)

		testkit.WantKind(t, tree.CheckInclusion(corruptProof(t, inclusion), size, root, index, leaf(index)), fault.IntegrityFail)
		testkit.WantKind(t, tree.CheckConsistency(corruptProof(t, consistency), size, root, old, oldRoot), fault.IntegrityFail)

		other := root
		other[rapid.IntRange(0, 31).Draw(t, "byte")] ^= 0x80
		testkit.WantKind(t, tree.CheckInclusion(inclusion, size, other, index, leaf(index)), fault.IntegrityFail)
		testkit.WantKind(t, tree.CheckConsistency(consistency, size, other, old, oldRoot), fault.IntegrityFail)
		if index > 0 {
			testkit.WantKind(t, tree.CheckInclusion(inclusion, size, root, index-1, leaf(index)), fault.IntegrityFail)
		}
	})
}

// corruptProof changes a byte of a proof, or removes a hash, or adds one.
func corruptProof(t *rapid.T, proof []tree.Hash) []tree.Hash {
	proof = slices.Clone(proof)
	how := rapid.SampledFrom([]string{"flip", "shorten", "lengthen"}).Draw(t, "how")
	if len(proof) == 0 || how == "lengthen" {
		return append(proof, leaf(0))
	}
	if how == "shorten" {
		return proof[:len(proof)-1]
	}
	proof[rapid.IntRange(0, len(proof)-1).Draw(t, "hash")][rapid.IntRange(0, 31).Draw(t, "at")] ^= 1
	return proof
}

func TestQuestionsBeyondTheTree(t *testing.T) {
	s := newTileStore()
	log := tree.New(s.load)
	grow(log, s, 10)
	v := log.View()
	for name, err := range map[string]error{
		"root":               testkit.ErrOf(v.RootAt(ctx, 11)),
		"inclusion size":     testkit.ErrOf(v.ProveInclusion(ctx, 1, 11)),
		"inclusion index":    testkit.ErrOf(v.ProveInclusion(ctx, 10, 10)),
		"consistency size":   testkit.ErrOf(v.ProveConsistency(ctx, 1, 11)),
		"consistency larger": testkit.ErrOf(v.ProveConsistency(ctx, 10, 9)),
	} {
		if fault.KindOf(err) != fault.NotFound {
			t.Errorf("%s: %v", name, err)
		}
	}

	// Sizes at which the arithmetic of trees would not end are refused first.
	for _, size := range []uint64{tree.MaxSize + 1, 1<<63 - 1, 1 << 63, 1<<64 - 1} {
		testkit.WantKind(t, tree.CheckInclusion(nil, size, tree.Hash{}, 0, tree.Hash{}), fault.Malformed)
		testkit.WantKind(t, tree.CheckConsistency(nil, size, tree.Hash{}, 1, tree.Hash{}), fault.Malformed)
		testkit.WantKind(t, testkit.ErrOf(tree.Open(ctx, size, nil, s.load)), fault.Malformed)
	}
	testkit.WantKind(t, tree.CheckInclusion(nil, 3, tree.Hash{}, 3, tree.Hash{}), fault.Malformed)
	testkit.WantKind(t, tree.CheckConsistency(nil, 3, tree.Hash{}, 4, tree.Hash{}), fault.Malformed)
	testkit.WantKind(t, tree.CheckInclusion(nil, tree.MaxSize, tree.Hash{}, 0, tree.Hash{}), fault.IntegrityFail)
}

// A size that does not fit the leaves, tiles that are missing, tiles that are cut off.
func TestWrongLeavesAndTiles(t *testing.T) {
	s := newTileStore()
	grow(tree.New(s.load), s, 256)
	testkit.WantKind(t, testkit.ErrOf(tree.Open(ctx, 3, []tree.Hash{leaf(0)}, s.load)), fault.Malformed)
	testkit.WantKind(t, testkit.ErrOf(tree.Open(ctx, 512, nil, s.load)), fault.NotFound)
	short := func(context.Context, tree.TileID) ([]byte, error) { return make([]byte, 8191), nil }
	testkit.WantKind(t, testkit.ErrOf(tree.Open(ctx, 256, nil, short)), fault.IntegrityFail)
	testkit.WantKind(t, testkit.ErrOf(tree.Fold(make([]byte, 32))), fault.IntegrityFail)

	log := tree.New(short)
	for i := range uint64(300) {
		log.Append(leaf(i))
	}
	log.MarkSaved(1)
	testkit.WantKind(t, testkit.ErrOf(log.View().ProveInclusion(ctx, 1, 300)), fault.IntegrityFail)
	testkit.WantKind(t, testkit.ErrOf(log.View().Tile(ctx, tree.TileID{}, 256)), fault.IntegrityFail)
}

// Appending allocates a tile for each 256 leaves and nothing besides.
func TestAppendAllocatesTilesOnly(t *testing.T) {
	log := tree.New(nil)
	i := uint64(0)
	per := testing.AllocsPerRun(100, func() {
		for range 256 {
			log.Append(tree.Hash{byte(i), byte(i >> 8)})
			i++
		}
		log.MarkSaved(len(log.Unsaved()))
	})
	if per > 4 {
		t.Errorf("%v allocations for 256 leaves", per)
	}
}

func BenchmarkAppend(b *testing.B) {
	log := tree.New(nil)
	h := leaf(1)
	b.ReportAllocs()
	for b.Loop() {
		log.Append(h)
		if log.Size()%256 == 0 {
			log.MarkSaved(len(log.Unsaved()))
		}
	}
}

func BenchmarkView(b *testing.B) {
	log := tree.New(nil)
	for i := range uint64(255) {
		log.Append(leaf(i))
	}
	b.ReportAllocs()
	for b.Loop() {
		log.View()
	}
}

func BenchmarkProveInclusion(b *testing.B) {
	for _, size := range []uint64{100, 10_000, 1_000_000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			s := newTileStore()
			log := tree.New(s.load)
			grow(log, s, size)
			view := log.View()
			i := uint64(0)
			for b.Loop() {
				if _, err := view.ProveInclusion(ctx, i%size, size); err != nil {
					b.Fatal(err)
				}
				i += 7919
			}
		})
	}
}

func BenchmarkOpen(b *testing.B) {
	for _, size := range []uint64{100, 10_000, 1_000_000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			s := newTileStore()
			grow(tree.New(s.load), s, size)
			for b.Loop() {
				reopen(b, s, size)
			}
		})
	}
}
