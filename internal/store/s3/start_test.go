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

// At the start, uploads that were abandoned more than a day ago are removed,
// and nothing else.
func TestTheSweep(t *testing.T) {
	bubble(t, func(t *subject) {
		t.fake.putDirectly(folderTemporary+"old", []byte("x"), 25*time.Hour)
		t.fake.putDirectly(folderTemporary+"new", []byte("x"), 23*time.Hour)
		t.fake.putDirectly("else/old", []byte("x"), 25*time.Hour)
		t.fake.mu.Lock()
		for i, key := range []string{folderTemporary + "a", folderData + "b", "else/c"} {
			t.fake.uploads[fmt.Sprint("old", i)] = &fakeUpload{key: key, begun: time.Now().Add(-25 * time.Hour)}
			t.fake.uploads[fmt.Sprint("new", i)] = &fakeUpload{key: key, begun: time.Now().Add(-23 * time.Hour)}
		}
		t.fake.mu.Unlock()
		t.open(t.listener.spec())
		if got := t.fake.under(""); !slices.Equal(got, []string{"else/old", folderTemporary + "new"}) {
			t.Errorf("what is left: %v", got)
		}
		if n := t.fake.unfinished(); n != 4 {
			t.Errorf("%d uploads are left, want 4: three new ones, and one that is not ours", n)
		}
	})
}

// An access key without permission to clean up does not prevent the start.
func TestASweepThatFails(t *testing.T) {
	bubble(t, func(t *subject) {
		t.fake.putDirectly(folderTemporary+"old", []byte("x"), 25*time.Hour)
		for _, match := range []string{"DELETE", "uploads"} {
			t.fake.interceptTimes(100, match, status(403, "AccessDenied"))
			t.open(t.listener.spec())
		}
	})
}

// Existing objects are counted at the start, in pages.
func TestTheCount(t *testing.T) {
	bubble(t, func(t *subject) {
		for i := range store.MaxPage + 10 {
			a := b3.Of([]byte(fmt.Sprint(i)))
			t.fake.putDirectly(key(folderData, a), make([]byte, 10), 0)
			if i%2 == 0 {
				t.fake.putDirectly(key(folderPinned, a), nil, 0)
			}
		}
		want := store.Usage{Objects: store.MaxPage + 10, Bytes: 10 * (store.MaxPage + 10), Pinned: 5 * (store.MaxPage + 10)}
		want.Held = want.Bytes
		if got := t.open(t.listener.spec()).Usage(); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
		if got := t.store.Usage(); got != (store.Usage{}) {
			t.Errorf("a store that was opened before: %+v", got)
		}
		if err := t.store.Recount(t.Context()); err != nil || t.store.Usage() != want {
			t.Errorf("counted anew: %+v, %v", t.store.Usage(), err)
		}
		t.fake.interceptTimes(1, "data", status(403, "AccessDenied"))
		t.wantRefused(t.store.Recount(t.Context()), fault.NotReady, "")
	})
}

// What other nodes put is not in the totals, but can be deleted.
func TestUsageIsNeverNegative(t *testing.T) {
	bubble(t, func(t *subject) {
		here := t.store
		t.store = t.open(t.listener.spec())
		a := t.put(sampleBody(1000), store.Pinned)
		if err := here.Delete(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		if u := here.Usage(); u != (store.Usage{}) {
			t.Errorf("%+v", u)
		}
	})
}

// A missing bucket is created if that was requested; otherwise the error names
// the command.
func TestAMissingBucket(t *testing.T) {
	bubble(t, func(t *subject) {
		t.fake.mu.Lock()
		t.fake.missing = true
		t.fake.mu.Unlock()
		spec := t.listener.spec()
		_, err := Open(t.Context(), flow.NewInventory(), spec)
		t.wantRefused(err, fault.NotReady, "aws --endpoint-url http://127.0.0.1:1 s3 mb s3://bucket")
		spec.CreateBucket = true
		t.fake.interceptTimes(1, "PUT /bucket/", status(403, "AccessDenied"))
		_, err = Open(t.Context(), flow.NewInventory(), spec)
		t.wantRefused(err, fault.Unauthorized, "store.access_key")
		t.fake.interceptTimes(1, "PUT /bucket/", status(409, "BucketAlreadyOwnedByYou"))
		t.open(spec)
		t.fake.setIntercept(nil)
		t.open(spec)
		t.store = t.open(t.listener.spec())
		t.put(sampleBody(10), store.Pinned)
	})
}

// All keys of a store are under its prefix.
func TestThePrefix(t *testing.T) {
	bubble(t, func(t *subject) {
		spec := t.listener.spec()
		spec.URL += "/some/place"
		other := t.store
		t.store = t.open(spec)
		a := t.put(sampleBody(1<<20), store.Pinned)
		t.wantHeld(sampleBody(1 << 20))
		if inside, all := t.fake.under("some/place/"), t.fake.under(""); len(inside) != 3 || len(all) != 3 {
			t.Errorf("keys: %v", all)
		}
		if _, err := other.Stat(t.Context(), a); fault.KindOf(err) != fault.NotFound {
			t.Errorf("it can be seen without the prefix: %v", err)
		}
	})
}
