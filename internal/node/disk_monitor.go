package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"micronode/fault"
	files "micronode/internal/disk"
	"micronode/internal/flow"
	"micronode/internal/observe"
	"micronode/internal/store"
)

const (
	diskProbeInterval  = 500 * time.Millisecond // between two probes
	diskReportInterval = 250 * time.Millisecond // between two checks of the probe
	diskMinFree        = 1 << 20                // bytes: less than one small object

	syncInterval     = time.Second      // between two probes that really write, while requests come
	idleSyncInterval = 30 * time.Second // and while none do: a disk may sleep

	diskAskTimeout  = time.Second     // for what the kernel answers without the device
	diskSyncTimeout = 5 * time.Second // for the device: as long as a write may take
	diskReadTimeout = 5 * time.Second // and a read
)

// diskMonitor probes the disk of --persist, now and then: does it answer, and
// has it free space? A write that does not fit, or fails, is refused by its own
// service; the monitor makes readiness show it before that, and when it is
// over.
//
// A disk that does not answer blocks the caller in the kernel, where nothing
// can be cancelled. So one task probes and another checks how long the probe
// has taken: a disk that hangs blocks one task, however long it does.
type diskMonitor struct {
	// set at construction
	folder        string
	dependency    *observe.Dependency
	reads         *observe.Dependency // down while reads are not answered
	free          func() (bytes uint64, err error)
	checkWritable func() error // needs an answer of the file system, and no device
	write         func() error
	sync          func() error
	read          func() error          // from the device, and not from the kernel's memory of it
	requestCount  func() uint64         // of the node since its start
	objects       *observe.Dependency   // degraded while objects are damaged
	damaged       func() []store.Damage // those; nil if there is no store here

	currentStep atomic.Pointer[probeStep] // nil while none is under way
	lastResult  atomic.Pointer[error]     // of the last probe
}

// probeStep is a step of a probe that is under way.
type probeStep struct {
	what    string
	since   time.Time
	timeout time.Duration
	reads   bool // it reads, and says nothing about writes
}

// newDiskMonitor measures the free space, so that it is known from the start.
func (n *Node) newDiskMonitor() *diskMonitor {
	lock := n.folder.lock
	d := &diskMonitor{
		folder: n.folder.path, dependency: n.readiness.Dependency(service, "disk", observe.ForWrites),
		free:          func() (uint64, error) { return files.FreeBytes(n.folder.path) },
		checkWritable: func() error { return checkWritable(n.folder.path) },
		write:         func() error { _, err := lock.WriteAt([]byte{'\n'}, 0); return err },
		sync:          lock.Sync,
		read:          func() error { return readDevice(lock) },
		reads:         n.readiness.Dependency(service, "disk reads", observe.ForReads),
		requestCount:  n.requestCount,
		objects:       n.readiness.Dependency("store", "objects", observe.ForReads),
	}
	if objects, ok := n.store.(*store.Disk); ok {
		d.damaged = objects.Damaged
	}
	d.setResult(d.checkFree())
	d.report()
	return d
}

// requestCount is the number of requests since the node started.
func (n *Node) requestCount() (all uint64) {
	for _, part := range n.inventory.Progress(nil) {
		all += part.Moved
	}
	return all
}

// ServeProbe probes the disk until ctx ends. It is the task that may block.
func (d *diskMonitor) ServeProbe(ctx context.Context) error {
	var synced time.Time
	var seen uint64
	for {
		pause, now := idleSyncInterval, d.requestCount()
		if now != seen {
			pause, seen = syncInterval, now
		}
		writes := time.Since(synced) >= pause
		if writes {
			synced = time.Now()
		}
		d.setResult(d.probe(writes))
		if flow.Sleep(ctx, diskProbeInterval) != nil {
			return nil // stopped
		}
	}
}

func (d *diskMonitor) setResult(err error) { d.lastResult.Store(&err) }

// probe is one round of steps; the cheap ones always run.
func (d *diskMonitor) probe(writes bool) error {
	defer d.currentStep.Store(nil)
	steps := []struct {
		what     string
		patience time.Duration
		reads    bool
		do       func() error
	}{
		{"a stat", diskAskTimeout, false, d.checkFree},
		{"a small change", diskAskTimeout, false, d.checkWritable},
		{"a small write", diskAskTimeout, false, d.write},
		{"an fsync of a small write", diskSyncTimeout, false, d.sync},
		{"a read", diskReadTimeout, true, d.read},
	}
	if !writes {
		steps = steps[:2]
	}
	for _, step := range steps {
		d.currentStep.Store(&probeStep{step.what, time.Now(), step.patience, step.reads})
		if err := step.do(); err != nil {
			return err
		}
	}
	return nil
}

// errDiskFull reports that there is almost no free space. A disk that does not
// report its free space counts as having enough: some cannot.
var errDiskFull = fault.New("node.disk", fault.StoreFull, "too little free space is left")

func (d *diskMonitor) checkFree() error {
	if bytes, err := d.free(); err == nil && bytes < diskMinFree {
		return errDiskFull
	}
	return nil
}

// Serve checks the probe until ctx ends.
func (d *diskMonitor) Serve(ctx context.Context) error {
	for {
		d.report()
		if flow.Sleep(ctx, diskReportInterval) != nil {
			return nil // stopped
		}
	}
}

// report updates readiness: a step that has taken too long, or the result of
// the last probe.
func (d *diskMonitor) report() {
	d.reportDamage()
	q := d.currentStep.Load()
	overdue := q != nil && time.Since(q.since) > q.timeout
	if overdue && q.reads {
		d.reads.Down(fmt.Sprintf("the disk of %s does not answer: %s has waited for more than %s", d.folder, q.what, q.timeout),
			"Check whether its device hangs (dmesg), or the server that it is on. What is in memory is served; the node continues when the disk answers.")
	} else {
		d.reads.Up()
	}
	if overdue && !q.reads {
		d.dependency.Down(fmt.Sprintf("the disk of %s does not answer: %s has waited for more than %s", d.folder, q.what, q.timeout),
			"Check whether its file system is frozen (fsfreeze) or its device hangs (dmesg). The node continues when the disk answers.")
		return
	}
	switch err := *d.lastResult.Load(); {
	case err == nil:
		d.dependency.Up()
	case errors.Is(err, errDiskFull), files.IsFull(err):
		d.dependency.Down(fmt.Sprintf("the disk of %s is full", d.folder),
			"Free space on it. No acknowledged data is lost, and the node continues by itself.")
	case files.IsReadOnly(err):
		d.dependency.Down(fmt.Sprintf("the disk of %s cannot be written to: %v", d.folder, err),
			"Check dmesg: a file system remounts itself read-only after an error. Then mount it for writing again.")
	default:
		d.dependency.Down(fmt.Sprintf("the disk of %s fails: %v", d.folder, err),
			"Check dmesg for errors of the device, and replace it. Until then, no write is acknowledged.")
	}
}

// reportDamage updates readiness: objects that were found damaged, until they are
// here again or were removed.
func (d *diskMonitor) reportDamage() {
	if d.damaged == nil {
		d.objects.Up()
		return
	}
	if all := d.damaged(); len(all) > 0 {
		d.objects.Degraded(describeDamage(all), damagedNext)
		return
	}
	d.objects.Up()
}

// checkWritable removes a file that does not exist. The file system must agree
// to a change before it looks for the file: a frozen one does not answer, a
// read-only one fails, and any other has nothing to do.
func checkWritable(folder string) error {
	if err := files.Unlink(filepath.Join(folder, "PROBE")); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// readDevice reads a byte of a file that has just been synced, after the kernel
// has dropped what it remembers of it.
func readDevice(file *os.File) error {
	files.DropCached(file)
	if _, err := file.ReadAt(make([]byte, 1), 0); err != nil && err != io.EOF {
		return err
	}
	return nil
}
