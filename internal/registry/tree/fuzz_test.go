package tree_test

import (
	"bytes"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"

	"micronode/internal/registry/tree"
)

// FuzzCheckpoint gives any text to a signer with the right key: what is read is
// written again as the same bytes.
func FuzzCheckpoint(f *testing.F) {
	s := newSigner(f, 1)
	v := verifierOf(f, s)
	good, _ := tree.FormatCheckpoint(sampleCheckpoint(), s)
	f.Add(noteText(good))
	f.Add(strings.Replace(noteText(good), "4711", "0", 1))
	f.Fuzz(func(t *testing.T, text string) {
		tree.ParseCheckpoint([]byte(text), v) // unsigned, or whatever it is: no panic
		signed, err := note.Sign(&note.Note{Text: text}, s)
		if err != nil {
			return
		}
		c, err := tree.ParseCheckpoint(signed, v)
		if err != nil {
			return
		}
		if again, err := tree.FormatCheckpoint(c, s); err != nil || !bytes.Equal(again, signed) {
			t.Fatalf("%q became %q: %v", signed, again, err)
		}
	})
}

// FuzzPrune is FuzzCheckpoint for prune notes.
func FuzzPrune(f *testing.F) {
	s := newSigner(f, 1)
	v := verifierOf(f, s)
	good, _ := tree.FormatPrune(samplePrune(), s)
	f.Add(noteText(good))
	f.Add(strings.Replace(noteText(good), "256", "1", 1))
	f.Fuzz(func(t *testing.T, text string) {
		tree.ParsePrune([]byte(text), v)
		signed, err := note.Sign(&note.Note{Text: text}, s)
		if err != nil {
			return
		}
		p, err := tree.ParsePrune(signed, v)
		if err != nil {
			return
		}
		if again, err := tree.FormatPrune(p, s); err != nil || !bytes.Equal(again, signed) {
			t.Fatalf("%q became %q: %v", signed, again, err)
		}
	})
}

// FuzzTilePath: a path that is read is written again as the same text.
func FuzzTilePath(f *testing.F) {
	f.Add("tile/0/000")
	f.Add("tile/3/x001/234.p/7")
	f.Add("tile/entries/x001/234.p/7")
	f.Fuzz(func(t *testing.T, path string) {
		at, width, err := tree.ParseTilePath(path)
		if err == nil && (tree.TilePath(at, width) != path || width < 1 || width > tree.TileWidth) {
			t.Fatalf("%q became %q", path, tree.TilePath(at, width))
		}
	})
}
