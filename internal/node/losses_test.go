package node

import (
	"slices"
	"strings"
	"testing"

	"micronode/internal/store"
)

// A node in memory says what ends with it; one with a folder loses nothing.
func TestTheDrainSaysWhatIsLost(t *testing.T) {
	for _, persist := range []string{"", t.TempDir()} {
		n := startWith(t, func(o *Options) { o.Persist = persist })
		n.waitReady(t)
		if len(n.Lost()) != 0 {
			t.Errorf("before the drain, %v is lost", n.Lost())
		}
		if _, _, err := n.store.Put(t.Context(), strings.NewReader("hello"), store.PutOptions{Size: store.Unknown}); err != nil {
			t.Fatal(err)
		}
		n.stopAndWait(t)
		if persist != "" && len(n.Lost()) != 0 {
			t.Errorf("with a folder, %v is lost", n.Lost())
		}
		if persist == "" && !slices.ContainsFunc(n.Lost(), func(text string) bool { return strings.HasPrefix(text, "1 object (5") }) {
			t.Errorf("%v is lost, and an object was put", n.Lost())
		}
	}
}
