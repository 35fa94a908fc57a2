package mailbox_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"micronode/fault"
	"micronode/internal/config"
	"micronode/internal/disk"
	"micronode/internal/flow"
	"micronode/internal/mailbox"
	"micronode/internal/mailbox/mailboxtest"
	"micronode/internal/testkit"
)

// readFS is a disk with a hook before each read.
type readFS struct {
	disk.FS

	mu   sync.Mutex
	hook func() error // guarded by mu
}

func newReadFS() *readFS { return &readFS{FS: disk.OS(), hook: func() error { return nil }} }

func (f *readFS) setHook(hook func() error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hook = hook
}

type readFile struct {
	disk.File
	fs *readFS
}

func (f *readFS) Open(name string, mode disk.Mode) (disk.File, error) {
	file, err := f.FS.Open(name, mode)
	return &readFile{file, f}, err
}

func (f *readFile) ReadAt(b []byte, at int64) (int, error) {
	f.fs.mu.Lock()
	hook := f.fs.hook
	f.fs.mu.Unlock()
	if err := hook(); err != nil {
		return 0, err
	}
	return f.File.ReadAt(b, at)
}

// openServed opens a mailbox, and returns a function that ends its tasks and
// closes it.
func openServed(t *testing.T, spec mailbox.DiskSpec) (*mailbox.Disk, func()) {
	t.Helper()
	if spec.Limits == (mailbox.Limits{}) {
		spec.Limits = mailboxtest.Limits()
	}
	d, err := mailbox.OpenDisk(flow.NewInventory(), spec)
	testkit.Must(t, err)
	ctx, stop := context.WithCancel(context.Background())
	var tasks sync.WaitGroup
	for _, task := range d.Tasks() {
		tasks.Go(func() { _ = task.Serve(ctx) })
	}
	end := sync.OnceFunc(func() {
		stop()
		tasks.Wait()
		testkit.Must(t, d.Close())
	})
	t.Cleanup(end)
	return d, end
}

// patterned is a body that differs for each message.
func patterned(i, size int) []byte { return bytes.Repeat([]byte(fmt.Sprintf("%08d", i)), size/8) }

// A mailbox on disk holds 32 times what it may take in memory: it is all there
// after a restart, in order, with the right bytes, and memory stays within its
// bound all the time.
func TestMoreOnDiskThanInMemory(t *testing.T) {
	const messages, size = 256, 128 << 10
	spec := func(c mailbox.Config, folder string) mailbox.DiskSpec {
		s := c.DiskSpec(folder)
		s.FS = &failingFS{FS: disk.OS()} // which does not sync: it is faster
		return s
	}
	c := mailbox.DefaultConfig()
	c.RAMBytes = config.MiB
	folder, ctx := t.TempDir(), t.Context()
	memory := testkit.WatchMemory()
	bounded := func(d *mailbox.Disk, when string) {
		t.Helper()
		if u := d.Usage(); u.Memory > 1<<20 {
			t.Errorf("%s: %d bytes in memory", when, u.Memory)
		}
		if grown := memory.Grown(); grown > 10<<20 {
			t.Errorf("%s: the heap has grown by %d bytes", when, grown)
		}
	}
	d, end := openServed(t, spec(c, folder))
	for i := range messages {
		if _, err := d.Send(ctx, mailbox.Message{Box: "jobs", Body: patterned(i, size)}); err != nil {
			t.Fatalf("message %d: %v", i, err)
		}
	}
	if u := d.Usage(); u.Messages != messages || u.Bytes < messages*size {
		t.Fatalf("usage %+v", u)
	}
	bounded(d, "when all are sent")
	testkit.Must(t, d.Compact(ctx))
	bounded(d, "written anew")
	end()
	d, _ = openServed(t, spec(c, folder))
	bounded(d, "opened again")
	for i := range messages {
		got, err := d.Receive(ctx, "jobs", time.Hour, time.Second)
		if err != nil || !bytes.Equal(got.Body, patterned(i, size)) || got.Deliveries != 1 {
			t.Fatalf("message %d: %d bytes, delivery %d, %v", i, len(got.Body), got.Deliveries, err)
		}
		testkit.Must(t, d.Ack(ctx, "jobs", got.Receipt))
	}
	if u := d.Usage(); u.Messages != 0 || u.Bytes != 0 {
		t.Errorf("usage at the end: %+v", u)
	}
	bounded(d, "at the end")
}

// The state of messages is in memory, and is bounded by it, reasons included.
// It takes no more than is counted.
func TestMemoryBoundsTheNumberOfMessages(t *testing.T) {
	limits := mailboxtest.Limits()
	limits.BoxMessages, limits.Keys = 1<<20, 1<<20
	const messages = 8192
	d := openDisk(t, mailbox.DiskSpec{Limits: limits, Folder: t.TempDir(), FS: &failingFS{FS: disk.OS()}, MemoryBytes: messages * 384, CacheBytes: -1})
	memory := testkit.WatchMemory()
	body := make([]byte, 100)
	for i := range messages {
		if _, err := d.Send(t.Context(), mailbox.Message{Box: "jobs", Body: body}); err != nil {
			t.Fatalf("message %d: %v", i, err)
		}
	}
	if each := memory.Grown() / messages; each > 384 {
		t.Errorf("a message takes %d bytes in memory", each)
	}
	_, err := d.Send(t.Context(), mailbox.Message{Box: "other", Body: body})
	testkit.WantKind(t, err, fault.Busy, "a message for which there is no memory")
	for range 2 {
		got, err := d.Receive(t.Context(), "jobs", time.Hour, 0)
		testkit.Must(t, err)
		testkit.Must(t, d.Ack(t.Context(), "jobs", got.Receipt))
	}
	got, err := d.Receive(t.Context(), "jobs", time.Hour, 0)
	testkit.Must(t, err)
	testkit.Must(t, d.Nack(t.Context(), "jobs", got.Receipt, 0, strings.Repeat("why ", 256)))
	_, err = d.Send(t.Context(), mailbox.Message{Box: "other", Body: body})
	testkit.WantKind(t, err, fault.Busy, "a message for which a reason has taken the memory")
	got, err = d.Receive(t.Context(), "jobs", time.Hour, 0)
	testkit.Must(t, err)
	testkit.Must(t, d.Ack(t.Context(), "jobs", got.Receipt))
	_, err = d.Send(t.Context(), mailbox.Message{Box: "other", Body: body})
	testkit.Must(t, err)
}

// corruptBody changes the body of a message in the log.
func corruptBody(t *testing.T, folder, body string) {
	t.Helper()
	path := filepath.Join(folder, "mailbox.log")
	log, err := os.ReadFile(path)
	testkit.Must(t, err)
	at := bytes.Index(log, []byte(body))
	if at < 0 {
		t.Fatalf("%q is not in the log", body)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	testkit.Must(t, err)
	defer f.Close()
	_, err = f.WriteAt([]byte{log[at] ^ 1}, int64(at))
	testkit.Must(t, err)
}

// A body that the disk has changed is never delivered. The message becomes a
// dead letter without one, whichever call notices; all others are as before,
// and the log can be compacted and opened again.
func TestADamagedBody(t *testing.T) {
	for name, find := range map[string]func(t *testing.T, d *mailbox.Disk){
		"found by a receiver": func(t *testing.T, d *mailbox.Disk) {
			got, err := d.Receive(t.Context(), "jobs", time.Hour, 0)
			if err != nil || string(got.Body) != "body 0" {
				t.Fatalf("the first: %q, %v", got.Body, err)
			}
			testkit.Must(t, d.Nack(t.Context(), "jobs", got.Receipt, 0, ""))
			got, err = d.Receive(t.Context(), "jobs", time.Hour, 0)
			testkit.Must(t, err)
			if _, err := d.Receive(t.Context(), "jobs", time.Hour, 0); fault.KindOf(err) != fault.IntegrityFail || fault.NextOf(err) == "" {
				t.Fatalf("the damaged one: %v", err)
			}
			testkit.Must(t, d.Nack(t.Context(), "jobs", got.Receipt, 0, ""))
			testkit.Must(t, d.Compact(t.Context()))
		},
		"found when the log is written anew": func(t *testing.T, d *mailbox.Disk) { testkit.Must(t, d.Compact(t.Context())) },
	} {
		t.Run(name, func(t *testing.T) {
			folder, ctx := t.TempDir(), t.Context()
			d, end := openServed(t, mailbox.DiskSpec{Folder: folder, CacheBytes: -1})
			var ids []string
			for i := range 3 {
				sent, err := d.Send(ctx, mailbox.Message{Box: "jobs", Body: []byte(fmt.Sprint("body ", i))})
				testkit.Must(t, err)
				ids = append(ids, sent.ID)
			}
			corruptBody(t, folder, "body 1")
			find(t, d)
			for range 2 {
				if u := d.Usage(); u.Messages != 2 || u.Dead != 1 || u.Leased != 0 {
					t.Errorf("usage %+v", u)
				}
				list, err := d.Dead(ctx, "jobs", "", 10)
				if err != nil || len(list) != 1 || list[0].ID != ids[1] || len(list[0].Body) != 0 || list[0].Reason != mailbox.ReasonDamaged {
					t.Fatalf("dead letters %+v, %v", list, err)
				}
				if err := d.Resend(ctx, "jobs", ids[1]); fault.KindOf(err) != fault.IntegrityFail {
					t.Errorf("sent again: %v", err)
				}
				end()
				d, end = openServed(t, mailbox.DiskSpec{Folder: folder, CacheBytes: -1})
			}
			testkit.Must(t, d.Drop(ctx, "jobs", ids[1]))
			for _, want := range []string{"body 0", "body 2"} {
				got, err := d.Receive(ctx, "jobs", time.Hour, 0)
				if err != nil || string(got.Body) != want {
					t.Errorf("%q: %q, %v", want, got.Body, err)
				}
			}
		})
	}
}

// A dead letter whose body is damaged is listed without it, and counted once.
func TestADamagedDeadLetter(t *testing.T) {
	folder, ctx := t.TempDir(), t.Context()
	d, _ := openServed(t, mailbox.DiskSpec{Folder: folder, CacheBytes: -1})
	for i := range 3 {
		_, err := d.Send(ctx, mailbox.Message{Box: "jobs", Body: []byte(fmt.Sprint("body ", i)), MaxDeliveries: 1})
		testkit.Must(t, err)
		got, err := d.Receive(ctx, "jobs", time.Hour, 0)
		testkit.Must(t, err)
		testkit.Must(t, d.Nack(ctx, "jobs", got.Receipt, 0, "no"))
	}
	corruptBody(t, folder, "body 1")
	for range 2 {
		list, err := d.Dead(ctx, "jobs", "", 10)
		if err != nil || len(list) != 3 || string(list[0].Body) != "body 0" || list[1].Body != nil || list[1].Reason != mailbox.ReasonDamaged || string(list[2].Body) != "body 2" {
			t.Fatalf("dead letters %+v, %v", list, err)
		}
	}
	if u := d.Usage(); u.Damaged != 1 || u.Dead != 3 {
		t.Errorf("usage %+v", u)
	}
}

// A disk that does not answer blocks no call beyond its deadline. The message
// is not lost: it can be leased again, and the delivery does not count.
func TestADiskThatDoesNotReadHoldsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs, ctx := newReadFS(), t.Context()
		d, end := openServed(t, mailbox.DiskSpec{Folder: t.TempDir(), FS: fs, CacheBytes: 6}) // one body
		synctest.Wait()
		for _, body := range []string{"on the disk", "recent"} {
			_, err := d.Send(ctx, mailbox.Message{Box: "jobs", Body: []byte(body), MaxDeliveries: 1})
			testkit.Must(t, err)
		}
		goOn := make(chan struct{})
		fs.setHook(func() error { <-goOn; return nil })
		from := time.Now()
		if _, err := d.Receive(ctx, "jobs", time.Hour, 0); fault.KindOf(err) != fault.StorageBusy || fault.NextOf(err) == "" || time.Since(from) != 5*time.Second {
			t.Errorf("from a disk that does not answer, after %s: %v", time.Since(from), err)
		}
		got, err := d.Receive(ctx, "jobs", time.Hour, 0)
		if err != nil || string(got.Body) != "recent" {
			t.Errorf("a body in memory meanwhile: %q, %v", got.Body, err)
		}
		time.Sleep(time.Second)
		hasty, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
		defer cancel()
		if _, err := d.Receive(hasty, "jobs", time.Hour, 0); fault.KindOf(err) != fault.Timeout {
			t.Errorf("one who has little time: %v", err)
		}
		if u := d.Usage(); u.ReadFailures != 2 || u.Leased != 1 || u.Messages != 2 || u.Dead != 0 {
			t.Errorf("usage %+v", u)
		}
		waits := make(chan mailbox.Delivery)
		go func() {
			got, err := d.Receive(ctx, "jobs", time.Hour, 4*time.Second)
			if err != nil {
				t.Error(err)
			}
			waits <- got
		}()
		time.Sleep(time.Second)
		close(goOn)
		if got := <-waits; string(got.Body) != "on the disk" || got.Deliveries != 1 {
			t.Errorf("when the disk is back: %+v", got)
		}
		end()
	})
}

// Reads beyond the bound of the queue are refused.
func TestReadingsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs, limits := newReadFS(), mailboxtest.Limits()
		limits.Receivers = 2
		d, end := openServed(t, mailbox.DiskSpec{Folder: t.TempDir(), FS: fs, CacheBytes: -1, Limits: limits})
		synctest.Wait()
		for range 7 {
			_, err := d.Send(t.Context(), mailbox.Message{Box: "jobs", Body: []byte("body")})
			testkit.Must(t, err)
		}
		goOn := make(chan struct{})
		fs.setHook(func() error { <-goOn; return nil })
		var all sync.WaitGroup
		for range 6 { // four are read, two are queued
			all.Go(func() {
				if _, err := d.Receive(t.Context(), "jobs", time.Hour, 0); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		if _, err := d.Receive(t.Context(), "jobs", time.Hour, 0); fault.KindOf(err) != fault.Busy {
			t.Errorf("one too many: %v", err)
		}
		close(goOn)
		all.Wait()
		time.Sleep(time.Second)
		if _, err := d.Receive(t.Context(), "jobs", time.Hour, 0); err != nil {
			t.Errorf("when there is room again: %v", err)
		}
		end()
	})
}

// A message that the disk cannot read blocks no other, and is delivered later.
func TestADiskThatCannotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs, ctx := newReadFS(), t.Context()
		d, end := openServed(t, mailbox.DiskSpec{Folder: t.TempDir(), FS: fs, CacheBytes: -1})
		for i := range 2 {
			_, err := d.Send(ctx, mailbox.Message{Box: "jobs", Body: []byte(fmt.Sprint("body ", i)), MaxDeliveries: 1})
			testkit.Must(t, err)
		}
		fs.setHook(func() error { fs.setHook(func() error { return nil }); return syscall.EIO })
		if _, err := d.Receive(ctx, "jobs", time.Hour, 0); fault.KindOf(err) != fault.StorageBusy {
			t.Errorf("from a disk that cannot read: %v", err)
		}
		for _, want := range []string{"body 1", "body 0"} {
			got, err := d.Receive(ctx, "jobs", time.Hour, 2*time.Second)
			if err != nil || string(got.Body) != want || got.Deliveries != 1 {
				t.Errorf("%q: %+v, %v", want, got, err)
			}
		}
		end()
	})
}

// A compaction does not write a lease that has not reached its receiver: if the
// process dies then, the message can be leased at once.
func TestALeaseThatNobodyHasYet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs, folder, ctx := newReadFS(), t.TempDir(), t.Context()
		d, end := openServed(t, mailbox.DiskSpec{Folder: folder, FS: fs, CacheBytes: -1})
		synctest.Wait()
		_, err := d.Send(ctx, mailbox.Message{Box: "jobs", Body: []byte("body"), MaxDeliveries: 1})
		testkit.Must(t, err)
		goOn := make(chan struct{})
		fs.setHook(func() error { fs.setHook(func() error { return nil }); <-goOn; return nil })
		got := make(chan error)
		go func() { _, err := d.Receive(ctx, "jobs", time.Hour, 0); got <- err }()
		synctest.Wait()
		testkit.Must(t, d.Compact(ctx))
		log, err := os.ReadFile(filepath.Join(folder, "mailbox.log"))
		testkit.Must(t, err)
		close(goOn)
		testkit.Must(t, <-got)
		after := t.TempDir()
		testkit.Must(t, os.WriteFile(filepath.Join(after, "mailbox.log"), log, 0o600))
		again := openDisk(t, mailbox.DiskSpec{Folder: after})
		if got, err := again.Receive(ctx, "jobs", time.Hour, 0); err != nil || string(got.Body) != "body" || got.Deliveries != 1 {
			t.Errorf("after the crash: %+v, %v", got, err)
		}
		end()
	})
}

// Messages are sent, received, returned and acknowledged while the log is
// compacted all the time. Each arrives with its own body, and is acknowledged
// once.
func TestReceiversWhileTheLogIsWrittenAnew(t *testing.T) {
	limits := mailboxtest.Limits()
	limits.MaxDeliveries = 1000
	d, _ := openServed(t, mailbox.DiskSpec{Folder: t.TempDir(), FS: &failingFS{FS: disk.OS()}, Limits: limits, MemoryBytes: 1 << 20, CacheBytes: 8 << 10})
	ctx := t.Context()
	const messages = 300
	var all, compactor sync.WaitGroup
	var over atomic.Bool
	var acked sync.Map
	var count atomic.Int32
	compactor.Go(func() {
		for !over.Load() {
			if err := d.Compact(ctx); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for s := range 3 {
		all.Go(func() {
			for i := s; i < messages; i += 3 {
				if _, err := d.Send(ctx, mailbox.Message{Box: "jobs", Key: fmt.Sprint(i), Body: append([]byte(fmt.Sprint(i, " ")), patterned(i, 3000)...)}); err != nil {
					t.Error(err)
				}
			}
		})
		all.Go(func() {
			for count.Load() < messages && !t.Failed() {
				got, err := d.Receive(ctx, "jobs", time.Hour, 10*time.Millisecond)
				if fault.KindOf(err) == fault.NotFound {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				var i int
				_, _ = fmt.Sscan(string(got.Body[:min(len(got.Body), 8)]), &i)
				if !bytes.Equal(got.Body, append([]byte(fmt.Sprint(i, " ")), patterned(i, 3000)...)) {
					t.Errorf("message %s has the body of none", got.ID)
					return
				}
				if got.Deliveries == 1 && i%4 == 0 {
					testkit.Must(t, d.Nack(ctx, "jobs", got.Receipt, 0, "again"))
					continue
				}
				if err := d.Ack(ctx, "jobs", got.Receipt); err != nil {
					t.Error(err)
				}
				if _, twice := acked.LoadOrStore(i, true); twice {
					t.Errorf("%d came twice", i)
				}
				count.Add(1)
			}
		})
	}
	all.Wait()
	over.Store(true)
	compactor.Wait()
	if u := d.Usage(); u.Messages != 0 || u.ReadFailures != 0 || u.Damaged != 0 {
		t.Errorf("usage %+v", u)
	}
}
