package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/observe"
)

// testDisk is a disk that the test controls and observes.
type testDisk struct {
	*diskMonitor
	readiness    *observe.Readiness
	room         atomic.Uint64 // that of a disk that cannot report it is one
	writeErr     atomic.Pointer[error]
	frozen       atomic.Pointer[chan struct{}] // writers wait for it
	slow         atomic.Bool                   // a sync takes long
	unread       atomic.Pointer[chan struct{}] // readers wait for it
	waiting      atomic.Int64                  // how many calls are under way
	synced       atomic.Int64
	usedRequests atomic.Uint64
}

func newTestDisk(t *testing.T) *testDisk {
	d := &testDisk{readiness: observe.NewReadiness(flow.NewInventory(), nil)}
	d.room.Store(diskMinFree)
	d.diskMonitor = &diskMonitor{
		folder: "/home/node", dependency: d.readiness.Dependency(service, "disk", observe.ForWrites), reads: d.readiness.Dependency(service, "disk reads", observe.ForReads),
		objects: d.readiness.Dependency("store", "objects", observe.ForReads),
		read: func() error {
			if until := d.unread.Load(); until != nil {
				<-*until
			}
			return nil
		},
		free: func() (uint64, error) {
			if d.room.Load() == 1 {
				return 0, unix.ENOSYS
			}
			return d.room.Load(), nil
		},
		checkWritable: d.change, write: d.change,
		sync: func() error {
			d.synced.Add(1)
			if d.slow.Load() {
				time.Sleep(2 * diskSyncTimeout)
			}
			return nil
		},
		requestCount: d.usedRequests.Load,
	}
	d.setResult(nil)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	for _, serve := range []func(context.Context) error{d.Serve, d.ServeProbe} {
		go func() { ended <- serve(ctx) }()
	}
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-ended, <-ended); err != nil {
			t.Error(err)
		}
	})
	return d
}

func (d *testDisk) change() error {
	d.waiting.Add(1)
	defer d.waiting.Add(-1)
	if until := d.frozen.Load(); until != nil {
		<-*until
	}
	if err := d.writeErr.Load(); err != nil {
		return *err
	}
	return nil
}

// expect waits for as long as an operator has to, and compares.
func (d *testDisk) expect(t *testing.T, when string, reason string) {
	t.Helper()
	time.Sleep(2 * time.Second)
	synctest.Wait()
	now, ready := d.readiness.Evaluate(), reason == ""
	if !now.Ready || now.WriteReady != ready || slices.Contains(now.Missing, "node/disk") == ready {
		t.Errorf("%s: %+v", when, now)
	}
	if !ready && (len(now.Reasons) != 1 || !strings.Contains(now.Reasons[0].Reason, reason) || now.Reasons[0].Next == "") {
		t.Errorf("%s: it says %+v", when, now.Reasons)
	}
}

// A full disk stops writes, not reads, and free space is noticed again.
func TestAFullDiskIsToldAndItsEndToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newTestDisk(t)
		for _, c := range []struct {
			room   uint64
			reason string
		}{{diskMinFree, ""}, {diskMinFree - 1, "the disk of /home/node is full"}, {diskMinFree, ""}, {0, "the disk of /home/node is full"}, {1, ""}} {
			d.room.Store(c.room)
			d.expect(t, fmt.Sprintf("with room for %d bytes", c.room), c.reason)
		}
		for err, reason := range map[error]string{unix.ENOSPC: "is full", unix.EDQUOT: "is full", unix.EROFS: "cannot be written to", unix.EIO: "fails"} {
			d.writeErr.Store(&err)
			d.expect(t, err.Error(), reason)
			d.writeErr.Store(nil)
			d.expect(t, "after "+err.Error(), "")
		}
	})
}

// A disk that does not answer is reported within two seconds, and so is its
// recovery; meanwhile one task is blocked, and no more.
func TestADiskThatDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newTestDisk(t)
		d.expect(t, "at first", "")
		thaw := make(chan struct{})
		d.frozen.Store(&thaw)
		d.expect(t, "frozen", "does not answer")
		time.Sleep(time.Hour)
		d.expect(t, "frozen for an hour", "does not answer")
		if n := d.waiting.Load(); n != 1 {
			t.Errorf("%d tasks wait for the disk", n)
		}
		d.frozen.Store(nil)
		close(thaw)
		d.expect(t, "thawed", "")
	})
}

// A disk that hangs on reads stops reads and not writes, is reported as soon as
// requests come, and so is its recovery.
func TestADiskThatHangsOnReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newTestDisk(t)
		d.expect(t, "at first", "")
		back := make(chan struct{})
		d.unread.Store(&back)
		d.usedRequests.Add(1)
		time.Sleep(diskReadTimeout + 3*time.Second)
		synctest.Wait()
		now := d.readiness.Evaluate()
		if now.Ready || !now.WriteReady && !slices.Contains(now.Missing, "node/disk reads") || len(now.Reasons) != 1 || !strings.Contains(now.Reasons[0].Reason, "a read has waited") || now.Reasons[0].Next == "" {
			t.Errorf("%+v", now)
		}
		d.unread.Store(nil)
		close(back)
		d.expect(t, "when it answers", "")
	})
}

// The probe really writes to the disk: often while requests come, and rarely
// otherwise. A disk that takes longer for it than a request may take is
// reported.
func TestADiskThatIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newTestDisk(t)
		time.Sleep(idleSyncInterval * 10)
		synctest.Wait()
		if n := d.synced.Load(); n < 9 || n > 11 {
			t.Errorf("an idle node made the disk write %d times", n)
		}
		for range 10 {
			d.usedRequests.Add(1)
			time.Sleep(syncInterval)
		}
		synctest.Wait()
		if n := d.synced.Load(); n < 15 {
			t.Errorf("a busy node made the disk write %d times", n)
		}
		d.slow.Store(true)
		d.usedRequests.Add(1)
		time.Sleep(diskSyncTimeout)
		d.expect(t, "slow", "an fsync of a small write")
		d.slow.Store(false)
		time.Sleep(2 * diskSyncTimeout)
		d.expect(t, "fast again", "")
	})
}

func TestAFolderThatMayBeWrittenTo(t *testing.T) {
	if err := checkWritable(t.TempDir()); err != nil {
		t.Error(err)
	}
}

func TestAFolderOnAFullDisk(t *testing.T) {
	wantRefusal(t, folderError("/home/node", unix.ENOSPC), fault.StoreFull, "the disk of /home/node is full")
}
