package wal_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"

	"micronode/fault"
	"micronode/internal/testkit"
	"micronode/internal/wal"
)

// owner keeps the positions of records, and not their contents.
type owner struct {
	log *wal.Log

	mu        sync.Mutex
	positions map[string]wal.Position // guarded by mu: by what comes before the first space
}

func nameOf(record string) string { name, _, _ := strings.Cut(record, " "); return name }

// openOwner opens a log for an owner, which replays it.
func openOwner(t testing.TB, path string, fs *faultyFS) *owner {
	t.Helper()
	o := &owner{positions: map[string]wal.Position{}}
	b, err := wal.Open(path, wal.Options{FS: fs, ApplyAt: func(at wal.Position, record []byte) error {
		o.positions[nameOf(string(record))] = at
		return nil
	}})
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	o.log = b
	t.Cleanup(func() { _ = b.Close() })
	return o
}

func (o *owner) write(ctx context.Context, records ...string) error {
	return o.log.CommitAt(ctx, func(at []wal.Position, err error) {
		o.mu.Lock()
		defer o.mu.Unlock()
		for i := range at {
			if err == nil {
				o.positions[nameOf(records[i])] = at[i]
			}
		}
	}, toBytes(records)...)
}

func (o *owner) position(name string) wal.Position {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.positions[name]
}

// read reads a record, wherever it is by now.
func (o *owner) read(name string) (string, error) {
	for {
		b, err := o.log.Read(o.position(name))
		if !errors.Is(err, wal.ErrMoved) {
			return string(b), err
		}
	}
}

func (o *owner) forget(name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.positions, name)
}

// compact compacts the log to what the owner knows.
func (o *owner) compact(ctx context.Context, between func()) error {
	var then, moved map[string]wal.Position
	return o.log.Compact(ctx, wal.Compaction{
		Snapshot: func() {
			o.mu.Lock()
			defer o.mu.Unlock()
			then, moved = maps.Clone(o.positions), map[string]wal.Position{}
		},
		Write: func(add func([]byte) (wal.Position, error)) error {
			for name, at := range then {
				record, err := o.log.Read(at)
				if err != nil {
					return err
				}
				if moved[name], err = add(record); err != nil {
					return err
				}
			}
			between()
			return nil
		},
		Moved: func(since func(wal.Position) wal.Position) {
			o.mu.Lock()
			defer o.mu.Unlock()
			for name, at := range o.positions {
				if at == then[name] {
					o.positions[name] = moved[name]
				} else {
					o.positions[name] = since(at)
				}
			}
		},
	})
}

func noop() {}

// A record can be read at its position, and the log notices if it is not what
// was written. That affects this one record only.
func TestARecordIsReadBack(t *testing.T) {
	path, fs := logPath(t), newFaultyFS()
	o := openOwner(t, path, fs)
	want := map[string]string{}
	for i := range 50 {
		one, two := fmt.Sprint("a", i, " ", strings.Repeat("x", i*137)), fmt.Sprint("b", i, " ")
		want[nameOf(one)], want[nameOf(two)] = one, two
		testkit.Must(t, o.write(t.Context(), one, two))
	}
	all := func(what string) {
		t.Helper()
		for name, text := range want {
			if got, err := o.read(name); err != nil || got != text {
				t.Fatalf("%s: %s is %q, %v", what, name, got, err)
			}
		}
	}
	all("as written")
	testkit.Must(t, o.log.Close())
	_, err := o.log.Read(o.position("a1"))
	testkit.WantKind(t, err, fault.Canceled, "Read of a closed log")
	o = openOwner(t, path, fs)
	all("as opened")

	before := o.position("a40")
	testkit.Must(t, o.compact(t.Context(), noop))
	all("as written anew")
	if _, err := o.log.Read(before); !errors.Is(err, wal.ErrMoved) {
		t.Errorf("a position of before: %v", err)
	}

	fs.setHook(func(op string) error {
		if op == "read" {
			return syscall.EIO
		}
		return nil
	})
	_, err = o.read("a40")
	testkit.WantKind(t, err, fault.StorageBusy, "Read from a disk that cannot")
	fs.setHook(func(string) error { return nil })
	all("when the disk can again")

	log := readFile(t, path)
	log[strings.Index(string(log), want["a40"])+1000] ^= 1
	copied := strings.Index(string(log), want["a41"])
	copy(log[copied-24:], log[strings.Index(string(log), want["a39"])-24:][:24+len(want["a39"])]) // a whole record, and another one
	testkit.WriteFile(t, path, string(log))
	for _, name := range []string{"a40", "a41"} {
		_, err = o.read(name)
		testkit.WantKind(t, err, fault.IntegrityFail, "Read of "+name)
		delete(want, name)
	}
	if got, err := o.read("a3"); err != nil || got != want["a3"] {
		t.Errorf("another record: %q, %v", got, err)
	}
	testkit.Must(t, os.Truncate(path, 100))
	_, err = o.read("a42")
	testkit.WantKind(t, err, fault.IntegrityFail, "Read behind the end")
}

// While a log is compacted, others continue: what they write, before and after
// the copy has caught up, is in the new one, and every record can be read at
// every moment.
func TestOthersGoOnWhileALogIsRewritten(t *testing.T) {
	path := logPath(t)
	o := openOwner(t, path, newFaultyFS())
	testkit.Must(t, o.write(t.Context(), "first one"))
	var all, readers sync.WaitGroup
	var over atomic.Bool
	const writers, each = 4, 60
	for w := range writers {
		all.Go(func() {
			for i := range each {
				text := fmt.Sprint(w, "-", i, " ", strings.Repeat("y", 20_000))
				if err := o.write(t.Context(), text, fmt.Sprint("used-", w, "-", i, " up")); err != nil {
					t.Error(err)
					return
				}
				o.forget(fmt.Sprint("used-", w, "-", i))
			}
		})
	}
	for range 2 {
		readers.Go(func() {
			for !over.Load() {
				o.mu.Lock()
				names := slices.Collect(maps.Keys(o.positions))
				o.mu.Unlock()
				for _, name := range names[:min(len(names), 20)] {
					if strings.HasPrefix(name, "used") {
						continue
					}
					if got, err := o.read(name); err != nil || nameOf(got) != name {
						t.Errorf("%s is %.20q, %v", name, got, err)
						return
					}
				}
			}
		})
	}
	for i := range 6 {
		if err := o.compact(t.Context(), func() {
			if err := o.write(t.Context(), fmt.Sprint("between-", i, " ", strings.Repeat("z", 400_000))); err != nil { // more than is copied while writers are blocked
				t.Error(err)
			}
		}); err != nil {
			t.Fatal(err)
		}
	}
	all.Wait()
	testkit.Must(t, o.compact(t.Context(), noop))
	over.Store(true)
	readers.Wait()
	want := o.positions
	if len(want) != 1+writers*each+6 {
		t.Errorf("%d records are known", len(want))
	}
	testkit.Must(t, o.log.Close())
	again := openOwner(t, path, newFaultyFS())
	for name := range want {
		if got, err := again.read(name); err != nil || nameOf(got) != name {
			t.Errorf("%s is %.20q, %v", name, got, err)
		}
	}
	if len(again.positions) != len(want) {
		t.Errorf("%d records are kept, %d were written", len(again.positions), len(want))
	}
}

// Writers are not blocked while the snapshot is copied, and Close does not wait
// for all of it.
func TestACompactionStopsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := openOwner(t, logPath(t), newFaultyFS())
		for i := range 3 {
			testkit.Must(t, o.write(t.Context(), fmt.Sprint(i, " x")))
		}
		goOn, result := make(chan struct{}), make(chan error, 1)
		go func() { result <- o.compact(context.Background(), func() { <-goOn }) }()
		synctest.Wait()
		testkit.Must(t, o.write(t.Context(), "while it is copied"))
		close(goOn)
		testkit.Must(t, <-result)
		if got, err := o.read("while"); err != nil || got != "while it is copied" {
			t.Errorf("%q, %v", got, err)
		}

		goOn = make(chan struct{})
		go func() { result <- o.compact(context.Background(), func() { <-goOn }) }()
		synctest.Wait()
		closed := make(chan error, 1)
		go func() { closed <- o.log.Close() }()
		synctest.Wait()
		close(goOn)
		if err := <-result; fault.KindOf(err) != fault.Canceled {
			t.Errorf("a compaction of a log that is closed: %v", err)
		}
		if err := <-closed; err != nil {
			t.Error(err)
		}
	})
}

// A file with readers stays open while the log is rewritten or closed.
func TestWhoReadsIsLeftInPeace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := newFaultyFS()
		o := openOwner(t, logPath(t), fs)
		testkit.Must(t, o.write(t.Context(), "a body"))
		goOn := make(chan struct{})
		var held atomic.Bool
		stall := func(op string) error {
			if op == "read" && held.CompareAndSwap(false, true) {
				<-goOn
			}
			return nil
		}
		results := make(chan error, 2)
		read := func(at wal.Position) {
			got, err := o.log.Read(at)
			if err == nil && string(got) != "a body" {
				err = fmt.Errorf("read %q", got)
			}
			results <- err
		}
		at := o.position("a")
		fs.setHook(stall)
		go read(at)
		synctest.Wait()
		testkit.Must(t, o.compact(t.Context(), noop))
		at = o.position("a")
		held.Store(false)
		go read(at)
		synctest.Wait()
		testkit.Must(t, o.log.Close())
		close(goOn)
		for range 2 {
			if err := <-results; err != nil {
				t.Error(err)
			}
		}
	})
}

// A compaction that fails at any step leaves the log as it was, with what was
// written meanwhile, and every record at its position.
func TestACompactionThatFailsChangesNothing(t *testing.T) {
	path, fs := logPath(t), newFaultyFS()
	o := openOwner(t, path, fs)
	testkit.Must(t, o.write(t.Context(), "kept a", "used up"))
	for fail := 1; ; fail++ {
		o.forget("used")
		var steps int
		var armed bool
		fs.setHook(func(string) error {
			if armed {
				steps++
			}
			if armed && steps == fail {
				return syscall.EIO
			}
			return nil
		})
		armed = true
		err := o.compact(t.Context(), func() {
			armed = false
			testkit.Must(t, o.write(t.Context(), fmt.Sprint("meanwhile ", fail)))
			armed = true
		})
		fs.setHook(func(string) error { return nil })
		if err == nil {
			if fail < 8 {
				t.Errorf("a compaction has %d steps", fail)
			}
			break
		}
		testkit.WantKind(t, err, fault.StorageBusy, "a compaction")
		if o.log.Err() != nil { // whether the new name is durable is not known
			_ = o.log.Close()
			o = openOwner(t, path, fs)
		}
		for _, name := range []string{"kept", "meanwhile"} {
			if _, known := o.positions[name]; !known {
				continue
			}
			if got, err := o.read(name); err != nil || nameOf(got) != name {
				t.Fatalf("after step %d: %s is %q, %v", fail, name, got, err)
			}
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	testkit.WantKind(t, o.compact(ctx, noop), fault.Canceled, "Compact of one who has left")
}

// A power failure while a log is compacted and others write loses nothing that
// was acknowledged.
func TestSwitchedOffWhileItIsWrittenAnew(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		path, fs := logPath(t), newFaultyFS()
		last, steps := rapid.IntRange(1, 60).Draw(rt, "last step"), 0
		o := openOwner(t, path, fs)
		fs.setHook(func(string) error {
			if steps++; steps > last {
				return errPowerOff
			}
			return nil
		})
		acknowledged, tried := map[string]bool{}, map[string]bool{}
		write := func(i int) {
			name := fmt.Sprint(i)
			tried[name] = true
			if o.write(t.Context(), name+" "+strings.Repeat("x", rapid.IntRange(0, 40_000).Draw(rt, "size"))) == nil {
				acknowledged[name] = true
			}
		}
		for i := range rapid.IntRange(1, 6).Draw(rt, "rounds") {
			write(2 * i)
			if o.compact(t.Context(), func() { write(2*i + 1) }) != nil {
				break
			}
		}
		_ = o.log.Close()
		again := openOwner(t, path, newFaultyFS())
		defer again.log.Close()
		for name := range acknowledged {
			if got, err := again.read(name); err != nil || nameOf(got) != name {
				rt.Fatalf("%s is %.20q, %v", name, got, err)
			}
		}
		for name := range again.positions {
			if !tried[name] {
				rt.Fatalf("%s was never written", name)
			}
		}
	})
}
