package mailbox

import (
	"context"
	"path/filepath"
	"sync/atomic"
	"time"

	"micronode/fault"
	"micronode/internal/disk"
	"micronode/internal/flow"
	"micronode/internal/logbook"
)

// DiskSpec says where a mailbox is kept, and what it may take. Everything is in
// memory too, so the limits are those of memory.
type DiskSpec struct {
	Limits Limits

	// Folder is where the log is kept. It is made if it is not there. No other
	// process may write to it: to see to that is the business of whoever passes
	// it.
	Folder string

	// CompactAt is how large the log may grow before it is written anew without
	// what is used up; zero for 8 MiB. It grows to twice of what is left in any
	// case.
	CompactAt int64

	FS disk.FS // nil for the real one
}

const (
	diskFile      = "mailbox.log"
	diskRecord    = 16 << 20 // bytes; more than any message or list of boards has
	defaultAt     = 8 << 20
	compactPause  = time.Minute // after a rewrite that failed
	compactWithin = time.Minute
)

// Disk is an Engine that survives a restart. It is an office in memory, and a
// log of what has happened. Send, Ack, Nack, Extend and Post return when the
// log has them. Receive does not wait for the log: what a crash may lose of a
// lease is that it was given, and then the message can be leased again at once.
// Otherwise a lease, its receipt included, holds over a restart.
type Disk struct {
	*desk

	// set at construction
	book      *logbook.Book
	compactAt int64
	compact   *flow.Queue[struct{}] // to the one who writes the log anew

	limit atomic.Int64 // the size at which that is due
}

var (
	_ Engine   = (*Disk)(nil)
	_ Tasked   = (*Disk)(nil)
	_ Examined = (*Disk)(nil)
)

// OpenDisk opens a mailbox, or makes an empty one. A log that is damaged is
// fault.IntegrityFail.
func OpenDisk(inv *flow.Inventory, spec DiskSpec) (*Disk, error) {
	d := &Disk{desk: newDesk(inv, spec.Limits, false), compactAt: spec.CompactAt}
	if d.compactAt <= 0 {
		d.compactAt = defaultAt
	}
	book, err := logbook.Open(filepath.Join(spec.Folder, diskFile), logbook.Options{MaxRecord: diskRecord, Apply: d.apply, FS: spec.FS})
	if err != nil {
		d.lane.Retire()
		d.wakes.Retire()
		return nil, fault.Wrap("mailbox.open", err)
	}
	d.book, d.kept = book, book
	d.compact = flow.NewQueue[struct{}](inv, flow.QueueSpec{Service: service, Name: "compact", Cap: 1, Policy: flow.Coalesce,
		From: "whoever sends or acknowledges", To: "mailbox compactor"})
	d.office.advance(time.Now(), func(*box) {})
	usage := &d.office.usage
	usage.Timeouts, usage.Died, usage.Dropped = 0, 0, 0
	d.limit.Store(max(d.compactAt, 2*d.office.count().Bytes))
	d.grown = d.watch
	d.watch()
	return d, nil
}

// apply does once more what the log says. Nobody else has the mailbox yet.
func (d *Disk) apply(b []byte) error {
	r, err := decodeRecord(b)
	if err == nil {
		d.office.replay(r)
	}
	return err
}

// Tasks implements Tasked.
func (d *Disk) Tasks() []Task {
	return []Task{{Name: "mailbox sweeper", Serve: d.sweep}, {Name: "mailbox compactor", Serve: d.compactAll}}
}

// watch asks for the log to be written anew if it is too large.
func (d *Disk) watch() {
	if d.book.Size() > d.limit.Load() {
		_ = d.compact.TryPush(struct{}{}) // a closed queue: nobody does it any more
	}
}

// compactAll writes the log anew whenever it is asked to.
func (d *Disk) compactAll(ctx context.Context) error {
	for {
		if _, err := d.compact.Pop(ctx); err != nil {
			return nil // the end
		}
		if err := d.Compact(ctx); err != nil {
			_ = flow.Sleep(ctx, compactPause) // it is asked for again
		}
	}
}

// Compact writes the log anew, without what is used up. Nothing is sent or
// acknowledged meanwhile.
func (d *Disk) Compact(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, compactWithin)
	defer cancel()
	err := d.book.Rewrite(ctx, func(add func([]byte) error) error {
		d.mu.Lock()
		all := d.office.snapshot()
		d.mu.Unlock()
		for _, r := range all {
			if err := add(r.encode()); err != nil {
				return err
			}
		}
		return flow.Ended(ctx, "mailbox.compact")
	})
	if err != nil {
		return fault.Wrap("mailbox.compact", err)
	}
	d.limit.Store(max(d.compactAt, 2*d.book.Size()))
	return nil
}

// Health implements Examined.
func (d *Disk) Health() error { return d.book.Refused() }

// Close implements Engine. What was noted of leases is written down.
func (d *Disk) Close() error {
	if !d.close() {
		return nil
	}
	d.compact.Close()
	err := d.book.Close()
	d.forget()
	return fault.Wrap("mailbox.close", err)
}
