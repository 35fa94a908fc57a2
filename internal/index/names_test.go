package index

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/index/record"
)

var namesKey = ed25519.NewKeyFromSeed([]byte("the seed of a node of the tests!"))

// drawer is a Keeper in memory that can fail.
type drawer struct {
	mu     sync.Mutex
	kept   map[string][]byte
	broken error
}

func newDrawer() *drawer { return &drawer{kept: map[string][]byte{}} }

// breaks lets it fail from now on; with nil, no more.
func (d *drawer) breaks(why error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.broken = why
}

func (d *drawer) Load() ([][]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Collect(maps.Values(d.kept)), d.broken
}

func (d *drawer) Save(key string, raw []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.broken == nil {
		d.kept[key] = slices.Clone(raw)
	}
	return d.broken
}

func (d *drawer) Remove(key string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.broken == nil {
		delete(d.kept, key)
	}
	return d.broken
}

func openBook(t interface{ Fatal(...any) }, keeper Keeper) *names {
	n := newNames(flow.NewInventory(), namesKey, keeper)
	if err := n.load(); err != nil {
		t.Fatal(err)
	}
	return n
}

// A name means what it was last set to, the numbers only grow, and a restart
// changes nothing.
func TestNamesOverRestarts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		keeper := newDrawer()
		book := openBook(t, keeper)
		want, seqs := map[string]b3.Address{}, map[string]uint64{}
		name := rapid.SampledFrom([]string{"docs", "maps/eu", "日本", "a"})
		t.Repeat(map[string]func(*rapid.T){
			"set": func(t *rapid.T) {
				n, to := name.Draw(t, "name"), b3.Of([]byte(rapid.String().Draw(t, "content")))
				set, err := book.set(context.Background(), n, to)
				if err != nil || set.Manifest != to || set.Seq <= seqs[n] {
					t.Fatalf("%v %v, after %d", set, err, seqs[n])
				}
				want[n], seqs[n] = to, set.Seq
			},
			"remove": func(t *rapid.T) {
				n := name.Draw(t, "name")
				_, known := want[n]
				err := book.remove(context.Background(), n)
				if known != (err == nil) || !known && fault.KindOf(err) != fault.NotFound {
					t.Fatalf("%v, known: %v", err, known)
				}
				delete(want, n)
				delete(seqs, n)
			},
			"restart": func(t *rapid.T) { book = openBook(t, keeper) },
			"": func(t *rapid.T) {
				if book.count() != len(want) {
					t.Fatalf("%d names, want %d", book.count(), len(want))
				}
				for n, to := range want {
					one, ok := book.lookup(n)
					if !ok || one.Manifest != to || one.Seq != seqs[n] {
						t.Fatalf("%s: %v %v", n, one, ok)
					}
					if _, err := record.DecodeName(one.Encode()); err != nil {
						t.Fatal(err)
					}
				}
			},
		})
	})
}

// What could not be kept was not set.
func TestANameThatCannotBeKept(t *testing.T) {
	keeper := newDrawer()
	book := openBook(t, keeper)
	first, err := book.set(t.Context(), "docs", b3.Of([]byte("one")))
	if err != nil {
		t.Fatal(err)
	}
	keeper.broken = fault.New("test", fault.StoreFull, "the disk is full")
	if _, err := book.set(t.Context(), "docs", b3.Of([]byte("two"))); fault.KindOf(err) != fault.StoreFull {
		t.Error(err)
	}
	if _, err := book.set(t.Context(), "news", b3.Of([]byte("two"))); fault.KindOf(err) != fault.StoreFull {
		t.Error(err)
	}
	if err := book.remove(t.Context(), "docs"); fault.KindOf(err) != fault.StoreFull {
		t.Error(err)
	}
	if now, ok := book.lookup("docs"); !ok || now.Seq != first.Seq {
		t.Errorf("%v %v", now, ok)
	}
	if _, ok := book.lookup("news"); ok {
		t.Error("a name was set that is not kept")
	}
	if err := openErr(keeper); fault.KindOf(err) != fault.StoreFull {
		t.Error(err)
	}
}

func openErr(keeper Keeper) error { return newNames(flow.NewInventory(), namesKey, keeper).load() }

// A damaged record, and one of another key, are left out and told; the others
// are there.
func TestDamagedNames(t *testing.T) {
	keeper := newDrawer()
	if _, err := openBook(t, keeper).set(t.Context(), "docs", b3.Of([]byte("one"))); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	stranger := ed25519.NewKeyFromSeed([]byte("the seed of somebody else, who !"))
	keeper.kept["x"] = []byte("garbage")
	keeper.kept["y"] = record.SignName(stranger, record.Name{Name: "theirs", Manifest: b3.Of(nil), Seq: 1, Issued: now, Expires: now.Add(time.Hour)}).Encode()
	book := newNames(flow.NewInventory(), namesKey, keeper)
	err := book.load()
	if fault.KindOf(err) != fault.IntegrityFail || !strings.Contains(fault.DetailOf(err), "2") || fault.NextOf(err) == "" {
		t.Error(err)
	}
	if _, ok := book.lookup("docs"); !ok || book.count() != 1 {
		t.Errorf("%d names", book.count())
	}
}

// There is an end to names, and those that exist can still be changed then.
func TestTooManyNames(t *testing.T) {
	book := openBook(t, nil)
	for i := range mostNames {
		book.install(record.Name{Name: fmt.Sprint("n", i)})
	}
	if _, err := book.set(t.Context(), "one/more", b3.Of(nil)); fault.KindOf(err) != fault.QuotaExceeded || fault.NextOf(err) == "" {
		t.Error(err)
	}
	if _, err := book.set(t.Context(), "n7", b3.Of(nil)); err != nil {
		t.Error(err)
	}
	if page := book.page("n9998", 10); len(page) != 1 || page[0].Name != "n9999" {
		t.Errorf("%v", page)
	}
	if page := book.page("", 10); len(page) != 10 || page[0].Name != "n0" || page[1].Name != "n1" || page[2].Name != "n10" {
		t.Errorf("%v", page)
	}
}

// Records are signed anew at half of their life, and only those.
func TestNamesAreRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		book := openBook(t, newDrawer())
		old, err := book.set(t.Context(), "old", b3.Of([]byte("old")))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(nameRenew - time.Minute)
		young, _ := book.set(t.Context(), "young", b3.Of([]byte("young")))
		book.published(old)
		time.Sleep(time.Minute)
		if err := book.renew(t.Context()); err != nil {
			t.Fatal(err)
		}
		again, _ := book.lookup("old")
		if again.Seq <= old.Seq || again.Manifest != old.Manifest || time.Until(again.Expires) != nameLife {
			t.Errorf("%v after %v", again, old)
		}
		if same, _ := book.lookup("young"); same.Seq != young.Seq {
			t.Errorf("%v was renewed", same)
		}
		if due := book.unpublished(); len(due) != 2 {
			t.Errorf("to be published: %v", due)
		}
		book.published(old) // an answer that comes late is about a record that does not count any more
		if due := book.unpublished(); len(due) != 2 {
			t.Errorf("to be published: %v", due)
		}
		if err := book.renewOne(old); err != nil {
			t.Error(err)
		}
		if now, _ := book.lookup("old"); now.Seq != again.Seq {
			t.Error("what somebody else had renewed was renewed again")
		}
	})
}

// Nobody waits for the turn longer than he has time, and nobody after the end.
func TestTheTurnOfNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		book := openBook(t, nil)
		if err := book.turn.Enter(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := book.set(ctx, "docs", b3.Of(nil)); fault.KindOf(err) != fault.Timeout {
			t.Error(err)
		}
		if err := book.remove(ctx, "docs"); fault.KindOf(err) != fault.Timeout {
			t.Error(err)
		}
		book.install(record.Name{Name: "old"})
		if err := book.renew(ctx); fault.KindOf(err) != fault.Timeout {
			t.Error(err)
		}
		book.turn.Leave()
		book.close()
		if _, err := book.set(t.Context(), "docs", b3.Of(nil)); !errors.Is(err, flow.ErrClosed) {
			t.Error(err)
		}
		if book.await(t.Context(), time.Hour) {
			t.Error("a publisher goes on after the end")
		}
	})
}
