package transfer

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/oap"
	"micronode/internal/store"
	"micronode/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// object is an object, and its tree.
type object struct {
	data    []byte
	address b3.Address
	tree    b3.Outboard
}

func newObject(size int) object {
	data := make([]byte, size)
	random := rand.NewChaCha8([32]byte{byte(size)})
	_, _ = random.Read(data) // it never fails
	hasher := b3.NewTreeHasher()
	_, _ = hasher.Write(data) // it never fails
	return object{data, hasher.Sum(), hasher.Outboard()}
}

// sender is a source of a test.
type sender struct {
	object
	id    string
	speed int                        // bytes a second; 0 is at once
	sent  atomic.Int64               // bytes
	wrong func(at int64) bool        // which bytes it changes
	fails func(from, at int64) error // why it breaks off before a byte
	down  *line                      // all senders together send no faster; nil for no such limit
	opens atomic.Int64
}

func (s *sender) source() Source {
	return Source{ID: s.id, Label: s.id, Open: func(ctx context.Context, from, length int64) (io.ReadCloser, error) {
		s.opens.Add(1)
		if s.fails != nil {
			if err := s.fails(from, from); err != nil {
				return nil, err
			}
		}
		return &sending{sender: s, ctx: ctx, from: from, at: from, end: min(from+length, int64(len(s.data)))}, nil
	}}
}

// sending is a part that is being sent, a KiB or a group at a time.
type sending struct {
	*sender
	ctx           context.Context
	from, at, end int64
}

func (s *sending) Read(p []byte) (int, error) {
	if s.at == s.end {
		return 0, io.EOF
	}
	if s.fails != nil {
		if err := s.fails(s.from, s.at); err != nil {
			return 0, err
		}
	}
	n := copy(p, s.data[s.at:min(s.end, s.at+16<<10)])
	if s.speed > 0 {
		if err := flow.Sleep(s.ctx, time.Duration(n)*time.Second/time.Duration(s.speed)); err != nil {
			return 0, flow.Ended(s.ctx, "test")
		}
	}
	if s.down != nil {
		if err := s.down.await(s.ctx, n); err != nil {
			return 0, err
		}
	}
	for i := range p[:n] {
		if s.wrong != nil && s.wrong(s.at+int64(i)) {
			p[i] ^= 1
		}
	}
	s.at += int64(n)
	s.sent.Add(int64(n))
	return n, nil
}

func (s *sending) Close() error { return nil }

// line is a limit of the node that receives: bytes wait in line for it, so many
// of them in a second.
type line struct {
	speed int

	mu   sync.Mutex
	free time.Time // when it is the turn of the next one
}

func (l *line) await(ctx context.Context, n int) error {
	l.mu.Lock()
	now := time.Now()
	if l.free.Before(now) {
		l.free = now
	}
	l.free = l.free.Add(time.Duration(n) * time.Second / time.Duration(l.speed))
	wait := l.free.Sub(now)
	l.mu.Unlock()
	if flow.Sleep(ctx, wait) != nil {
		return flow.Ended(ctx, "test")
	}
	return nil
}

// silent never sends anything from an offset on.
func silent(ctx context.Context, s *sender, from int64) Source {
	plain := s.source()
	return Source{ID: s.id, Label: s.id, Open: func(own context.Context, at, length int64) (io.ReadCloser, error) {
		if at < from {
			return plain.Open(own, at, length)
		}
		<-own.Done()
		return nil, flow.Ended(own, "test")
	}}
}

// fixture runs transfers in a bubble.
type fixture struct {
	t      *testing.T
	tasks  sync.WaitGroup
	mu     sync.Mutex
	failed map[string]fault.Kind
}

func (f *fixture) spec(o object, sources ...Source) Spec {
	f.failed = map[string]fault.Kind{}
	return Spec{
		Address: o.address, Size: int64(len(o.data)), Tree: o.tree, Sources: sources, Patience: 30 * time.Second, Arrival: new(store.Arrival),
		Go: func(task func(context.Context) error) error {
			f.tasks.Go(func() { _ = task(context.Background()) }) // its error is that of the transfer
			return nil
		},
		Failed: func(s Source, _ int64, err error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.failed[s.ID] = fault.KindOf(err)
		},
	}
}

// fetch fetches an object, and returns what it read and why it ended.
func (f *fixture) fetch(spec Spec) ([]byte, error) {
	f.t.Helper()
	t, err := New(f.t.Context(), spec)
	testkit.Must(f.t, err)
	got, err := io.ReadAll(t)
	testkit.Must(f.t, t.Close())
	f.tasks.Wait()
	return got, err
}

func bubble(t *testing.T, run func(t *testing.T, f *fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { run(t, &fixture{t: t}) })
}

// Four sources at the same speed send a quarter each, in a quarter of the time.
func TestAllSendAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		o := newObject(16 << 20)
		var senders []*sender
		var sources []Source
		for _, id := range []string{"a", "b", "c", "d"} {
			s := &sender{object: o, id: id, speed: 1 << 20} // by each of its lanes
			senders, sources = append(senders, s), append(sources, s.source())
		}
		began := time.Now()
		got, err := f.fetch(f.spec(o, sources...))
		if testkit.Must(t, err); !bytes.Equal(got, o.data) {
			t.Fatal("other bytes arrived")
		}
		if took := time.Since(began); took > 2500*time.Millisecond {
			t.Errorf("16 MiB by four times two lanes of 1 MiB a second took %s, want about 2 s", took)
		}
		total := int64(0)
		for _, s := range senders {
			total += s.sent.Load()
			if sent := s.sent.Load(); sent < 2<<20 {
				t.Errorf("%s sent %d bytes of 16 MiB, want about a quarter", s.id, sent)
			}
		}
		if total > 17<<20 {
			t.Errorf("%d bytes moved for 16 MiB", total)
		}
	})
}

// A source that is much slower than another costs a moment, not the difference.
func TestASlowSourceIsOvertaken(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		o := newObject(8 << 20)
		fast, slow := &sender{object: o, id: "fast", speed: 4 << 20}, &sender{object: o, id: "slow", speed: 16 << 10}
		began := time.Now()
		got, err := f.fetch(f.spec(o, slow.source(), fast.source()))
		if testkit.Must(t, err); !bytes.Equal(got, o.data) {
			t.Fatal("other bytes arrived")
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("it took %s; the fast source alone takes a second", took)
		}
	})
}

// A source that falls silent in the middle costs a moment, and nothing that it
// sent moves twice.
func TestASilentSourceIsOvertaken(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		o := newObject(8 << 20)
		a, b := &sender{object: o, id: "a", speed: 1 << 20}, &sender{object: o, id: "b", speed: 1 << 20}
		began := time.Now()
		got, err := f.fetch(f.spec(o, silent(t.Context(), a, 1<<20), b.source()))
		if testkit.Must(t, err); !bytes.Equal(got, o.data) {
			t.Fatal("other bytes arrived")
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("it took %s; the other source alone takes 4 s", took)
		}
		if moved := a.sent.Load() + b.sent.Load(); moved > 8<<20+64<<10 {
			t.Errorf("%d bytes moved for 8 MiB", moved)
		}
	})
}

// A source that lies in one group is found out there, and is not asked again;
// what arrives is right.
// Lanes that wait for a limit of this node are not taken for slow: each that took
// the run of another would begin to wait anew, and nothing would arrive.
func TestALimitOfTheNodeMovesNoRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, o := &fixture{t: t}, newObject(4<<20)
		down := &line{speed: 32 << 10}
		var sources []Source
		var senders []*sender
		for _, id := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
			s := &sender{object: o, id: id, down: down}
			senders, sources = append(senders, s), append(sources, s.source())
		}
		spec := f.spec(o, sources...)
		spec.Limited = func() bool { return true }
		began := time.Now()
		got, err := f.fetch(spec)
		took := time.Since(began)
		if err != nil || !bytes.Equal(got, o.data) {
			t.Fatalf("%d bytes, %v", len(got), err)
		}
		sent := int64(0)
		for _, s := range senders {
			sent += s.sent.Load()
		}
		if fair := time.Duration(len(o.data)) * time.Second / time.Duration(down.speed); sent > int64(len(o.data))*11/10 || took > fair*11/10 {
			t.Errorf("%d bytes were sent for %d, in %s instead of %s", sent, len(o.data), took, fair)
		}
	})
}

func TestALiarIsDropped(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		o := newObject(8 << 20)
		liar := &sender{object: o, id: "liar", speed: 1 << 20, wrong: func(at int64) bool { return at >= 1<<20 }}
		honest := &sender{object: o, id: "honest", speed: 1 << 20}
		got, err := f.fetch(f.spec(o, liar.source(), honest.source()))
		if testkit.Must(t, err); !bytes.Equal(got, o.data) {
			t.Fatal("other bytes arrived")
		}
		if f.failed["liar"] != fault.IntegrityFail || f.failed["honest"] != 0 {
			t.Errorf("these failed: %v, want the liar for IntegrityFail", f.failed)
		}
	})
}

// A connection that breaks in the middle of a run is resumed behind the last
// group that arrived, at the same source if there is no other.
func TestItResumesWhereItBroke(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		o := newObject(4 << 20)
		s := &sender{object: o, id: "a", speed: 1 << 20}
		var broken atomic.Int64
		s.fails = func(from, at int64) error {
			if at-from == 96<<10 && broken.Add(1) <= 20 {
				return fault.New("test", fault.Transient, "the connection was lost")
			}
			return nil
		}
		got, err := f.fetch(f.spec(o, s.source()))
		if testkit.Must(t, err); !bytes.Equal(got, o.data) {
			t.Fatal("other bytes arrived")
		}
		if moved := s.sent.Load(); moved != 4<<20 || broken.Load() < 10 {
			t.Errorf("%d bytes moved for 4 MiB, and it broke %d times", moved, broken.Load())
		}
	})
}

// When all sources are gone, more are asked for, and the error after the
// patience says how far it came.
func TestTheLastSourceIsLost(t *testing.T) {
	away := func(_, at int64) error {
		if at < 1<<20 {
			return nil
		}
		return fault.New("test", fault.NotFound, "it is gone")
	}
	bubble(t, func(t *testing.T, f *fixture) {
		o := newObject(4 << 20)
		lost, late := &sender{object: o, id: "lost", fails: away}, &sender{object: o, id: "late"}
		spec := f.spec(o, lost.source())
		asked := 0
		spec.More = func(context.Context) []Source {
			if asked++; asked < 10 {
				return nil
			}
			return []Source{late.source()}
		}
		got, err := f.fetch(spec)
		if testkit.Must(t, err); !bytes.Equal(got, o.data) {
			t.Fatal("other bytes arrived")
		}
		if moved := lost.sent.Load() + late.sent.Load(); moved != 4<<20 {
			t.Errorf("%d bytes moved for 4 MiB", moved)
		}
	})
	bubble(t, func(t *testing.T, f *fixture) {
		o := newObject(4 << 20)
		lost := &sender{object: o, id: "lost", fails: away}
		spec := f.spec(o, lost.source())
		spec.More = func(context.Context) []Source { return nil }
		began := time.Now()
		_, err := f.fetch(spec)
		testkit.WantKind(t, err, fault.UpstreamFailed, "a transfer whose source is gone")
		if took := time.Since(began); took < spec.Patience || took > spec.Patience+time.Second {
			t.Errorf("it failed after %s, want after its patience of %s", took, spec.Patience)
		}
		if !strings.Contains(err.Error(), "25 %") || !strings.Contains(err.Error(), "it lost lost") {
			t.Errorf("%v: it does not say how far it came, and whom it lost", err)
		}
	})
}

// What has arrived can be read at once, and what is far ahead is fetched first.
func TestItIsReadWhileItArrives(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		o := newObject(32 << 20)
		s := &sender{object: o, id: "a", speed: 512 << 10}
		ram := store.NewRAM(store.RAMSpec{Budget: 64 << 20})
		spec := f.spec(o, s.source())
		transfer, err := New(t.Context(), spec)
		testkit.Must(t, err)
		put := make(chan error, 1)
		go func() {
			_, _, err := ram.Put(t.Context(), transfer, store.PutOptions{Want: o.address, Size: spec.Size, Arrival: spec.Arrival})
			put <- err
		}()
		handle := NewArriving(t.Context(), transfer, ram.Open)
		began := time.Now()
		for _, off := range []int64{0, 31 << 20, 100, 20<<20 + 77} {
			got := make([]byte, 1000)
			_, err := handle.ReadAt(got, off)
			if testkit.Must(t, err); !bytes.Equal(got, o.data[off:off+1000]) {
				t.Errorf("other bytes at %d", off)
			}
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("four small reads took %s; all of it takes 32 s", took)
		}
		var all bytes.Buffer
		_, err = handle.WriteTo(&all)
		if testkit.Must(t, err); !bytes.Equal(all.Bytes(), o.data) {
			t.Error("other bytes arrived at the reader")
		}
		testkit.Must(t, <-put)
		testkit.Must(t, transfer.Close())
		testkit.Must(t, handle.Close())
		f.tasks.Wait()
		testkit.Must(t, ram.Close())
	})
}

// The head that is here already is not fetched again, and one that is wrong is.
func TestTheHeadIsKept(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		o := newObject(2 << 20)
		s := &sender{object: o, id: "a"}
		spec := f.spec(o, s.source())
		spec.Head = o.data[:1<<20]
		got, err := f.fetch(spec)
		if testkit.Must(t, err); !bytes.Equal(got, o.data) {
			t.Fatal("other bytes arrived")
		}
		if s.sent.Load() != 1<<20 {
			t.Errorf("%d bytes moved, want the second MiB", s.sent.Load())
		}
		spec.Head = make([]byte, 1<<20)
		got, err = f.fetch(spec)
		if testkit.Must(t, err); !bytes.Equal(got, o.data) {
			t.Fatal("other bytes arrived after a wrong head")
		}
	})
}

// A tree that is not the object's is refused before anything is fetched.
func TestAWrongTree(t *testing.T) {
	o, other := newObject(1<<20), newObject(1<<20+1)
	_, err := New(t.Context(), Spec{Address: o.address, Size: int64(len(other.data)), Tree: other.tree})
	testkit.WantKind(t, err, fault.IntegrityFail, "the tree of another object")
}

// A reader far ahead waits while its sources rest, as the transfer does.
func TestAReaderFarAheadWaits(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		o := newObject(32 << 20)
		began := time.Now()
		s := &sender{object: o, id: "a", speed: 512 << 10, fails: func(_, at int64) error {
			if time.Since(began) < 20*time.Second {
				return fault.New("test", fault.Transient, "the link is down")
			}
			return nil
		}}
		spec := f.spec(o, s.source())
		spec.More = func(context.Context) []Source { return []Source{s.source()} }
		transfer, err := New(t.Context(), spec)
		testkit.Must(t, err)
		read := make(chan error, 1)
		go func() {
			_, err := io.Copy(io.Discard, transfer)
			read <- err
		}()
		handle := NewArriving(t.Context(), transfer, store.NewRAM(store.RAMSpec{}).Open)
		got := make([]byte, 1000)
		_, err = handle.ReadAt(got, 31<<20)
		if testkit.Must(t, err); !bytes.Equal(got, o.data[31<<20:31<<20+1000]) {
			t.Error("other bytes far ahead")
		}
		if took := time.Since(began); took < 20*time.Second || took > 30*time.Second {
			t.Errorf("it came after %s, want when the link is back after 20 s", took)
		}
		testkit.Must(t, transfer.Close())
		<-read
		f.tasks.Wait()
	})
	bubble(t, func(t *testing.T, f *fixture) {
		o := newObject(32 << 20)
		s := &sender{object: o, id: "a", fails: func(_, at int64) error { return fault.New("test", fault.Transient, "the link is down") }}
		spec := f.spec(o, s.source())
		spec.More = func(context.Context) []Source { return []Source{s.source()} }
		transfer, err := New(t.Context(), spec)
		testkit.Must(t, err)
		read := make(chan error, 1)
		go func() {
			_, err := io.Copy(io.Discard, transfer)
			read <- err
		}()
		began := time.Now()
		_, err = NewArriving(t.Context(), transfer, store.NewRAM(store.RAMSpec{}).Open).ReadAt(make([]byte, 1000), 31<<20)
		if took := time.Since(began); err == nil || took < spec.Patience || took > spec.Patience+time.Second {
			t.Errorf("%v after %s, want a failure after %s", err, took, spec.Patience)
		}
		testkit.Must(t, transfer.Close())
		<-read
		f.tasks.Wait()
	})
}

// What a store has kept is not fetched again, as far as it is right.
func TestItGoesOnFromWhatIsKept(t *testing.T) {
	for name, try := range map[string]struct {
		spoil func([]byte)
		right int64 // from the front
		ahead int64 // and behind what is missing: the runs, as far as they are right
	}{
		"all right":     {func([]byte) {}, 2 << 20, 0},
		"half is wrong": {func(kept []byte) { kept[1<<20+5] ^= 1 }, 1 << 20, 512 << 10},
		"three holes": {func(kept []byte) {
			clear(kept[600<<10 : 1<<20])
			kept[1<<20+100<<10] ^= 1
			clear(kept[2<<20-16<<10 : 2<<20])
		}, 592 << 10, 96<<10 + 496<<10},
		"the front only": {func(kept []byte) { clear(kept[16<<10:]) }, 16 << 10, 0},
		"all wrong":      {func(kept []byte) { clear(kept) }, 0, 0},
	} {
		bubble(t, func(t *testing.T, f *fixture) {
			o := newObject(4 << 20)
			s := &sender{object: o, id: "a"}
			spec := f.spec(o, s.source())
			spec.Head = o.data[:16<<10]
			transfer, err := New(t.Context(), spec)
			testkit.Must(t, err)
			kept := bytes.Clone(o.data[:2<<20+100]) // the last bytes are no group
			try.spoil(kept)
			var good bytes.Buffer
			testkit.Must(t, transfer.Resume(bytes.NewReader(kept), int64(len(kept)), &good))
			rest, err := io.ReadAll(transfer)
			testkit.Must(t, err)
			if got := append(good.Bytes(), rest...); !bytes.Equal(got, o.data) || int64(good.Len()) != try.right {
				t.Errorf("%s: %d bytes, of which %d were kept", name, len(got), good.Len())
			}
			if want := 4<<20 - max(try.right, 16<<10) - try.ahead; s.sent.Load() != want {
				t.Errorf("%s: %d bytes moved, want %d", name, s.sent.Load(), want)
			}
			testkit.Must(t, transfer.Close())
			f.tasks.Wait()
		})
	}
}

// file is bytes at their offsets, as a store lends it.
type file struct {
	mu    sync.Mutex
	bytes []byte
}

func (f *file) WriteAt(p []byte, off int64) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return copy(f.bytes[off:], p), nil
}

// What a lane has verified is written where it belongs, before the store has read
// what is in front of it: so a process that is killed has lost what is on the way,
// and the next transfer has the rest.
func TestWhatIsAheadIsKept(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		o := newObject(8 << 20)
		slow, fast := &sender{object: o, id: "slow"}, &sender{object: o, id: "fast", speed: 4 << 20}
		slow.fails = func(int64, int64) error { return fault.New("test", fault.Transient, "it sends nothing") }
		spec := f.spec(o, slow.source(), fast.source())
		transfer, err := New(t.Context(), spec)
		testkit.Must(t, err)
		kept := &file{bytes: make([]byte, len(o.data))}
		transfer.Ahead(kept)
		_, err = transfer.Read(make([]byte, 1)) // the store has read no more when the process is killed
		testkit.Must(t, err)
		time.Sleep(500 * time.Millisecond)
		synctest.Wait()
		testkit.Must(t, transfer.Close())
		f.tasks.Wait()
		had := transfer.Progress().Arrived

		again := &sender{object: o, id: "again"}
		next, err := New(t.Context(), f.spec(o, again.source()))
		testkit.Must(t, err)
		var good bytes.Buffer
		testkit.Must(t, next.Resume(bytes.NewReader(kept.bytes), int64(len(kept.bytes)), &good))
		rest, err := io.ReadAll(next)
		testkit.Must(t, err)
		if got := append(good.Bytes(), rest...); !bytes.Equal(got, o.data) {
			t.Errorf("%d bytes, and others", len(got))
		}
		if moved := again.sent.Load(); had < 1<<20 || moved > int64(len(o.data))-had {
			t.Errorf("%d bytes had arrived, and %d moved again of %d", had, moved, len(o.data))
		}
		testkit.Must(t, next.Close())
		f.tasks.Wait()
	})
}

// Between the last byte of an object and the moment in which the store has made
// an object of it, readers wait, and another node is told that it is not here yet.
func TestReadersWaitForTheObject(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		o := newObject(8 << 20)
		spec := f.spec(o, (&sender{object: o, id: "a", speed: 8 << 20}).source())
		transfer, err := New(t.Context(), spec)
		testkit.Must(t, err)
		ram := store.NewRAM(store.RAMSpec{Budget: 16 << 20})
		defer func() { testkit.Must(t, ram.Close()) }()
		_, err = io.Copy(io.Discard, transfer) // a Put that is not over yet
		testkit.Must(t, err)

		read := make(chan error, 1)
		go func() {
			got := make([]byte, 8<<20)
			_, err := NewArriving(t.Context(), transfer, ram.Open).ReadAt(got, 0)
			if err == nil && !bytes.Equal(got, o.data) {
				err = errors.New("other bytes")
			}
			read <- err
		}()
		synctest.Wait()
		_, err = NewHere(t.Context(), transfer, ram.Open).ReadAt(make([]byte, 1), 0)
		testkit.WantKind(t, err, fault.NotReady, "another node asks meanwhile")
		_, _, err = ram.Put(t.Context(), bytes.NewReader(o.data), store.PutOptions{Size: 8 << 20})
		testkit.Must(t, err)
		testkit.Must(t, transfer.Close())
		if err := <-read; err != nil {
			t.Errorf("a reader that came between: %v", err)
		}
		f.tasks.Wait()
	})
}

// Eight nodes that fetch an object at the same time have it not much later than one
// alone would: each part leaves the one node that has all of it about once, and
// they get it from each other. Nodes of a version that does not say what it has
// still help a little.
func TestNodesHelpEachOther(t *testing.T) {
	for name, one := range map[string]struct {
		says   bool
		within float64 // times what one alone takes
		sent   float64 // by the seed, in objects
		moved  float64 // to each, in objects
	}{
		"and say what they have": {true, 1.5, 1.5, 1.1},
		"of an earlier version":  {false, 8, 8, 1.1},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, f *fixture) {
				const nodes, uplink = 8, 12 << 20
				size, more := 48<<20, 1.0
				if testing.Short() {
					size, more = 16<<20, 2 // what all do before they know of each other is more of less
				}
				o := newObject(size)
				s := newSwarm(t, f, o, nodes, uplink, one.says)
				took := s.fetch()
				alone := float64(len(o.data)) / uplink
				seed, moved := float64(s.sent[nodes].Load())/float64(len(o.data)), 0.0
				for i := range s.sent {
					moved += float64(s.sent[i].Load()) / float64(len(o.data)) / nodes
				}
				t.Logf("%.2f times what one takes; the seed sent %.2f objects, each got %.2f", took.Seconds()/alone, seed, moved)
				if took.Seconds() > more*one.within*alone || seed > more*one.sent || moved > one.moved {
					t.Errorf("want at most %.2f times, %.2f and %.2f", more*one.within, more*one.sent, one.moved)
				}
			})
		})
	}
}

// swarm is nodes that fetch an object at the same time, and one that has it, the
// last. Each sends to all others over one line.
type swarm struct {
	*fixture
	object
	lines []*line
	sent  []atomic.Int64
	nodes []*Transfer
	specs []Spec
	kept  []*store.RAM
}

func newSwarm(t *testing.T, f *fixture, o object, nodes, uplink int, says bool) *swarm {
	s := &swarm{fixture: f, object: o, sent: make([]atomic.Int64, nodes+1), nodes: make([]*Transfer, nodes)}
	for range nodes + 1 {
		s.lines = append(s.lines, &line{speed: uplink})
	}
	for i := range nodes {
		sources := []Source{s.source(nodes, false)}
		for j := range nodes {
			if j != i {
				sources = append(sources, s.source(j, says))
			}
		}
		spec := f.spec(o, sources...)
		spec.Self = swarmID(i)
		s.specs, s.kept = append(s.specs, spec), append(s.kept, store.NewRAM(store.RAMSpec{Budget: 128 << 20}))
		one, err := New(t.Context(), spec)
		testkit.Must(t, err)
		s.nodes[i] = one
	}
	return s
}

func swarmID(i int) string { return string(rune('a' + i)) }

// source is a node as another one sees it.
func (s *swarm) source(i int, says bool) Source {
	one := Source{ID: swarmID(i), Label: "from a node", Open: func(ctx context.Context, from, length int64) (io.ReadCloser, error) {
		var at io.ReaderAt = bytes.NewReader(s.data)
		if i < len(s.nodes) {
			at = NewHere(ctx, s.nodes[i], s.kept[i].Open)
		}
		if err := flow.Sleep(ctx, 5*time.Millisecond); err != nil {
			return nil, flow.Ended(ctx, "test")
		}
		if _, err := at.ReadAt(make([]byte, 1), from); err != nil {
			return nil, err
		}
		return io.NopCloser(&onLine{ctx, io.NewSectionReader(at, from, length), s.lines[i], &s.sent[i]}), nil
	}}
	if says {
		one.Parts = func(ctx context.Context) (oap.Parts, error) {
			if err := flow.Sleep(ctx, 5*time.Millisecond); err != nil {
				return nil, flow.Ended(ctx, "test")
			}
			return s.nodes[i].Parts(), nil
		}
	}
	return one
}

// fetch fetches the object at all nodes, and returns how long that took.
func (s *swarm) fetch() time.Duration {
	began := time.Now()
	var puts sync.WaitGroup
	for i := range s.nodes {
		puts.Go(func() {
			_, _, err := s.kept[i].Put(s.t.Context(), s.nodes[i], store.PutOptions{Want: s.address, Size: s.specs[i].Size, Arrival: s.specs[i].Arrival})
			testkit.Must(s.t, err)
		})
	}
	puts.Wait()
	took := time.Since(began)
	for i := range s.nodes {
		testkit.Must(s.t, s.nodes[i].Close())
	}
	s.tasks.Wait()
	for i := range s.nodes {
		testkit.Must(s.t, s.kept[i].Close())
	}
	return took
}

// onLine is a reader of what comes over a line.
type onLine struct {
	ctx  context.Context
	from io.Reader
	line *line
	sent *atomic.Int64
}

func (o *onLine) Read(p []byte) (int, error) {
	n, err := o.from.Read(p[:min(len(p), 16<<10)])
	if waiting := o.line.await(o.ctx, n); waiting != nil {
		return 0, waiting
	}
	o.sent.Add(int64(n))
	return n, err
}
