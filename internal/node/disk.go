package node

import (
	"context"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"micronode/internal/flow"
	"micronode/internal/observe"
)

const (
	diskPause = time.Second // between two looks
	diskLeast = 1 << 20     // bytes: with less than one small object, nothing worth the name can be written
)

// disk looks, now and then, whether there is room left for the folder of
// --persist. What does not fit is refused by whoever was to write it; this is
// so that readiness says it before, and when it is over.
type disk struct {
	// set at construction
	folder     string
	dependency *observe.Dependency
	room       func(folder string) (bytes uint64, err error)
}

// newDisk has had its first look, so that it is known from the start.
func (n *Node) newDisk() disk {
	d := disk{folder: n.folder.path, dependency: n.readiness.Dependency(service, "disk", observe.ForWrites), room: roomIn}
	d.look()
	return d
}

// Serve looks until ctx ends.
func (d disk) Serve(ctx context.Context) error {
	for {
		d.look()
		if flow.Sleep(ctx, diskPause) != nil {
			return nil // told to stop
		}
	}
}

// look takes a disk that does not say how much room it has for one that has
// enough: there are some that cannot tell.
func (d disk) look() {
	bytes, err := d.room(d.folder)
	if err != nil || bytes >= diskLeast {
		d.dependency.Up()
		return
	}
	d.dependency.Down(fmt.Sprintf("the disk of %s is full", d.folder),
		"Make room on it: nothing that was acknowledged is lost, and the node goes on by itself.")
}

// roomIn is how many bytes this user may still write on the disk of a folder:
// none, if it has no room for one more file.
func roomIn(folder string) (uint64, error) {
	var disk unix.Statfs_t
	if err := unix.Statfs(folder, &disk); err != nil {
		return 0, err
	}
	if disk.Files > 0 && disk.Ffree == 0 {
		return 0, nil
	}
	blocks := disk.Bavail
	if os.Geteuid() == 0 {
		blocks = disk.Bfree // some are kept back for the superuser
	}
	return blocks * uint64(disk.Bsize), nil
}
