package mailbox

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"micronode/fault"
	"micronode/internal/disk"
	"micronode/internal/flow"
	"micronode/internal/wal"
)

// DiskSpec says where a mailbox is kept, and what it may take: the bytes of the
// limits are bytes on the disk.
type DiskSpec struct {
	Limits Limits

	// MemoryBytes is how many bytes of memory the state of messages, notes, and
	// cached bodies may take; zero for 64 MiB.
	MemoryBytes int64

	// CacheBytes is how many of those bytes the bodies may take; zero for a
	// quarter, less for none.
	CacheBytes int64

	// Folder is where the log is kept. It is made if needed. No other process
	// may write to it: the caller ensures that.
	Folder string

	// CompactAt is how large the log may grow before it is compacted; zero for
	// 8 MiB. It grows to twice of what is left in any case.
	CompactAt int64

	FS disk.FS // nil for the real one
}

const (
	logFileName       = "mailbox.log"
	maxRecordBytes    = 16 << 20 // bytes; more than any message or list of boards has
	defaultCompactAt  = 8 << 20
	defaultMemory     = 64 << 20
	compactRetryDelay = time.Minute // after a compaction that failed
	compactTimeout    = time.Hour   // no call waits for it
)

// Disk is an Engine that survives a restart. It is a queueState in memory, and
// a log of its changes, which has the bodies. Send, Ack, Nack, Extend and Post
// return when the log has them. Receive does not wait for the log: a crash may
// lose the record of a lease, and then the message can be leased again at once.
// Otherwise a lease, its receipt included, survives a restart.
type Disk struct {
	*queueServer

	// set at construction
	log           *wal.Log
	compactAt     int64
	compactSignal *flow.Signal // to the compactor
	readerPool    *readerPool

	compactThreshold atomic.Int64 // the size of the log at which compaction is due
}

var (
	_ Engine        = (*Disk)(nil)
	_ Tasker        = (*Disk)(nil)
	_ HealthChecker = (*Disk)(nil)
)

// OpenDisk opens a mailbox, or makes an empty one. A log that is damaged is
// fault.IntegrityFail.
func OpenDisk(inv *flow.Inventory, spec DiskSpec) (*Disk, error) {
	d := &Disk{queueServer: newQueueServer(inv, spec.Limits, false), compactAt: spec.CompactAt}
	if d.compactAt <= 0 {
		d.compactAt = defaultCompactAt
	}
	if spec.MemoryBytes == 0 {
		spec.MemoryBytes = defaultMemory
	}
	if spec.CacheBytes == 0 {
		spec.CacheBytes = spec.MemoryBytes / 4
	}
	d.state.enableDisk(spec.MemoryBytes, max(0, spec.CacheBytes))
	log, err := wal.Open(filepath.Join(spec.Folder, logFileName), wal.Options{MaxRecord: maxRecordBytes, ApplyAt: d.apply, FS: spec.FS})
	if err != nil {
		d.lane.Retire()
		d.wakes.Retire()
		return nil, fault.Wrap("mailbox.open", err)
	}
	d.log, d.appender = log, log
	d.readerPool = newReaderPool(inv, log, spec.Limits.Receivers)
	d.readRecord = d.readerPool.read
	d.compactSignal = flow.NewSignal(inv, flow.SignalSpec{Service: service, Name: "compact",
		From: "senders, receivers", To: "mailbox compactor"})
	d.state.advance(time.Now(), func(*box) {})
	usage := &d.state.usage
	usage.Timeouts, usage.Died, usage.Dropped, usage.KeysDisplaced = 0, 0, 0, 0
	d.compactThreshold.Store(max(d.compactAt, 2*d.state.currentUsage().Bytes))
	d.onAppend = d.signalCompaction
	d.signalCompaction()
	return d, nil
}

// apply replays a record of the log, before the mailbox is in use.
func (d *Disk) apply(at wal.Position, b []byte) error {
	r, err := decodeRecord(b)
	if err == nil {
		d.state.replay(r, at)
	}
	return err
}

// Tasks implements Tasker.
func (d *Disk) Tasks() []Task {
	tasks := []Task{{Name: "mailbox sweeper", Serve: d.sweep}, {Name: "mailbox compactor", Serve: d.serveCompaction}}
	for i := range readerTasks {
		tasks = append(tasks, Task{Name: fmt.Sprintf("mailbox reader %d", i+1), Serve: d.readerPool.serve})
	}
	return tasks
}

// signalCompaction wakes the compactor if the log is too large.
func (d *Disk) signalCompaction() {
	if d.log.Size() > d.compactThreshold.Load() {
		d.compactSignal.Set()
	}
}

// serveCompaction compacts the log at each signal.
func (d *Disk) serveCompaction(ctx context.Context) error {
	for {
		if err := d.compactSignal.Wait(ctx); err != nil {
			return nil // the queue was closed
		}
		if err := d.Compact(ctx); err != nil {
			_ = flow.Sleep(ctx, compactRetryDelay) // the next signal retries
		}
	}
}

// Compact rewrites the log without records that are not needed. Bodies are
// copied from the one file to the other; messages are sent, received and
// acknowledged meanwhile.
func (d *Disk) Compact(ctx context.Context) error {
	const op = "mailbox.compact"
	ctx, cancel := context.WithTimeout(ctx, compactTimeout)
	defer cancel()
	var snap *snapshot
	err := d.log.Compact(ctx, wal.Compaction{
		Snapshot: func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			snap = d.state.snapshot()
		},
		Write: func(add func([]byte) (wal.Position, error)) error { return d.writeSnapshot(snap, add) },
		Moved: func(translate func(wal.Position) wal.Position) {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.state.relocate(snap, translate)
		},
	})
	if err != nil {
		return fault.Wrap(op, err)
	}
	d.compactThreshold.Store(max(d.compactAt, 2*d.log.Size()))
	return nil
}

// writeSnapshot writes a snapshot, with bodies from their old positions, and
// stores their new ones.
func (d *Disk) writeSnapshot(snap *snapshot, add func([]byte) (wal.Position, error)) error {
	for _, k := range snap.keys {
		if _, err := add(keyRecord(k).encode()); err != nil {
			return err
		}
	}
	slices.SortFunc(snap.messages[snap.deadCount:], func(a, b messageSnapshot) int { return a.position.Compare(b.position) }) // so that the disk is read sequentially
	for i := range snap.messages {
		one := &snap.messages[i]
		body, err := d.bodyForSnapshot(one)
		if err != nil {
			return err
		}
		if one.position, err = add(one.record(body).encode()); err != nil {
			return err
		}
	}
	for _, r := range snap.notes {
		if _, err := add(r.encode()); err != nil {
			return err
		}
	}
	return nil
}

// bodyForSnapshot reads the body of a message from the disk. A damaged body
// makes the message a dead letter without a body: otherwise the log could never
// be compacted, and never be opened again.
func (d *Disk) bodyForSnapshot(one *messageSnapshot) ([]byte, error) {
	if one.message.size == 0 || one.damaged {
		return nil, nil
	}
	b, err := d.log.Read(one.position)
	var body []byte
	if err == nil {
		body, err = decodeBody(b, one.message)
	}
	if fault.KindOf(err) != fault.IntegrityFail {
		return body, err
	}
	d.mu.Lock()
	defer d.unlock()
	if one.message.body != nil {
		return one.message.body, nil // it is still in memory
	}
	now := time.Now()
	d.state.markDamaged(now, one.message)
	one.damaged, one.reason = true, ReasonDamaged
	if one.state != stateDead {
		one.state, one.diedAt, one.receipt = stateDead, nanos(now), ""
	}
	return nil, nil
}

// Health implements HealthChecker.
func (d *Disk) Health() error { return d.log.Err() }

// Close implements Engine. Buffered records of leases are written.
func (d *Disk) Close() error {
	if !d.close() {
		return nil
	}
	d.compactSignal.Close()
	d.readerPool.queue.Close()
	err := d.log.Close()
	d.clear()
	return fault.Wrap("mailbox.close", err)
}
