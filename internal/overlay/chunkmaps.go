package overlay

import (
	"bytes"
	"context"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/chunkmap"
	"micronode/internal/flow"
	"micronode/internal/overlay/stream"
	"micronode/internal/store"
)

// Bounds of the maps of chunks that peers ask for. A map costs as much as to read
// and hash its object: a core makes that of a GiB in two seconds, and it has 1.1 MiB.
const (
	maxMapsMade    = 1        // at a time
	maxMapsWaiting = 8        // objects whose map is to be made
	maxMaps        = 256      // that are kept
	maxMapBytes    = 16 << 20 // of all that are kept, but for the last
	mapWait        = 2 * time.Second
)

const opMap = "overlay.map"

// chunkMaps makes the maps of chunks that peers ask for, and keeps the last ones.
// One that takes longer than a peer waits is made all the same, and there when
// the peer asks again.
type chunkMaps struct {
	// set at construction
	store   store.Opener
	permits *flow.Permits
	run     func(task func(context.Context) error) error

	mu     sync.Mutex //lockblock:leaf list operations
	kept   *simplelru.LRU[b3.Address, []byte]
	bytes  int64 // of all that are kept
	making map[b3.Address]*makingMap
}

// makingMap is a map that is being made.
type makingMap struct {
	done chan struct{} // closed when raw and err are set
	raw  []byte
	err  error
}

func newChunkMaps(inv *flow.Inventory, from store.Opener, run func(task func(context.Context) error) error) *chunkMaps {
	m := &chunkMaps{store: from, run: run, making: map[b3.Address]*makingMap{}, permits: flow.NewPermits(inv, flow.PermitsSpec{
		Service: service, Name: "maps", Cap: maxMapsMade, Waiting: maxMapsWaiting, From: "peers", To: "store",
	})}
	m.kept, _ = simplelru.NewLRU(maxMaps, func(_ b3.Address, raw []byte) { m.bytes -= int64(len(raw)) }) // it fails only without any capacity
	return m
}

// open opens the map of an object for a peer that asks for it. It is NotFound for
// one that is not here, or too small to have one, and NotReady while it is made.
func (m *chunkMaps) open(ctx context.Context, address b3.Address) (stream.Source, error) {
	info, err := m.store.Stat(ctx, address)
	if err != nil {
		return nil, err
	}
	if info.Size < chunkmap.MinObject {
		return nil, fault.New(opMap, fault.NotFound, "%s has only %d bytes", address, info.Size)
	}
	raw, one, err := m.join(address)
	switch {
	case err != nil:
		return nil, err
	case raw != nil:
		return &mapSource{bytes.NewReader(raw)}, nil
	}
	wait := time.NewTimer(mapWait)
	defer wait.Stop()
	select {
	case <-one.done:
		if one.err != nil {
			return nil, one.err
		}
		return &mapSource{bytes.NewReader(one.raw)}, nil
	case <-wait.C:
		return nil, fault.New(opMap, fault.NotReady, "the map of %s is being made", address)
	case <-ctx.Done():
		return nil, flow.Ended(ctx, opMap)
	}
}

// join returns the map of an object if it is kept, or else the one that is being
// made, and starts that if nobody has.
func (m *chunkMaps) join(address b3.Address) ([]byte, *makingMap, error) {
	m.mu.Lock()
	if raw, kept := m.kept.Get(address); kept {
		m.mu.Unlock()
		return raw, nil, nil
	}
	one, begun := m.making[address]
	if !begun {
		one = &makingMap{done: make(chan struct{})}
		m.making[address] = one
	}
	m.mu.Unlock()
	if begun {
		return nil, one, nil
	}
	err := m.run(func(ctx context.Context) error {
		raw, err := m.make(ctx, address)
		m.finish(address, one, raw, err)
		return nil // the peer is told
	})
	if err != nil {
		m.finish(address, one, nil, err)
	}
	return nil, one, err
}

// make makes the map of an object. No peer waits for as long as that may take.
func (m *chunkMaps) make(ctx context.Context, address b3.Address) ([]byte, error) {
	if err := m.permits.Acquire(ctx); err != nil {
		return nil, err
	}
	defer m.permits.Release()
	handle, err := m.store.Open(ctx, address)
	if err != nil {
		return nil, err
	}
	defer func() { _ = handle.Close() }() // it was only read
	chunks, err := chunkmap.Make(ctx, handle, handle.Size())
	if fault.KindOf(err) == fault.QuotaExceeded {
		return nil, fault.New(opMap, fault.NotFound, "%s has too many chunks", address)
	}
	if err != nil {
		return nil, fault.Wrap(opMap, err)
	}
	return chunkmap.Encode(chunks), nil
}

// finish keeps a map that was made, and tells those who wait for it.
func (m *chunkMaps) finish(address b3.Address, one *makingMap, raw []byte, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.making, address)
	if err == nil {
		m.bytes += int64(len(raw))
		m.kept.Add(address, raw)
		for m.bytes > maxMapBytes && m.kept.Len() > 1 {
			m.kept.RemoveOldest()
		}
	}
	one.raw, one.err = raw, err
	close(one.done)
}

// mapSource is a map that is sent to a peer.
type mapSource struct{ *bytes.Reader }

// Close does nothing: the map is memory that others may read, too.
func (*mapSource) Close() error { return nil }
