package index

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"micronode/b3"
	"micronode/client"
	"micronode/fault"
	"micronode/internal/chunkmap"
	"micronode/internal/index/record"
	"micronode/internal/oap"
	"micronode/internal/store"
	"micronode/internal/testkit"
)

// versionsOverlay is an overlay whose peers have an object, its tree, and the map
// of its chunks.
type versionsOverlay struct {
	fakeOverlay
	t    *testing.T
	data []byte

	mu    sync.Mutex
	sent  map[oap.View]int // bytes
	asked map[oap.View]int
	maps  func(raw []byte) ([]byte, error) // what is sent as the map; nil: the right one
}

func newVersionsOverlay(t *testing.T, data []byte, peers ...string) *versionsOverlay {
	t.Helper()
	o := &versionsOverlay{t: t, data: data, sent: map[oap.View]int{}, asked: map[oap.View]int{}}
	for _, name := range peers {
		at := providerOf(name)
		at.HTTP = nil
		o.join(name, answersAfter(0, at))
	}
	return o
}

func (o *versionsOverlay) OpenPart(_ context.Context, a b3.Address, _ oap.PeerID, view oap.View, from, length int64) (io.ReadCloser, error) {
	o.mu.Lock()
	o.asked[view]++
	data, maps := o.data, o.maps
	o.mu.Unlock()
	if a != b3.Of(data) {
		return nil, fault.New("test", fault.NotFound, "it has no %s", a)
	}
	switch view {
	case oap.Tree:
		hasher := b3.NewTreeHasher()
		_, _ = hasher.Write(data) // it never fails
		data = hasher.Outboard()
	case oap.Chunks:
		chunks, err := chunkmap.Make(context.Background(), bytes.NewReader(data), int64(len(data)))
		testkit.Must(o.t, err)
		data = chunkmap.Encode(chunks)
		if maps != nil {
			if data, err = maps(data); err != nil {
				return nil, err
			}
		}
	}
	data = data[min(from, int64(len(data))):]
	if length > 0 {
		data = data[:min(length, int64(len(data)))]
	}
	return io.NopCloser(&countedPart{o, view, bytes.NewReader(data)}), nil
}

type countedPart struct {
	overlay *versionsOverlay
	view    oap.View
	from    io.Reader
}

func (c *countedPart) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	c.overlay.mu.Lock()
	defer c.overlay.mu.Unlock()
	c.overlay.sent[c.view] += n
	return n, err
}

func (o *versionsOverlay) total() (n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, one := range o.sent {
		n += one
	}
	return n
}

func randomObject(n int, seed byte) []byte {
	data := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{seed}).Read(data) // it never fails
	return data
}

// twoVersions are two versions of an object: bytes in front, and another MiB far
// behind.
func twoVersions() (older, now []byte) {
	older = randomObject(16<<20, 1)
	return older, slices.Concat([]byte("new"), older[:12<<20], randomObject(1<<20, 2), older[13<<20:])
}

// withLargeStore has room for large objects.
var withLargeStore = withStore(func(store.Store) store.Store { return store.NewRAM(store.RAMSpec{Budget: 128 << 20}) })

func (r *testIndex) hold(data []byte) b3.Address {
	r.t.Helper()
	info, _, err := r.spec.Store.Put(r.t.Context(), bytes.NewReader(data), store.PutOptions{Size: int64(len(data)), Class: store.Cached})
	testkit.Must(r.t, err)
	return info.Address
}

func (r *testIndex) holds(data []byte) {
	r.t.Helper()
	handle, err := r.spec.Store.Open(r.t.Context(), b3.Of(data))
	testkit.Must(r.t, err)
	defer handle.Close()
	var got bytes.Buffer
	_, err = handle.WriteTo(&got)
	if testkit.Must(r.t, err); !bytes.Equal(got.Bytes(), data) {
		r.t.Error("other bytes are stored")
	}
}

// Of a new version of what a name stands for only what differs is fetched, and it
// is told how much that saved.
func TestANewVersionIsFetchedInPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		older, now := twoVersions()
		overlay := newVersionsOverlay(t, now, "ana")
		r := open(t, withLargeStore, withOverlay(overlay))
		r.versions.follows(r.hold(older), b3.Of(now))
		got, err := r.fetchShared(t.Context(), b3.Of(now))
		testkit.Must(t, err)
		r.holds(now)
		// The MiB that differs, and what is around it; the tree, and the map.
		if n := overlay.total(); n > 1<<20+300<<10 || got.copied < 15<<20-200<<10 {
			t.Errorf("%d bytes were sent, %d copied", n, got.copied)
		}
		if n := r.count("index_fetch_copied_bytes_total"); n != float64(got.copied) {
			t.Errorf("%v bytes are counted, %d were copied", n, got.copied)
		}
		if n := r.count("index_fetch_comparisons_total", "result=ok"); n != 1 {
			t.Errorf("%v comparisons are counted", n)
		}
	})
}

// Without an older version, or with one that has nothing in common, no more than
// the object, its tree and 0.3 % move.
func TestNeverMuchMoreThanTheWhole(t *testing.T) {
	for name, older := range map[string][]byte{"none": nil, "nothing in common": randomObject(16<<20, 3), "smaller than those with a map": randomObject(100<<10, 3)} {
		synctest.Test(t, func(t *testing.T) {
			_, now := twoVersions()
			overlay := newVersionsOverlay(t, now, "ana")
			r := open(t, withLargeStore, withOverlay(overlay))
			if older != nil {
				r.versions.follows(r.hold(older), b3.Of(now))
			}
			_, err := r.fetchShared(t.Context(), b3.Of(now))
			testkit.Must(t, err)
			r.holds(now)
			if n := overlay.total(); n > len(now)*101/100 {
				t.Errorf("%s: %d bytes were sent for %d", name, n, len(now))
			}
			if asked := overlay.asked[oap.Chunks]; (asked > 0) != (len(older) > chunkmap.MinObject) {
				t.Errorf("%s: a map was asked for %d times", name, asked)
			}
		})
	}
}

// A map that is too large, of another object, or none at all, costs a moment: the
// next source is asked, or all of the object is fetched. One that is still made is
// waited for.
func TestMapsThatAreWrong(t *testing.T) {
	refused := 0
	for name, c := range map[string]struct {
		maps   func(raw []byte) ([]byte, error)
		result string
	}{
		"of another size": {func(raw []byte) ([]byte, error) { return append([]byte{raw[0] ^ 1}, raw[1:]...), nil }, "refused"},
		"cut":             {func(raw []byte) ([]byte, error) { return raw[:len(raw)/2], nil }, "failed"},
		"too large": {func(raw []byte) ([]byte, error) {
			return append(raw[:8:8], make([]byte, 1<<20)...), nil
		}, "refused"},
		"of an earlier version": {func([]byte) ([]byte, error) { return nil, fault.New("test", fault.Malformed, "no address") }, "failed"},
		"with lengths that lie": {func(raw []byte) ([]byte, error) { return swapped(raw), nil }, "ok"},
		"made while it is asked": {func(raw []byte) ([]byte, error) {
			if refused++; refused < 5 {
				return nil, fault.New("test", fault.NotReady, "a moment")
			}
			return raw, nil
		}, "ok"},
		"never made": {func([]byte) ([]byte, error) { return nil, fault.New("test", fault.Busy, "a moment") }, "failed"},
	} {
		synctest.Test(t, func(t *testing.T) {
			older, now := twoVersions()
			overlay := newVersionsOverlay(t, now, "ana")
			overlay.maps = c.maps
			r := open(t, withLargeStore, withOverlay(overlay))
			r.versions.follows(r.hold(older), b3.Of(now))
			began := time.Now()
			_, err := r.fetchShared(t.Context(), b3.Of(now))
			testkit.Must(t, err)
			r.holds(now)
			if took := time.Since(began); took > 2*comparisonTime {
				t.Errorf("%s: it took %s", name, took)
			}
			if n := overlay.sent[oap.Chunks]; int64(n) > chunkmap.Limit(int64(len(now)))+256<<10 {
				t.Errorf("%s: %d bytes of a map were read", name, n)
			}
			if n := r.count("index_fetch_comparisons_total", "result="+c.result); n != 1 {
				t.Errorf("%s: it is not counted as %s", name, c.result)
			}
			if n := r.count("index_fetch_lies_total"); n != 0 {
				t.Errorf("%s: %v lies are counted, and a map is only a hint", name, n)
			}
		})
	}
}

// swapped swaps the hashes of neighbours: what they hint at is wrong.
func swapped(raw []byte) []byte {
	raw = slices.Clone(raw)
	for at := 8; at+20 <= len(raw); at += 20 {
		for i := range 8 {
			raw[at+i], raw[at+10+i] = raw[at+10+i], raw[at+i]
		}
	}
	return raw
}

// A comparison has time in proportion to the object, however large that is.
func TestTheTimeOfAComparison(t *testing.T) {
	for size, want := range map[int64]time.Duration{1 << 20: 5 * time.Second, 1 << 30: 25 * time.Second, maxProvenBytes: 332 * time.Second} {
		if got := comparisonTimeout(size); got != want {
			t.Errorf("%d bytes have %s, want %s", size, got, want)
		}
	}
}

// What an older version is is known from names and from the paths in folders, and
// after a restart from the log of others' names. Versions that were never here are
// passed over.
func TestWhichVersionIsOlder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, withLargeStore)
		data := [][]byte{randomObject(2<<20, 1), randomObject(2<<20, 2), randomObject(2<<20, 3)}
		want := func(now, before b3.Address) {
			t.Helper()
			if got, here := r.olderHere(t.Context(), now); here != !before.IsZero() || got != before {
				t.Errorf("before %s was %s (%t), want %s", now, got, here, before)
			}
		}
		first, second, third := r.hold(data[0]), b3.Of(data[1]), b3.Of(data[2])
		r.versions.means("docs", first)
		want(second, b3.Address{})
		r.versions.means("docs", second)
		want(second, first)
		r.versions.means("docs", third)
		want(third, first) // the second was never here
		r.versions.means("docs", first)
		want(first, b3.Address{}) // a circle

		folder := func(files ...[]byte) b3.Address {
			var m client.Manifest
			for i, one := range files {
				m.Entries = append(m.Entries, client.Entry{Path: fmt.Sprint(i), B3: b3.Of(one), Size: int64(len(one)), Type: "text/plain"})
			}
			raw, err := m.Encode()
			testkit.Must(t, err)
			return r.hold(raw)
		}
		other := randomObject(2<<20, 4)
		before, now := folder(data[0], []byte("small")), folder(other, []byte("other"), data[1])
		r.versions.follows(before, now)
		want(b3.Of(other), first)
		want(b3.Of([]byte("other")), b3.Address{})
	})
	path := t.TempDir() + "/seen"
	for i := range 2 {
		var moved []b3.Address
		s, err := openSeenRecords(path, func(before, now b3.Address) { moved = append(moved, before, now) })
		testkit.Must(t, err)
		if i == 0 {
			now := time.Now()
			for seq, text := range []string{"older", "newer", "newer"} {
				one := record.SignName(keyOfNode("ana"), record.Name{Name: "docs", Manifest: address(text), Seq: uint64(seq + 1), Issued: now, Expires: now.Add(time.Hour)})
				testkit.Must(t, s.add(t.Context(), &one))
			}
		}
		if !slices.Equal(moved, []b3.Address{address("older"), address("newer")}) {
			t.Errorf("%v was told", moved)
		}
		testkit.Must(t, s.close())
	}
}
