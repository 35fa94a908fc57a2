package store

import (
	"bytes"
	"context"
	"io"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/testkit"
)

// numbered makes content that no other number and size gives.
func numbered(n, size int) []byte {
	data := bytes.Repeat([]byte{byte(n)}, size)
	for i := 0; i < 4 && i < size; i++ {
		data[i] = byte(n >> (8 * i))
	}
	return data
}

func mustPut(t testing.TB, r Putter, data []byte, class Class) b3.Address {
	t.Helper()
	info, _, err := r.Put(context.Background(), bytes.NewReader(data), PutOptions{Size: int64(len(data)), Class: class})
	if err != nil {
		t.Fatalf("put of %d bytes: %v", len(data), err)
	}
	return info.Address
}

// audit counts everything one by one and compares it with the running totals.
// Nothing may be running, and the open handles must be given.
func audit(t interface {
	Helper()
	Errorf(string, ...any)
}, r *RAM, open ...Handle) {
	t.Helper()
	live := map[*object]bool{}
	var objects, size, cached int64
	for i := range r.shards {
		s := &r.shards[i]
		for _, o := range s.objects {
			live[o] = true
			objects++
			size += o.size
			if o.class == Cached {
				cached += o.cost()
				if s.ring[o.ringIndex] != o {
					t.Errorf("shard %d: a cached object is not at its place in the ring", i)
				}
			} else if slices.Contains(s.ring, o) {
				t.Errorf("shard %d: a pinned object is in the ring", i)
			}
		}
	}
	for _, h := range open {
		live[h.(*ramHandle).object] = true
	}
	var held, memory int64
	for o := range live {
		held += o.cost()
		if len(o.blocks) <= 1 {
			memory += objectOverhead
		}
		for _, block := range o.blocks {
			memory += int64(cap(block))
		}
	}
	u := r.Usage()
	if u.Objects != objects || u.Bytes != size || u.Held != held || r.cached.Load() != cached {
		t.Errorf("objects %d, bytes %d, held %d, cached %d; the totals say %+v and %d", objects, size, held, cached, u, r.cached.Load())
	}
	if idle := idleBytes(&r.slabs); u.Idle != idle || r.slabs.memory.Load() != memory+idle {
		t.Errorf("memory %d, idle %d; the totals say %d and %d", memory+idle, idle, r.slabs.memory.Load(), u.Idle)
	}
	if held != memory {
		t.Errorf("%d of the budget are taken for %d of memory", held, memory)
	}
	if u.Held > u.Budget || r.slabs.memory.Load() > u.Budget {
		t.Errorf("held %d, memory %d, budget %d", u.Held, r.slabs.memory.Load(), u.Budget)
	}
}

// Whatever is done, in whatever order: after each step every byte is accounted
// for, once.
func TestTheTotalsAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := NewRAM(RAMSpec{Budget: 8 * slabSize, Zero: rapid.Bool().Draw(t, "zero")})
		var open []Handle
		ctx := context.Background()
		// Sizes around which something changes, and a few numbers, so that the
		// same object comes again.
		drawn := func(t *rapid.T) []byte {
			size := rapid.SampledFrom([]int{0, 1, 256, 257, 4095, 4096, 4097, 30_000, slabSize - 1, slabSize, slabSize + 1, 2 * slabSize, 3*slabSize + 5, 6 * slabSize}).Draw(t, "size")
			return numbered(rapid.IntRange(0, 3).Draw(t, "number"), size)
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) { audit(t, r, open...) },
			"put": func(t *rapid.T) {
				data := drawn(t)
				opt := PutOptions{Size: int64(len(data)), Class: Class(rapid.IntRange(0, 1).Draw(t, "class"))}
				var src io.Reader = bytes.NewReader(data)
				if rapid.Bool().Draw(t, "unknown") {
					opt.Size = Unknown
				}
				if rapid.IntRange(0, 4).Draw(t, "fails") == 0 {
					src = io.MultiReader(src, iotest.ErrReader(io.ErrUnexpectedEOF))
				}
				_, _, err := r.Put(ctx, src, opt)
				if kind := fault.KindOf(err); err != nil && kind != fault.StoreFull && kind != fault.BrokenPipe {
					t.Fatalf("put: %v", err)
				}
			},
			"open": func(t *rapid.T) {
				if h, err := r.Open(ctx, b3.Of(drawn(t))); err == nil {
					open = append(open, h)
				}
			},
			"close": func(t *rapid.T) {
				if len(open) > 0 {
					_ = open[0].Close()
					open = open[1:]
				}
			},
			"delete": func(t *rapid.T) { _ = r.Delete(ctx, b3.Of(drawn(t))) },
			"pin":    func(t *rapid.T) { _ = r.Pin(ctx, b3.Of(drawn(t))) },
			"unpin":  func(t *rapid.T) { _ = r.Unpin(ctx, b3.Of(drawn(t))) },
			"trim":   func(t *rapid.T) { r.Trim() },
		})
		_ = r.Close()
		audit(t, r, open...)
		for _, h := range open {
			_ = h.Close()
		}
		audit(t, r)
		if r.slabs.memory.Load() != 0 || r.Usage().Held != 0 {
			t.Errorf("a closed store without handles has %d bytes of memory and holds %d", r.slabs.memory.Load(), r.Usage().Held)
		}
	})
}

// The same with many goroutines at once. The memory is checked all the time.
func TestTheTotalsAgreeUnderLoad(t *testing.T) {
	r := NewRAM(RAMSpec{Budget: 16 * slabSize})
	ctx := context.Background()
	sizes := []int{0, 1, 3000, 20_000, slabSize, slabSize + 1, 3 * slabSize}
	var all sync.WaitGroup
	for worker := range 8 {
		all.Go(func() {
			for i := range 400 {
				data := numbered(i*7%13, sizes[(i+worker)%len(sizes)])
				switch (i + worker) % 5 {
				case 0, 1, 2:
					opt := PutOptions{Size: int64(len(data)), Class: Class(i % 2)}
					if worker%2 == 0 {
						opt.Size = Unknown
					}
					_, _, _ = r.Put(ctx, bytes.NewReader(data), opt)
				case 3:
					if h, err := r.Open(ctx, b3.Of(data)); err == nil {
						defer h.Close() // some stay open to the end
					}
				default:
					_ = r.Delete(ctx, b3.Of(data))
				}
				if memory, held := r.slabs.memory.Load(), r.budget.held.Load(); memory > r.slabs.limit || held > r.budget.limit {
					t.Errorf("memory %d, held %d, budget %d", memory, held, r.budget.limit)
					return
				}
			}
		})
	}
	all.Wait()
	audit(t, r)
	_ = r.Close()
	if r.slabs.memory.Load() != 0 || r.Usage() != (Usage{Budget: r.budget.limit}) {
		t.Errorf("a closed store: memory %d, %+v", r.slabs.memory.Load(), r.Usage())
	}
}

// zeros is a body of n bytes that takes no memory.
type zeros struct{ n int64 }

func (z *zeros) Read(p []byte) (int, error) {
	if z.n == 0 {
		return 0, io.EOF
	}
	n := min(int64(len(p)), z.n)
	clear(p[:n])
	z.n -= n
	return int(n), nil
}

// A body of 1 GiB of unknown size into the default store: it is rejected when
// the budget is used up, and not a slab more is allocated.
func TestAGiganticBodyTakesNoMoreThanTheBudget(t *testing.T) {
	spec := DefaultConfig()
	r := NewRAM(spec.RAMSpec(false))
	defer r.Close()
	memory := testkit.WatchMemory()
	body := &zeros{n: 1 << 30}
	_, _, err := r.Put(context.Background(), body, PutOptions{Size: Unknown})
	if fault.KindOf(err) != fault.StoreFull {
		t.Fatalf("1 GiB into 256 MiB: %v", err)
	}
	if read := int64(1<<30) - body.n; read > 256<<20+1 {
		t.Errorf("%d bytes were read for a budget of 256 MiB", read)
	}
	if slabs := r.Usage().Idle / slabSize; slabs > 256<<20/slabSize || r.slabs.memory.Load() != r.Usage().Idle {
		t.Errorf("%d slabs were made for a budget of %d, memory %d", slabs, 256<<20/slabSize, r.slabs.memory.Load())
	}
	if grown := memory.Grown(); grown > 280<<20 {
		t.Errorf("the heap has grown by %d MiB", grown>>20)
	}

	body = &zeros{n: 1 << 30}
	if _, _, err := r.Put(context.Background(), body, PutOptions{Size: 1 << 30}); fault.KindOf(err) != fault.StoreFull || body.n != 1<<30 {
		t.Errorf("a declared GiB: %v, after %d bytes", err, 1<<30-body.n)
	}
	r.Trim()
	r.Trim()
	if grown := memory.Grown(); grown > 16<<20 {
		t.Errorf("%d MiB are left on the heap after the idle memory was given back", grown>>20)
	}
}

// The charge for bookkeeping covers its cost. Otherwise a store full of tiny
// objects would be larger than its budget.
func TestBookkeepingIsPaidFor(t *testing.T) {
	memory := testkit.WatchMemory()
	r := NewRAM(RAMSpec{Budget: 64 << 20})
	for i := range 60_000 {
		mustPut(t, r, numbered(i, 8), Class(i%2))
	}
	grown, held := memory.Grown(), r.Usage().Held
	if grown > held*11/10 {
		t.Errorf("%d bytes are held, and the heap has grown by %d", held, grown)
	}
	for info, err := range Walk(context.Background(), r) {
		if err != nil || r.Delete(context.Background(), info.Address) != nil {
			t.Fatalf("delete: %v", err)
		}
	}
	r.slabs.close()
	if left := memory.Grown(); left > 2<<20 {
		t.Errorf("%d bytes are left of an empty store", left)
	}
	runtime.KeepAlive(r)
}

func TestManyHalfFinishedPutsTakeTheirBytesAndNoMore(t *testing.T) {
	r := NewRAM(RAMSpec{Budget: 32 << 20})
	defer r.Close()
	memory := testkit.WatchMemory()
	const bodies = 200
	ctx, cancel := context.WithCancel(context.Background())
	var arrived, all sync.WaitGroup
	arrived.Add(bodies)
	stop := make(chan struct{})
	for range bodies {
		all.Go(func() {
			_, _, err := r.Put(ctx, io.MultiReader(&zeros{n: 100_000}, &blockingReader{arrived: &arrived, stop: stop}), PutOptions{Size: 110_000})
			if fault.KindOf(err) != fault.Canceled {
				t.Errorf("half-finished: %v", err)
			}
		})
	}
	arrived.Wait()
	if grown, blocks := memory.Grown(), r.slabs.memory.Load(); grown > blocks*12/10+bodies*64<<10 { // each has a stack, too
		t.Errorf("%d puts are half done; they have %d bytes of blocks, and memory has grown by %d", bodies, blocks, grown)
	}
	cancel()
	close(stop)
	all.Wait()
	audit(t, r)
}

// blockingReader signals that it was reached, and blocks until it is released.
type blockingReader struct {
	arrived *sync.WaitGroup
	stop    chan struct{}
}

func (r *blockingReader) Read(b []byte) (int, error) {
	r.arrived.Done()
	<-r.stop
	return copy(b, "x"), nil
}
