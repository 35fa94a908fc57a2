package wal_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"

	"micronode/fault"
	"micronode/internal/disk"
	"micronode/internal/testkit"
	"micronode/internal/wal"
)

func TestRecordsAreReplayed(t *testing.T) {
	path := logPath(t)
	b, before := openLog(t, path, wal.Options{})
	testkit.EqualLists(t, "a new log", before, nil)
	var want []string
	for i := range 30 {
		batch := numbered(i*3, i*3+i%4)
		write(t, b, batch...)
		want = append(want, batch...)
	}
	large := strings.Repeat("large", 100_000)
	write(t, b, large)
	want = append(want, large)
	if b.Size() < int64(len(large)) || b.GarbageBytes() <= 0 {
		t.Errorf("size %d, garbage %d", b.Size(), b.GarbageBytes())
	}
	b, got := reopen(t, b, path)
	testkit.EqualLists(t, "opened again", got, want)
	write(t, b, "one more")
	_, got = reopen(t, b, path)
	testkit.EqualLists(t, "and again", got, append(want, "one more"))
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, %v", info.Mode(), err)
	}
}

// The real disk does the same, only slower.
func TestTheRealDisk(t *testing.T) {
	path := logPath(t)
	for round := range 3 {
		b, got := openLog(t, path, wal.Options{FS: disk.OS()})
		testkit.EqualLists(t, "what is kept", got, numbered(0, round))
		write(t, b, numbered(round, round+1)...)
		if err := b.Rewrite(t.Context(), func(add func([]byte) error) error {
			for _, r := range numbered(0, round+1) {
				if err := add([]byte(r)); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		testkit.Must(t, b.Close())
	}
	folder := t.TempDir()
	_, err := wal.Open(folder, wal.Options{})
	testkit.WantKind(t, err, fault.StorageBusy, "a folder")
	if err := disk.OS().SyncFolder(folder + "/nothing"); err == nil {
		t.Error("SyncFolder of nothing")
	}
}

func TestRecordsAreBounded(t *testing.T) {
	path := logPath(t)
	b, _ := openLog(t, path, wal.Options{MaxRecord: 100})
	testkit.WantKind(t, b.Append(t.Context(), make([]byte, 101)), fault.BodyTooLarge, "a record that is too large")
	testkit.WantKind(t, b.Append(t.Context(), []byte("good"), nil), fault.BodyTooLarge, "an empty one")
	testkit.WantKind(t, b.AppendAsync(t.Context(), nil), fault.BodyTooLarge, "a note")
	testkit.WantKind(t, b.Rewrite(t.Context(), func(add func([]byte) error) error { return add(nil) }), fault.BodyTooLarge, "in a rewrite")
	write(t, b, strings.Repeat("x", 100))
	write(t, b, "behind it")
	_ = b.Close()
	_, err := wal.Open(path, wal.Options{MaxRecord: 99})
	testkit.WantKind(t, err, fault.IntegrityFail, "a log with a record that is too large")
}

func TestWhoCannotUseARecordDoesNotOpen(t *testing.T) {
	path := logPath(t)
	b, _ := openLog(t, path, wal.Options{})
	write(t, b, "a")
	_ = b.Close()
	_, err := wal.Open(path, wal.Options{Apply: func([]byte) error { return fault.New("test", fault.IntegrityFail, "what is this?") }})
	testkit.WantKind(t, err, fault.IntegrityFail, "a record that means nothing")
}

// A crash can leave any part of what was being written. All that was
// acknowledged before is there, and what is there is whole.
func TestATornEndIsCutOff(t *testing.T) {
	path := logPath(t)
	b, _ := openLog(t, path, wal.Options{})
	write(t, b, numbered(0, 3)...)
	kept := int(b.Size())
	write(t, b, numbered(3, 6)...)
	end := int(b.Size())
	_ = b.Close()
	whole := readFile(t, path)
	for name, tear := range map[string]func(at int) []byte{
		"cut":            func(at int) []byte { return whole[:at] },
		"zeros":          func(at int) []byte { return append(append([]byte{}, whole[:at]...), make([]byte, len(whole)-at)...) },
		"zeros before":   func(at int) []byte { b := append([]byte{}, whole...); clear(b[kept:at]); return b },
		"something else": func(at int) []byte { b := append([]byte{}, whole...); b[at] ^= 0x40; return b },
	} {
		t.Run(name, func(t *testing.T) {
			for at := kept + 1; at < end; at++ {
				testkit.WriteFile(t, path, string(tear(at)))
				b, got := openLog(t, path, wal.Options{})
				if len(got) < 3 || len(got) > 6 {
					t.Fatalf("at %d of %d to %d: %q", at, kept, end, got)
				}
				testkit.EqualLists(t, fmt.Sprintf("at %d", at), got, numbered(0, len(got)))
				write(t, b, "after")
				_, got = reopen(t, b, path)
				if got[len(got)-1] != "after" {
					t.Fatalf("at %d, after another record: %q", at, got)
				}
			}
		})
	}
}

// Nothing that was acknowledged is lost without an error.
func TestDamageIsReported(t *testing.T) {
	path := logPath(t)
	b, _ := openLog(t, path, wal.Options{})
	for _, r := range numbered(0, 20) {
		write(t, b, r)
	}
	last := int(b.Size())
	if err := b.Rewrite(t.Context(), func(add func([]byte) error) error {
		for _, r := range numbered(0, 20) {
			if err := add([]byte(r)); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	rewritten := readFile(t, path)
	write(t, b, "one more")
	_ = b.Close()
	appended := readFile(t, path)
	for at := 0; at < min(last, len(rewritten))-24; at += 3 { // in turn, each byte of a frame
		if at >= 16 && at < 20 {
			continue // zeros that are checked with the rest of the header
		}
		for name, file := range map[string][]byte{"after a rewrite": rewritten, "with more behind it": appended} {
			file = append([]byte{}, file...)
			file[at] ^= 0x01
			testkit.WriteFile(t, path, string(file))
			var r collector
			b, err := wal.Open(path, wal.Options{Apply: r.apply})
			if err == nil {
				_ = b.Close()
				if len(r.records) >= 20 {
					continue // padding, which means nothing
				}
				t.Fatalf("%s: byte %d was changed: opened, with %q", name, at, r.records)
			}
			testkit.WantKind(t, err, fault.IntegrityFail, name)
			if !strings.Contains(fault.NextOf(err), path) {
				t.Fatalf("next: %s", fault.NextOf(err))
			}
			if damage, ok := errors.AsType[*wal.Damage](err); !ok || !strings.Contains(damage.Error(), path) {
				t.Fatalf("no damage in %v", err)
			}
		}
	}
	testkit.WriteFile(t, path, "short")
	_, err := wal.Open(path, wal.Options{})
	testkit.WantKind(t, err, fault.IntegrityFail, "another file")
}

// A log of another version is not damaged, and stays as it is.
func TestAnotherVersionIsLeftAlone(t *testing.T) {
	path := logPath(t)
	b, _ := openLog(t, path, wal.Options{})
	write(t, b, "kept")
	_ = b.Close()
	file := readFile(t, path)
	file[7]++
	testkit.WriteFile(t, path, string(file))
	_, err := wal.Open(path, wal.Options{})
	testkit.WantKind(t, err, fault.RejectPolicy, "another version")
	if !strings.Contains(err.Error(), path+" has format 2; this program supports 1") || fault.NextOf(err) == "" {
		t.Errorf("it says %v", err)
	}
	if string(readFile(t, path)) != string(file) {
		t.Error("it was changed")
	}
}

// A record may hold a whole log. When the batch that it was in is torn, its
// content is not taken for later records.
func TestARecordCannotForgeTheEnd(t *testing.T) {
	other := logPath(t)
	b, _ := openLog(t, other, wal.Options{})
	for _, r := range numbered(0, 50) {
		write(t, b, r)
	}
	_ = b.Close()
	path := logPath(t)
	b, _ = openLog(t, path, wal.Options{})
	write(t, b, "kept")
	at := b.Size()
	write(t, b, string(readFile(t, other)))
	_ = b.Close()
	file := readFile(t, path)
	file[at] ^= 0xff
	testkit.WriteFile(t, path, string(file))
	_, got := openLog(t, path, wal.Options{})
	testkit.EqualLists(t, "a torn end", got, []string{"kept"})
}

func TestAFullDiskChangesNothing(t *testing.T) {
	path, fs := logPath(t), newFaultyFS()
	b, _ := openLog(t, path, wal.Options{FS: fs})
	write(t, b, "before")
	big := strings.Repeat("x", 200_000)
	full := func(op string) error {
		if op == "write" || op == "half a write" {
			return &os.PathError{Op: "write", Path: path, Err: syscall.ENOSPC}
		}
		return nil
	}
	fs.setHook(full)
	testkit.WantKind(t, b.Append(t.Context(), []byte(big)), fault.StoreFull, "a full disk")
	testkit.WantKind(t, b.Rewrite(t.Context(), func(add func([]byte) error) error { return add([]byte(big)) }), fault.StoreFull, "a rewrite on a full disk")
	fs.setHook(func(string) error { return nil })
	write(t, b, "after")
	_, got := reopen(t, b, path)
	testkit.EqualLists(t, "what is kept", got, []string{"before", "after"})
}

func TestAFailedDiskIsNotAskedAgain(t *testing.T) {
	for _, failing := range []string{"sync", "write", "half a write"} {
		t.Run(failing, func(t *testing.T) {
			path, fs := logPath(t), newFaultyFS()
			b, _ := openLog(t, path, wal.Options{FS: fs})
			write(t, b, "before")
			fs.setHook(func(op string) error {
				if op == failing {
					return syscall.EIO
				}
				return nil
			})
			if err := b.Err(); err != nil {
				t.Fatalf("Refused: %v", err)
			}
			testkit.WantKind(t, b.Append(t.Context(), []byte("lost")), fault.StorageBusy, "the first")
			fs.setHook(func(string) error { return nil })
			testkit.WantKind(t, b.Append(t.Context(), []byte("refused")), fault.StorageBusy, "the second")
			testkit.WantKind(t, b.AppendAsync(t.Context(), []byte("refused")), fault.StorageBusy, "a note")
			testkit.WantKind(t, b.Rewrite(t.Context(), func(func([]byte) error) error { return nil }), fault.StorageBusy, "a rewrite")
			testkit.WantKind(t, b.Err(), fault.StorageBusy, "Refused")
			testkit.WantKind(t, b.Close(), fault.StorageBusy, "Close")
			b, got := openLog(t, path, wal.Options{})
			if got[0] != "before" || len(got) > 2 {
				t.Fatalf("opened again: %q", got)
			}
			write(t, b, "after")
		})
	}
}

func TestWhoWaitsSharesASync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path, fs := logPath(t), newFaultyFS()
		b, _ := openLog(t, path, wal.Options{FS: fs})
		write(t, b, "room is made")
		goOn, syncs := make(chan bool), atomic.Int64{}
		fs.setHook(func(op string) error {
			if op == "sync" && syncs.Add(1) == 1 {
				<-goOn
			}
			return nil
		})
		var all sync.WaitGroup
		const others = 20
		for i := range 1 + others {
			all.Go(func() { write(t, b, fmt.Sprint("record ", i)) })
			synctest.Wait()
		}
		close(goOn)
		all.Wait()
		if n := syncs.Load(); n != 2 {
			t.Errorf("%d syncs, want one for the first and one for the %d others", n, others)
		}
		_, got := reopen(t, b, path)
		testkit.EqualLists(t, "what is kept", got, append([]string{"room is made"}, numbered(0, others+1)...))
	})
}

// openBlocked is a log whose next sync blocks until unblock is called.
func openBlocked(t *testing.T) (b *wal.Log, path string, syncing <-chan bool, unblock func()) {
	path, fs := logPath(t), newFaultyFS()
	b, _ = openLog(t, path, wal.Options{FS: fs})
	write(t, b, "room is made")
	in, out, once := make(chan bool), make(chan bool), sync.Once{}
	fs.setHook(func(op string) error {
		if op == "sync" {
			once.Do(func() { in <- true; <-out })
		}
		return nil
	})
	return b, path, in, func() { close(out) }
}

func TestWhoLeavesBeforeItIsWrittenTakesItBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, path, inside, goOn := openBlocked(t)
		var all sync.WaitGroup
		all.Go(func() { write(t, b, "first") })
		<-inside
		ctx, leave := context.WithCancel(t.Context())
		left, told := make(chan error, 1), make(chan error, 1)
		all.Go(func() { left <- b.Commit(ctx, func(err error) { told <- err }, []byte("taken back")) })
		synctest.Wait() // it waits for the write lock
		leave()
		testkit.WantKind(t, <-left, fault.Canceled, "Commit")
		testkit.WantKind(t, <-told, fault.Canceled, "done")
		goOn()
		all.Wait()
		write(t, b, "last")
		_, got := reopen(t, b, path)
		testkit.EqualLists(t, "what is kept", got, []string{"room is made", "first", "last"})
	})
}

func TestACanceledCommitIsReportedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path, fs := logPath(t), newFaultyFS()
		b, _ := openLog(t, path, wal.Options{FS: fs})
		write(t, b, "room is made")
		turns := make(chan bool)
		fs.setHook(func(op string) error {
			if op == "sync" {
				<-turns
			}
			return nil
		})
		var all sync.WaitGroup
		all.Go(func() { write(t, b, "first") })
		synctest.Wait()
		// Two wait for the write lock. One of them will write for both.
		ctx, leave := context.WithCancel(t.Context())
		told, results := make(chan error, 2), make(chan error, 2)
		for _, text := range []string{"second", "third"} {
			all.Go(func() { results <- b.Commit(ctx, func(err error) { told <- err }, []byte(text)) })
			synctest.Wait()
		}
		turns <- true
		synctest.Wait()
		leave()
		testkit.WantKind(t, <-results, fault.Canceled, "the one that does not write")
		if len(told) > 0 {
			t.Fatal("told before it is known")
		}
		turns <- true
		for range 2 {
			if err := <-told; err != nil {
				t.Errorf("told %v, and it is kept", err)
			}
		}
		if err := <-results; err != nil {
			t.Errorf("the one that writes: %v", err)
		}
		all.Wait()
		fs.setHook(func(string) error { return nil })
		_, got := reopen(t, b, path)
		testkit.EqualLists(t, "what is kept", got, []string{"room is made", "first", "second", "third"})
	})
}

func TestCommitsCallBackInFileOrder(t *testing.T) {
	path := logPath(t)
	b, _ := openLog(t, path, wal.Options{})
	var told []string // no lock: calls come one at a time, which the race detector would see
	var all sync.WaitGroup
	for i := range 10 {
		all.Go(func() {
			for j := range 10 {
				text := fmt.Sprint(i, " ", j)
				if err := b.Commit(t.Context(), func(err error) {
					if err == nil {
						told = append(told, text)
					}
				}, []byte(text)); err != nil {
					t.Error(err)
				}
				if j == 5 && i == 0 {
					if err := b.Rewrite(t.Context(), func(add func([]byte) error) error {
						for _, r := range told {
							if err := add([]byte(r)); err != nil {
								return err
							}
						}
						return nil
					}); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	all.Wait()
	want := told
	_, got := reopen(t, b, path)
	testkit.EqualLists(t, "the file", got, want)
}

func TestNotesGoAlong(t *testing.T) {
	path, fs := logPath(t), newFaultyFS()
	b, _ := openLog(t, path, wal.Options{FS: fs})
	syncs := 0
	fs.setHook(func(op string) error {
		if op == "sync" {
			syncs++
		}
		return nil
	})
	for _, r := range numbered(0, 5) {
		testkit.Must(t, b.AppendAsync(t.Context(), []byte(r)))
	}
	if syncs != 0 {
		t.Errorf("%d syncs for notes", syncs)
	}
	write(t, b, numbered(5, 6)...)
	testkit.Must(t, b.AppendAsync(t.Context(), []byte("record 6")))
	b, got := reopen(t, b, path)
	testkit.EqualLists(t, "what is kept", got, numbered(0, 7))
	size := b.Size()
	for range 30 {
		testkit.Must(t, b.AppendAsync(t.Context(), make([]byte, 10_000)))
	}
	if b.Size() < size+250_000 {
		t.Errorf("%d bytes of notes, and none was written", 300_000)
	}
}

func TestTooMuchThatWaitsIsBusy(t *testing.T) {
	b, _, inside, goOn := openBlocked(t)
	var all sync.WaitGroup
	all.Go(func() { write(t, b, "first") })
	<-inside
	left, leave := context.WithCancel(t.Context())
	leave() // async records are queued all the same, and not waited for
	queued, err := 0, error(nil)
	for ; queued < 100 && fault.KindOf(err) != fault.Busy; queued++ {
		err = b.AppendAsync(left, make([]byte, 1<<20))
	}
	testkit.WantKind(t, err, fault.Busy, "a note too many")
	testkit.WantKind(t, b.Append(t.Context(), make([]byte, 1<<20)), fault.Busy, "a record too many")
	goOn()
	all.Wait()
	write(t, b, "there is room again")
	if b.Size() < int64(queued-1)<<20 {
		t.Errorf("%d bytes, %d notes were taken", b.Size(), queued-1)
	}
}

func TestARewriteReplacesEverything(t *testing.T) {
	path := logPath(t)
	b, _ := openLog(t, path, wal.Options{})
	for i := range 50 {
		write(t, b, strings.Repeat("used up ", 1000), fmt.Sprint(i))
	}
	before := b.Size()
	if err := b.Rewrite(t.Context(), func(add func([]byte) error) error {
		for _, r := range append(numbered(0, 3), strings.Repeat("y", 300_000)) {
			if err := add([]byte(r)); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if b.Size() >= before || b.GarbageBytes() != 0 {
		t.Errorf("size %d, was %d; garbage %d", b.Size(), before, b.GarbageBytes())
	}
	write(t, b, "after")
	_, got := reopen(t, b, path)
	testkit.EqualLists(t, "what is kept", got, append(numbered(0, 3), strings.Repeat("y", 300_000), "after"))
	if _, err := os.Stat(path + ".new"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the draft is left: %v", err)
	}
}

func TestARewriteThatFailsChangesNothing(t *testing.T) {
	path, fs := logPath(t), newFaultyFS()
	b, _ := openLog(t, path, wal.Options{FS: fs})
	write(t, b, "a")
	steps := 0
	for fail := 1; ; fail++ {
		steps = 0
		fs.setHook(func(op string) error {
			if steps++; steps == fail {
				return syscall.EIO
			}
			return nil
		})
		err := b.Rewrite(t.Context(), func(add func([]byte) error) error { return add([]byte("b")) })
		fs.setHook(func(string) error { return nil })
		if err == nil {
			break
		}
		if b.Err() != nil { // whether the new name is durable is not known
			_ = b.Close()
			var got []string
			b, got = openLog(t, path, wal.Options{FS: fs})
			if len(got) != 1 {
				t.Fatalf("after step %d: %q", fail, got)
			}
			continue
		}
		testkit.WantKind(t, err, fault.StorageBusy, "a rewrite")
		write(t, b, "c")
		var got []string
		testkit.Must(t, b.Close())
		b, got = openLog(t, path, wal.Options{FS: fs})
		if got[0] != "a" && got[0] != "b" || got[len(got)-1] != "c" {
			t.Fatalf("after step %d: %q", fail, got)
		}
	}
	if steps < 6 {
		t.Errorf("a rewrite has %d steps", steps)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	own := errors.New("no")
	if err := b.Rewrite(t.Context(), func(func([]byte) error) error { return own }); !errors.Is(err, own) {
		t.Errorf("the error of fill: %v", err)
	}
	testkit.WantKind(t, b.Append(ctx, []byte("x")), fault.Canceled, "Append of one who has left")
}

func TestOpeningFailsAtEveryStep(t *testing.T) {
	path, fs := logPath(t), newFaultyFS()
	for round := range 2 { // a new log, and one with a torn end
		steps := 0
		for fail := 1; ; fail++ {
			steps = 0
			fs.setHook(func(op string) error {
				if steps++; steps == fail {
					return syscall.EIO
				}
				return nil
			})
			b, err := wal.Open(path, wal.Options{FS: fs})
			if err == nil {
				fs.setHook(func(string) error { return nil })
				write(t, b, "kept")
				_ = b.Close()
				if steps < fail {
					break
				}
				continue
			}
			testkit.WantKind(t, err, fault.StorageBusy, "Open")
			if round == 0 {
				_ = os.Remove(path)
			}
		}
		if steps < 6 {
			t.Errorf("round %d: %d steps", round, steps)
		}
		file := readFile(t, path)
		testkit.WriteFile(t, path, string(append(file[:len(file)-100], 1)))
	}
}

func TestNothingAfterClose(t *testing.T) {
	b, _ := openLog(t, logPath(t), wal.Options{})
	for range 2 {
		testkit.Must(t, b.Close())
	}
	testkit.WantKind(t, b.Append(t.Context(), []byte("x")), fault.Canceled, "Append")
	testkit.WantKind(t, b.AppendAsync(t.Context(), []byte("x")), fault.Canceled, "Note")
	testkit.WantKind(t, b.Rewrite(t.Context(), func(func([]byte) error) error { return nil }), fault.Canceled, "Rewrite")
}

// errPowerOff is what every operation returns after the crash.
var errPowerOff = errors.New("the machine is off")

// A power failure at any step loses nothing that was acknowledged.
func TestSwitchedOffAtAnyStep(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		path, fs := logPath(t), newFaultyFS()
		last, steps := rapid.IntRange(1, 80).Draw(rt, "last step"), 0
		fs.setHook(func(string) error {
			if steps++; steps > last {
				return errPowerOff
			}
			return nil
		})
		acknowledged, tried := []string(nil), []string(nil)
		if b, err := wal.Open(path, wal.Options{FS: fs}); err == nil {
			for i := range rapid.IntRange(1, 20).Draw(rt, "commits") {
				if rapid.IntRange(0, 4).Draw(rt, "rewrite") == 0 {
					if b.Rewrite(t.Context(), func(add func([]byte) error) error {
						for _, r := range acknowledged {
							if err := add([]byte(r)); err != nil {
								return err
							}
						}
						return nil
					}) != nil {
						break
					}
				}
				text := fmt.Sprint(i, strings.Repeat("x", rapid.IntRange(0, 40_000).Draw(rt, "size")))
				tried = append(acknowledged[:len(acknowledged):len(acknowledged)], text)
				if b.Append(t.Context(), []byte(text)) != nil {
					break
				}
				acknowledged = tried
			}
			_ = b.Close()
		}
		var r collector
		b, err := wal.Open(path, wal.Options{Apply: r.apply})
		if err != nil {
			rt.Fatalf("opened again: %v", err)
		}
		defer b.Close()
		if fmt.Sprint(r.records) != fmt.Sprint(acknowledged) && fmt.Sprint(r.records) != fmt.Sprint(tried) {
			rt.Fatalf("%d records are kept, %d were acknowledged", len(r.records), len(acknowledged))
		}
	})
}
