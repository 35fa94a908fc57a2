package mailbox_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"micronode/fault"
	"micronode/internal/disk"
	"micronode/internal/flow"
	"micronode/internal/mailbox"
	"micronode/internal/mailbox/mailboxtest"
	"micronode/internal/testkit"
	"micronode/internal/wal"
)

func openDisk(t *testing.T, spec mailbox.DiskSpec) *mailbox.Disk {
	t.Helper()
	if spec.Limits == (mailbox.Limits{}) {
		spec.Limits = mailboxtest.Limits()
	}
	d, err := mailbox.OpenDisk(flow.NewInventory(), spec)
	testkit.Must(t, err)
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// On a full disk nothing changes: what was refused was not done, and what was
// leased is still leased.
func TestAFullDisk(t *testing.T) {
	ctx, fs := t.Context(), &failingFS{FS: disk.OS()}
	d := openDisk(t, mailbox.DiskSpec{Folder: t.TempDir(), FS: fs})
	var leases []mailbox.Delivery
	for i := range 10 {
		_, err := d.Send(ctx, mailbox.Message{Box: "jobs", Body: []byte(fmt.Sprint(i))})
		testkit.Must(t, err)
		got, err := d.Receive(ctx, "jobs", time.Hour, 0)
		testkit.Must(t, err)
		leases = append(leases, got)
	}
	poison, err := d.Send(ctx, mailbox.Message{Box: "dead", MaxDeliveries: 1})
	testkit.Must(t, err)
	last, err := d.Receive(ctx, "dead", time.Hour, 0)
	testkit.Must(t, err)
	testkit.Must(t, d.Nack(ctx, "dead", last.Receipt, 0, "no"))
	fs.setError(syscall.ENOSPC)
	untouched := d.Usage()
	fill := mailbox.Message{Box: "jobs", Key: "k", Body: make([]byte, 300_000)}
	if _, err := d.Send(ctx, fill); fault.KindOf(err) != fault.StoreFull {
		t.Fatalf("Send on a full disk: %v", err)
	}
	if after := d.Usage(); after != untouched {
		t.Errorf("usage %+v, was %+v", after, untouched)
	}
	// There is still some preallocated room. Use it up.
	for d.Extend(ctx, "jobs", leases[0].Receipt, time.Hour) == nil {
	}
	for len(leases) > 3 && d.Ack(ctx, "jobs", leases[0].Receipt) == nil {
		leases = leases[1:]
	}
	before := d.Usage()
	for name, err := range map[string]error{
		"Ack":    d.Ack(ctx, "jobs", leases[0].Receipt),
		"Nack":   d.Nack(ctx, "jobs", leases[1].Receipt, 0, ""),
		"Extend": d.Extend(ctx, "jobs", leases[2].Receipt, time.Minute),
		"Resend": d.Resend(ctx, "dead", poison.ID),
		"Drop":   d.Drop(ctx, "dead", poison.ID),
		"Post":   d.Post(ctx, []string{"wall"}, mailbox.Note{ID: "1"}),
	} {
		if fault.KindOf(err) != fault.StoreFull || fault.NextOf(err) == "" {
			t.Errorf("%s on a full disk: %v", name, err)
		}
	}
	if after := d.Usage(); after != before || after.Messages != int64(len(leases)) || after.Dead != 1 || after.Leased != after.Messages || after.Notes != 0 {
		t.Errorf("usage %+v, was %+v", after, before)
	}
	if err := d.Compact(ctx); fault.KindOf(err) != fault.StoreFull || d.Health() != nil {
		t.Errorf("Compact on a full disk: %v, %v", err, d.Health())
	}
	fs.setError(nil)
	testkit.Must(t, d.Resend(ctx, "dead", poison.ID))
	testkit.Must(t, d.Ack(ctx, "jobs", leases[0].Receipt))
	testkit.Must(t, d.Nack(ctx, "jobs", leases[1].Receipt, 0, ""))
	testkit.Must(t, d.Extend(ctx, "jobs", leases[2].Receipt, time.Minute))
	if sent, err := d.Send(ctx, fill); err != nil || sent.Repeated {
		t.Errorf("sent when there is room: %+v, %v", sent, err)
	}
}

// A key whose message did not fit on the disk is forgotten at once, and does
// not displace other keys.
func TestAKeyThatWasNotKeptIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, fs, limits := t.Context(), &failingFS{FS: disk.OS()}, mailboxtest.Limits()
		limits.Keys, limits.KeyLife = 1, time.Hour
		d := openDisk(t, mailbox.DiskSpec{Folder: t.TempDir(), FS: fs, Limits: limits})
		fs.setError(syscall.ENOSPC)
		for range 3 {
			if _, err := d.Send(ctx, mailbox.Message{Box: "jobs", Key: "refused", Body: make([]byte, 300_000)}); fault.KindOf(err) != fault.StoreFull {
				t.Fatalf("Send on a full disk: %v", err)
			}
		}
		fs.setError(nil)
		time.Sleep(20 * time.Minute)
		_, err := d.Send(ctx, mailbox.Message{Box: "jobs", Key: "kept"})
		testkit.Must(t, err)
		if again, err := d.Send(ctx, mailbox.Message{Box: "jobs", Key: "kept"}); err != nil || !again.Repeated || d.Usage().KeysDisplaced != 0 {
			t.Errorf("%+v, %v; %d keys were displaced", again, err, d.Usage().KeysDisplaced)
		}
		if again, err := d.Send(ctx, mailbox.Message{Box: "jobs", Key: "too many"}); err != nil || again.Repeated || d.Usage().KeysDisplaced != 1 {
			t.Errorf("a key too many: %+v, %v; %d keys were displaced", again, err, d.Usage().KeysDisplaced)
		}
	})
}

func TestTheLogIsWrittenAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		folder := t.TempDir()
		d := runTasks(t, openDisk(t, mailbox.DiskSpec{Folder: folder, CompactAt: 100_000}))
		ctx := t.Context()
		for i := range 300 {
			_, err := d.Send(ctx, mailbox.Message{Box: "jobs", Key: fmt.Sprint(i), Body: make([]byte, 5000)})
			testkit.Must(t, err)
			got, err := d.Receive(ctx, "jobs", time.Hour, 0)
			testkit.Must(t, err)
			testkit.Must(t, d.Ack(ctx, "jobs", got.Receipt))
		}
		synctest.Wait()
		info, err := os.Stat(filepath.Join(folder, "mailbox.log"))
		testkit.Must(t, err)
		if info.Size() > 600_000 {
			t.Errorf("the log has %d bytes", info.Size())
		}
		testkit.Must(t, d.Close())
		again := openDisk(t, mailbox.DiskSpec{Folder: folder})
		if sent, err := again.Send(ctx, mailbox.Message{Box: "jobs", Key: "7", Body: make([]byte, 5000)}); err != nil || !sent.Repeated {
			t.Errorf("a key of long ago: %+v, %v", sent, err)
		}
	})
}

func TestADamagedLogIsNotOpened(t *testing.T) {
	folder := t.TempDir()
	d := openDisk(t, mailbox.DiskSpec{Folder: folder})
	for range 5 {
		_, err := d.Send(t.Context(), mailbox.Message{Box: "jobs"})
		testkit.Must(t, err)
	}
	testkit.Must(t, d.Close())
	path := filepath.Join(folder, "mailbox.log")
	log, err := os.ReadFile(path)
	testkit.Must(t, err)
	log[100] ^= 1
	testkit.Must(t, os.WriteFile(path, log, 0o600))
	if _, err := mailbox.OpenDisk(flow.NewInventory(), mailbox.DiskSpec{Folder: folder, Limits: mailboxtest.Limits()}); fault.KindOf(err) != fault.IntegrityFail {
		t.Errorf("opened: %v", err)
	}

	strange := t.TempDir()
	book, err := wal.Open(filepath.Join(strange, "mailbox.log"), wal.Options{})
	testkit.Must(t, err)
	testkit.Must(t, book.Append(t.Context(), []byte("this is no record")))
	testkit.Must(t, book.Close())
	if _, err := mailbox.OpenDisk(flow.NewInventory(), mailbox.DiskSpec{Folder: strange, Limits: mailboxtest.Limits()}); fault.KindOf(err) != fault.IntegrityFail {
		t.Errorf("opened: %v", err)
	}
}

// slowFS is a disk whose syncs block.
type slowFS struct {
	disk.FS
	hold func()
}

type slowFile struct {
	disk.File
	fs *slowFS
}

func (f *slowFS) Open(name string, mode disk.Mode) (disk.File, error) {
	file, err := f.FS.Open(name, mode)
	return &slowFile{file, f}, err
}

func (f *slowFile) Sync() error { f.fs.hold(); return f.File.Sync() }

// A message that is sent again while the first is still being written waits for
// its result.
func TestARepeatWaitsForTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := &slowFS{FS: disk.OS(), hold: func() {}}
		d := openDisk(t, mailbox.DiskSpec{Folder: t.TempDir(), FS: fs})
		goOn := make(chan struct{})
		fs.hold = func() { <-goOn }
		m := mailbox.Message{Box: "jobs", Key: "k", Body: []byte("x")}
		answers := make(chan mailbox.Sent, 2)
		send := func() {
			sent, err := d.Send(context.Background(), m)
			if err != nil {
				t.Error(err)
			}
			answers <- sent
		}
		go send()
		synctest.Wait()
		go send()
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan error, 1)
		go func() { _, err := d.Send(ctx, m); left <- err }()
		synctest.Wait()
		cancel()
		if err := <-left; fault.KindOf(err) != fault.Canceled {
			t.Errorf("one who left: %v", err)
		}
		if _, err := d.Receive(t.Context(), "jobs", time.Minute, 0); fault.KindOf(err) != fault.NotFound {
			t.Errorf("a message that is not kept yet can be received: %v", err)
		}
		close(goOn)
		first, second := <-answers, <-answers
		if first.ID != second.ID || first.Repeated == second.Repeated {
			t.Errorf("%+v and %+v", first, second)
		}
	})
}

// A log that was written when bodies were kept in memory opens, and nothing in
// it is lost: what was sent, leased, dead and posted, before a compaction and
// after, at the turn of the century.
func TestALogOfAnEarlierVersion(t *testing.T) {
	old, err := os.ReadFile("testdata/before-bodies-stayed-on-disk.log")
	testkit.Must(t, err)
	folder := t.TempDir()
	testkit.Must(t, os.WriteFile(filepath.Join(folder, "mailbox.log"), append(old, make([]byte, 64<<10)...), 0o600)) // a log is preallocated at its end
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		time.Sleep(time.Minute) // all of it has happened
		d := openDisk(t, mailbox.DiskSpec{Folder: folder, CacheBytes: -1})
		receives := func(want string) {
			t.Helper()
			if got, err := d.Receive(ctx, "jobs", 2*time.Hour, 0); err != nil || string(got.Body) != want {
				t.Errorf("received %q, %v; wanted %q", got.Body, err, want)
			}
		}
		receives("written anew")
		receives("written after")
		if _, err := d.Receive(ctx, "jobs", time.Hour, 0); fault.KindOf(err) != fault.NotFound {
			t.Errorf("one is leased, one was acknowledged: %v", err)
		}
		if sent, err := d.Send(ctx, mailbox.Message{Box: "jobs", Key: "second", Body: []byte("written after")}); err != nil || !sent.Repeated {
			t.Errorf("the key is not known: %+v, %v", sent, err)
		}
		if dead, err := d.Dead(ctx, "poison", "", 10); err != nil || len(dead) != 1 || string(dead[0].Body) != "dead" || dead[0].Reason != "it cannot be read" {
			t.Errorf("dead letters: %+v, %v", dead, err)
		}
		if notes, err := d.Notes(ctx, "wall", "", 10); err != nil || len(notes) != 2 || string(notes[0].Body) != "another note" || string(notes[1].Body) != "a note" {
			t.Errorf("notes: %+v, %v", notes, err)
		}
		time.Sleep(time.Hour)
		receives("leased")
	})
}
