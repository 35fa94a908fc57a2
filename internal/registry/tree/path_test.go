package tree_test

import (
	"slices"
	"strings"
	"testing"

	"micronode/fault"
	"micronode/internal/registry/tree"
	"micronode/internal/testkit"
)

func TestTilePaths(t *testing.T) {
	for path, want := range map[string]struct {
		at    tree.TileID
		width int
	}{
		"tile/0/000":                {tree.TileID{}, 256},
		"tile/0/000.p/7":            {tree.TileID{}, 7},
		"tile/1/x001/234.p/255":     {tree.TileID{Level: 1, N: 1234}, 255},
		"tile/0/x001/x234/067":      {tree.TileID{N: 1234067}, 256},
		"tile/entries/x001/x234/06": {tree.TileID{}, 0},
		"tile/entries/x001/067.p/1": {tree.TileID{Level: tree.Entries, N: 1067}, 1},
	} {
		at, width, err := tree.ParseTilePath(path)
		if want.width == 0 {
			testkit.WantKind(t, err, fault.Malformed)
			continue
		}
		if err != nil || at != want.at || width != want.width {
			t.Errorf("%s is %v %d %v", path, at, width, err)
		}
		if again := tree.TilePath(at, width); again != path {
			t.Errorf("%s became %s", path, again)
		}
	}
	for _, path := range []string{
		"", "tile", "tile/0/", "tile/0/0", "tile/00/000", "tile/7/000", "tile/64/000", "tile/-1/000", "tile/data/000",
		"tile/0/000.p/0", "tile/0/000.p/256", "tile/0/000.p/01", "tile/0/x000/001", "/tile/0/000", "tile/8/0/000",
		"tile/0/../000", "tile/0/x999/x999/x999/x999/x999/x999/999", "tile/6/000/", "checkpoint",
		"tile/0/" + strings.Repeat("x001/", 5000) + "001",
	} {
		if _, _, err := tree.ParseTilePath(path); fault.KindOf(err) != fault.Malformed {
			t.Errorf("%.40q is a path: %v", path, err)
		}
	}
}

func TestEntryBundles(t *testing.T) {
	headers := [][]byte{[]byte("one"), {}, make([]byte, 65535)}
	var bundle []byte
	for _, h := range headers {
		longer, err := tree.AppendEntry(bundle, h)
		bundle = testkit.Value(t, longer, err)
	}
	if string(bundle[:5]) != "\x00\x03one" {
		t.Errorf("the bundle begins with %q", bundle[:5])
	}
	got, err := tree.SplitEntries(bundle)
	if testkit.Value(t, got, err); !slices.EqualFunc(got, headers, slices.Equal) {
		t.Error("other headers came back")
	}
	testkit.WantKind(t, testkit.ErrOf(tree.SplitEntries(bundle[:len(bundle)-1])), fault.Malformed)
	testkit.WantKind(t, testkit.ErrOf(tree.SplitEntries(bundle[:1])), fault.Malformed)
	testkit.WantKind(t, testkit.ErrOf(tree.AppendEntry(nil, make([]byte, 65536))), fault.BodyTooLarge)
}
