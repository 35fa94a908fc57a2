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
	"micronode/internal/testkit"
)

var namesKey = ed25519.NewKeyFromSeed([]byte("the seed of a node of the tests!"))

// fakeNameStore is a NameStore in memory that can fail.
type fakeNameStore struct {
	mu     sync.Mutex
	kept   map[string][]byte
	broken error
}

func newFakeNameStore() *fakeNameStore { return &fakeNameStore{kept: map[string][]byte{}} }

// setError makes it fail from now on; with nil, no more.
func (f *fakeNameStore) setError(why error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.broken = why
}

func (f *fakeNameStore) Load() ([][]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Collect(maps.Values(f.kept)), f.broken
}

func (f *fakeNameStore) Save(key string, raw []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.broken == nil {
		f.kept[key] = slices.Clone(raw)
	}
	return f.broken
}

func (f *fakeNameStore) Remove(key string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.broken == nil {
		delete(f.kept, key)
	}
	return f.broken
}

func openNames(t testkit.T, keeper NameStore) *names {
	n := newNames(flow.NewInventory(), namesKey, keeper)
	testkit.Must(t, n.load())
	return n
}

// A name has the manifest that was last set, sequence numbers only grow, and a
// restart changes nothing.
func TestNamesOverRestarts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		keeper := newFakeNameStore()
		book := openNames(t, keeper)
		want, seqs := map[string]b3.Address{}, map[string]uint64{}
		name := rapid.SampledFrom([]string{"docs", "maps/eu", "日本", "a"})
		t.Repeat(map[string]func(*rapid.T){
			"set": func(t *rapid.T) {
				n, to := name.Draw(t, "name"), b3.Of([]byte(rapid.String().Draw(t, "content")))
				set, err := book.set(context.Background(), n, to, nil, nil)
				if err != nil || set.Manifest != to || set.Seq <= seqs[n] {
					t.Fatalf("%v %v, after %d", set, err, seqs[n])
				}
				want[n], seqs[n] = to, set.Seq
			},
			"remove": func(t *rapid.T) {
				n := name.Draw(t, "name")
				_, known := want[n]
				err := book.remove(context.Background(), n, nil)
				if known != (err == nil) || !known && fault.KindOf(err) != fault.NotFound {
					t.Fatalf("%v, known: %v", err, known)
				}
				delete(want, n)
				delete(seqs, n)
			},
			"restart": func(t *rapid.T) { book = openNames(t, keeper) },
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

// A name that could not be stored was not set.
func TestANameThatCannotBeKept(t *testing.T) {
	keeper := newFakeNameStore()
	book := openNames(t, keeper)
	first, err := book.set(t.Context(), "docs", b3.Of([]byte("one")), nil, nil)
	testkit.Must(t, err)
	keeper.broken = fault.New("test", fault.StoreFull, "the disk is full")
	if _, err := book.set(t.Context(), "docs", b3.Of([]byte("two")), nil, nil); fault.KindOf(err) != fault.StoreFull {
		t.Error(err)
	}
	if _, err := book.set(t.Context(), "news", b3.Of([]byte("two")), nil, nil); fault.KindOf(err) != fault.StoreFull {
		t.Error(err)
	}
	if err := book.remove(t.Context(), "docs", nil); fault.KindOf(err) != fault.StoreFull {
		t.Error(err)
	}
	if now, ok := book.lookup("docs"); !ok || now.Seq != first.Seq {
		t.Errorf("%v %v", now, ok)
	}
	if _, ok := book.lookup("news"); ok {
		t.Error("a name was set that is not kept")
	}
	if err := openNamesErr(keeper); fault.KindOf(err) != fault.StoreFull {
		t.Error(err)
	}
}

func openNamesErr(keeper NameStore) error {
	return newNames(flow.NewInventory(), namesKey, keeper).load()
}

// A damaged record, and one of another key, are skipped and reported; the
// others are loaded.
func TestDamagedNames(t *testing.T) {
	keeper := newFakeNameStore()
	if _, err := openNames(t, keeper).set(t.Context(), "docs", b3.Of([]byte("one")), nil, nil); err != nil {
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

// The number of names is limited, and existing ones can still be changed then.
func TestTooManyNames(t *testing.T) {
	book := openNames(t, nil)
	for i := range maxNames {
		book.install(record.Name{Name: fmt.Sprint("n", i)})
	}
	if _, err := book.set(t.Context(), "one/more", b3.Of(nil), nil, nil); fault.KindOf(err) != fault.QuotaExceeded || fault.NextOf(err) == "" {
		t.Error(err)
	}
	if _, err := book.set(t.Context(), "n7", b3.Of(nil), nil, nil); err != nil {
		t.Error(err)
	}
	if page := book.page("n9998", 10); len(page) != 1 || page[0].Name != "n9999" {
		t.Errorf("%v", page)
	}
	if page := book.page("", 10); len(page) != 10 || page[0].Name != "n0" || page[1].Name != "n1" || page[2].Name != "n10" {
		t.Errorf("%v", page)
	}
}

// Records are renewed at half of their lifetime, and only those.
func TestNamesAreRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		book := openNames(t, newFakeNameStore())
		old, err := book.set(t.Context(), "old", b3.Of([]byte("old")), nil, nil)
		testkit.Must(t, err)
		time.Sleep(nameRenewAfter - time.Minute)
		young, _ := book.set(t.Context(), "young", b3.Of([]byte("young")), nil, nil)
		book.markPublished(old)
		time.Sleep(time.Minute)
		testkit.Must(t, book.renew(t.Context()))
		again, _ := book.lookup("old")
		if again.Seq <= old.Seq || again.Manifest != old.Manifest || time.Until(again.Expires) != nameTTL {
			t.Errorf("%v after %v", again, old)
		}
		if same, _ := book.lookup("young"); same.Seq != young.Seq {
			t.Errorf("%v was renewed", same)
		}
		if due := book.unpublished(); len(due) != 2 {
			t.Errorf("to be published: %v", due)
		}
		book.markPublished(old) // a late acknowledgement is about an outdated record
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

// A caller waits for the lane until its deadline at most, and not at all after
// close.
func TestTheTurnOfNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		book := openNames(t, nil)
		testkit.Must(t, book.writeLane.Enter(t.Context()))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := book.set(ctx, "docs", b3.Of(nil), nil, nil); fault.KindOf(err) != fault.Timeout {
			t.Error(err)
		}
		if err := book.remove(ctx, "docs", nil); fault.KindOf(err) != fault.Timeout {
			t.Error(err)
		}
		book.install(record.Name{Name: "old"})
		if err := book.renew(ctx); fault.KindOf(err) != fault.Timeout {
			t.Error(err)
		}
		book.writeLane.Leave()
		book.close()
		if _, err := book.set(t.Context(), "docs", b3.Of(nil), nil, nil); !errors.Is(err, flow.ErrClosed) {
			t.Error(err)
		}
		if book.waitChanged(t.Context(), time.Hour) {
			t.Error("a publisher goes on after the end")
		}
	})
}
