package s3

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/store"
)

// At the start, what was abandoned more than a day ago is swept away, and
// nothing else.
func TestTheSweep(t *testing.T) {
	bubble(t, func(t *subject) {
		t.fake.plant(folderTemporary+"old", []byte("x"), 25*time.Hour)
		t.fake.plant(folderTemporary+"new", []byte("x"), 23*time.Hour)
		t.fake.plant("else/old", []byte("x"), 25*time.Hour)
		t.fake.mu.Lock()
		for i, key := range []string{folderTemporary + "a", folderData + "b", "else/c"} {
			t.fake.uploads[fmt.Sprint("old", i)] = &pending{key: key, begun: time.Now().Add(-25 * time.Hour)}
			t.fake.uploads[fmt.Sprint("new", i)] = &pending{key: key, begun: time.Now().Add(-23 * time.Hour)}
		}
		t.fake.mu.Unlock()
		t.open(t.line.spec())
		if got := t.fake.under(""); !slices.Equal(got, []string{"else/old", folderTemporary + "new"}) {
			t.Errorf("what is left: %v", got)
		}
		if n := t.fake.unfinished(); n != 4 {
			t.Errorf("%d uploads are left, want 4: three new ones, and one that is not ours", n)
		}
	})
}

// A key that may not sweep is no reason not to start.
func TestASweepThatFails(t *testing.T) {
	bubble(t, func(t *subject) {
		t.fake.plant(folderTemporary+"old", []byte("x"), 25*time.Hour)
		for _, match := range []string{"DELETE", "uploads"} {
			t.fake.times(100, match, status(403, "AccessDenied"))
			t.open(t.line.spec())
		}
	})
}

// What is there is counted at the start, in pages.
func TestTheCount(t *testing.T) {
	bubble(t, func(t *subject) {
		for i := range store.MaxPage + 10 {
			a := b3.Of([]byte(fmt.Sprint(i)))
			t.fake.plant(key(folderData, a), make([]byte, 10), 0)
			if i%2 == 0 {
				t.fake.plant(key(folderPinned, a), nil, 0)
			}
		}
		want := store.Usage{Objects: store.MaxPage + 10, Bytes: 10 * (store.MaxPage + 10), Pinned: 5 * (store.MaxPage + 10)}
		want.Held = want.Bytes
		if got := t.open(t.line.spec()).Usage(); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
		if got := t.store.Usage(); got != (store.Usage{}) {
			t.Errorf("a store that was opened before: %+v", got)
		}
		if err := t.store.Recount(t.Context()); err != nil || t.store.Usage() != want {
			t.Errorf("counted anew: %+v, %v", t.store.Usage(), err)
		}
		t.fake.times(1, "data", status(403, "AccessDenied"))
		t.refused(t.store.Recount(t.Context()), fault.NotReady, "")
	})
}

// What other nodes put is not in the books, but can be deleted.
func TestTheBooksDoNotGoBelowZero(t *testing.T) {
	bubble(t, func(t *subject) {
		here := t.store
		t.store = t.open(t.line.spec())
		a := t.put(sample(1000), store.Pinned)
		if err := here.Delete(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		if u := here.Usage(); u != (store.Usage{}) {
			t.Errorf("%+v", u)
		}
	})
}

// A missing bucket is created if that was asked for; otherwise the command is
// told.
func TestAMissingBucket(t *testing.T) {
	bubble(t, func(t *subject) {
		t.fake.mu.Lock()
		t.fake.missing = true
		t.fake.mu.Unlock()
		spec := t.line.spec()
		_, err := Open(t.Context(), flow.NewInventory(), spec)
		t.refused(err, fault.NotReady, "aws --endpoint-url http://127.0.0.1:1 s3 mb s3://bucket")
		spec.CreateBucket = true
		t.fake.times(1, "PUT /bucket/", status(403, "AccessDenied"))
		_, err = Open(t.Context(), flow.NewInventory(), spec)
		t.refused(err, fault.Unauthorized, "store.access_key")
		t.fake.times(1, "PUT /bucket/", status(409, "BucketAlreadyOwnedByYou"))
		t.open(spec)
		t.fake.meddleWith(nil)
		t.open(spec)
		t.store = t.open(t.line.spec())
		t.put(sample(10), store.Pinned)
	})
}

// All keys of a store lie under its prefix.
func TestThePrefix(t *testing.T) {
	bubble(t, func(t *subject) {
		spec := t.line.spec()
		spec.URL += "/some/place"
		other := t.store
		t.store = t.open(spec)
		a := t.put(sample(1<<20), store.Pinned)
		t.holds(sample(1 << 20))
		if inside, all := t.fake.under("some/place/"), t.fake.under(""); len(inside) != 3 || len(all) != 3 {
			t.Errorf("keys: %v", all)
		}
		if _, err := other.Stat(t.Context(), a); fault.KindOf(err) != fault.NotFound {
			t.Errorf("it can be seen without the prefix: %v", err)
		}
	})
}
