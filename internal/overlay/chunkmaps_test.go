package overlay

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/chunkmap"
	"micronode/internal/flow"
	"micronode/internal/oap"
	"micronode/internal/store"
	"micronode/internal/testkit"
)

// A peer gets the map of an object's chunks; there is none of one that is small,
// or not here.
func TestMapsOfChunksComeOverTheOverlay(t *testing.T) {
	a, b := startNode(t, func(*Spec) {}), startNode(t, func(*Spec) {})
	connectNodes(t, a, b)
	data := make([]byte, 3<<20)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(data) // it never fails
	put := func(data []byte) b3.Address {
		info, _, err := a.store.Put(t.Context(), bytes.NewReader(data), store.PutOptions{Size: int64(len(data))})
		testkit.Must(t, err)
		return info.Address
	}
	large, small := put(data), put(data[:chunkmap.MinObject-1])
	want, err := chunkmap.Make(t.Context(), bytes.NewReader(data), int64(len(data)))
	testkit.Must(t, err)
	for range 2 { // the second is kept
		body, err := b.OpenPart(t.Context(), large, a.ID(), oap.Chunks, 0, 0)
		testkit.Must(t, err)
		got, err := chunkmap.Read(body, int64(len(data)))
		if testkit.Must(t, err); !slices.Equal(got, want) {
			t.Errorf("%d chunks came, want %d", len(got), len(want))
		}
		testkit.Must(t, body.Close())
	}
	for _, none := range []b3.Address{small, b3.Of([]byte("absent"))} {
		body, err := b.OpenPart(t.Context(), none, a.ID(), oap.Chunks, 0, 0)
		if err == nil {
			_, err = io.ReadAll(body)
			testkit.Must(t, body.Close())
		}
		testkit.WantKind(t, err, fault.NotFound)
	}
}

// slowStore has one object, and takes its time.
type slowStore struct {
	store.Store
	opened chan struct{} // one for each object that may be opened
	opens  int
}

func (s *slowStore) Open(ctx context.Context, a b3.Address) (store.Handle, error) {
	select {
	case <-s.opened:
		s.opens++
	case <-ctx.Done():
		return nil, flow.Ended(ctx, "test")
	}
	return s.Store.Open(ctx, a)
}

// A map that takes longer than a peer waits is NotReady, is made once for all who
// ask, and is there later. Those that were not asked for lately are dropped.
func TestAMapThatTakesLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := store.NewRAM(store.RAMSpec{Budget: 64 << 20})
		slow := &slowStore{Store: inner, opened: make(chan struct{})}
		tasks := make(chan error, 10)
		m := newChunkMaps(flow.NewInventory(), slow, func(task func(context.Context) error) error {
			go func() { tasks <- task(t.Context()) }()
			return nil
		})
		info, _, err := inner.Put(t.Context(), bytes.NewReader(make([]byte, 2<<20)), store.PutOptions{Size: 2 << 20})
		testkit.Must(t, err)
		for range 3 {
			_, err := m.open(t.Context(), info.Address)
			testkit.WantKind(t, err, fault.NotReady)
		}
		slow.opened <- struct{}{}
		testkit.Must(t, <-tasks)
		source, err := m.open(t.Context(), info.Address)
		if testkit.Must(t, err); source.Size() < 8 || slow.opens != 1 {
			t.Errorf("%d bytes, the object was opened %d times", source.Size(), slow.opens)
		}
		testkit.Must(t, source.Close())

		m.finish(b3.Of(nil), &makingMap{done: make(chan struct{})}, make([]byte, maxMapBytes), nil)
		if m.kept.Len() != 1 || m.bytes != maxMapBytes {
			t.Errorf("%d maps of %d bytes are kept", m.kept.Len(), m.bytes)
		}
	})
}
