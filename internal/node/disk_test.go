package node

import (
	"context"
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

// A full disk stops writes, not reads, and what has happened since is noticed.
func TestAFullDiskIsToldAndItsEndToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := observe.NewReadiness(flow.NewInventory(), nil)
		var room atomic.Uint64 // that of a disk that cannot tell is one
		d := disk{folder: "/home/node", dependency: table.Dependency(service, "disk", observe.ForWrites), room: func(string) (uint64, error) {
			if room.Load() == 1 {
				return 0, unix.ENOSYS
			}
			return room.Load(), nil
		}}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- d.Serve(ctx) }()
		expect := func(bytes uint64, ready bool) {
			t.Helper()
			room.Store(bytes)
			time.Sleep(2 * diskPause)
			synctest.Wait()
			now := table.Evaluate()
			if !now.Ready || now.WriteReady != ready || slices.Contains(now.Missing, "node/disk") == ready {
				t.Errorf("with room for %d bytes: %+v", bytes, now)
			}
			if !ready && (!strings.Contains(now.Reasons[0].Reason, "the disk of /home/node is full") || now.Reasons[0].Next == "") {
				t.Errorf("it says %+v", now.Reasons)
			}
		}
		expect(diskLeast, true)
		expect(diskLeast-1, false)
		expect(diskLeast, true)
		expect(0, false)
		expect(1, true)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestTheRoomOnADisk(t *testing.T) {
	if bytes, err := roomIn(t.TempDir()); err != nil || bytes == 0 {
		t.Errorf("here are %d bytes, %v", bytes, err)
	}
	if _, err := roomIn("/nowhere/at/all"); err == nil {
		t.Error("there is room nowhere")
	}
}

func TestAFolderOnAFullDisk(t *testing.T) {
	refusedWith(t, unusable("/home/node", unix.ENOSPC), fault.StoreFull, "the disk of /home/node is full")
}
