package store

import (
	"context"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"sync/atomic"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/flow"
)

// Disk is a Store in a folder. What it has acknowledged outlives the process.
type Disk struct {
	catalogue

	// set at construction
	limited   bool // it has a budget
	maxObject int64
	capped    bool // maxObject is less than the budget
	tree      tree
	lock      *os.File
	jail      quarantine

	// users counts those who change the folder, and one for the store until it
	// is closed. The last to leave gives up the lock.
	users atomic.Int64
}

var _ Store = (*Disk)(nil)

// DiskSpec says where a disk store is and what it may take.
type DiskSpec struct {
	// Service is the owner of the store in the inventory: "store", or a service
	// that has one of its own.
	Service string

	// Folder is where objects are kept. It is made if it is not there. No other
	// process may use it at the same time, and nothing else belongs into it.
	Folder string

	// Budget is how many bytes may be kept, each object rounded up to whole
	// 4 KiB. With zero, there is no limit but the disk; a store with less than
	// zero refuses all.
	Budget int64

	// MaxObject is how large one object may be; zero if as large as the budget.
	MaxObject int64

	// Sync makes the store wait until what it acknowledges is on the disk, where
	// a power cut cannot undo it. A cache that can be filled again does without:
	// it outlives the process all the same.
	Sync bool
}

// blockSize is what files are rounded up to, as most file systems do it.
const blockSize = 4 << 10

// noLimit is the budget of a store that has none. It is far from where sums
// overflow.
const noLimit = math.MaxInt64 / 4

// diskCost is what an object of a size takes of the budget. Even an empty one
// takes something: a name, and what is remembered of it.
func diskCost(size int64) int64 { return max(1, (size+blockSize-1)/blockSize) * blockSize }

// newDisk makes a store that has looked at nothing yet.
func newDisk(inv *flow.Inventory, spec DiskSpec) *Disk {
	limit := int64(noLimit)
	switch {
	case spec.Budget > 0:
		limit = diskCost(min(spec.Budget, noLimit))
	case spec.Budget < 0:
		limit = 0
	}
	d := &Disk{
		catalogue: catalogue{budget: budget{limit: limit}, filed: true, room: newRoom(inv, spec.Service, "")},
		limited:   spec.Budget != 0,
		maxObject: limit,
		tree:      tree{root: spec.Folder, sync: spec.Sync},
	}
	if spec.MaxObject > 0 && spec.MaxObject < limit {
		d.maxObject, d.capped = spec.MaxObject, true
	}
	d.users.Store(1)
	return d
}

// Open finds an object, counts its use and opens its file, unless that is open.
func (d *Disk) Open(ctx context.Context, a b3.Address) (Handle, error) {
	const op = "store.open"
	for {
		if err := d.refuse(ctx, op); err != nil {
			return nil, err
		}
		o, path, file := d.hold(a)
		if o == nil {
			return nil, notFound(op, a)
		}
		if file != nil {
			return &diskHandle{disk: d, object: o, file: file}, nil
		}
		f, err := d.tree.open(path)
		if err == nil {
			return &diskHandle{disk: d, object: o, file: d.attach(o, f)}, nil
		}
		d.release(o)
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, diskFault(op, err)
		}
		if err := d.seek(ctx, op, a); err != nil {
			return nil, err
		}
	}
}

// hold counts one who has the object open, and its use. There is no file if it
// must be opened first.
func (d *Disk) hold(a b3.Address) (o *object, path string, file *diskFile) {
	s := d.shard(a)
	s.mu.Lock()
	defer s.mu.Unlock()
	if o = s.objects[a]; o == nil {
		return nil, "", nil
	}
	o.count.add()
	s.touch(o)
	if file = o.file; file != nil {
		file.refs++
		return o, "", file
	}
	return o, d.path(o), nil
}

// attach makes a file the object's. Somebody else may have opened it meanwhile;
// then theirs is used.
func (d *Disk) attach(o *object, f *os.File) *diskFile {
	mine := &diskFile{File: f, address: o.address, size: o.size}
	s := d.shard(o.address)
	s.mu.Lock()
	if o.file == nil {
		o.file = mine
	}
	file := o.file
	file.refs++
	s.mu.Unlock()
	if file != mine {
		mine.close()
	}
	return file
}

// letGo ends a claim on an object and its file. The file that was let go of
// last in each shard stays open: what is read is often read again at once, part
// by part, and what was verified of it need not be verified anew.
func (d *Disk) letGo(o *object, file *diskFile) {
	var idle *diskFile
	s := d.shard(o.address)
	s.mu.Lock()
	file.refs--
	if file.refs == 0 && s.objects[o.address] == o {
		if last := s.rest; last != nil && last != o && last.file.refs == 0 {
			idle, last.file = last.file, nil
		}
		s.rest = o
	}
	s.mu.Unlock()
	if idle != nil {
		idle.close()
	}
	d.release(o)
}

// release gives up one claim on an object. The last one closes its file, and
// frees its room: only then is it free on the disk too.
func (d *Disk) release(o *object) {
	if d.discard(o) {
		d.budget.give(o.cost)
	}
}

// discard gives up one claim on an object. The last one closes its file, but
// the room in the budget stays with the caller.
func (d *Disk) discard(o *object) bool {
	if !o.count.done() {
		return false
	}
	if o.file != nil { // nobody else can see the object any more
		o.file.close()
	}
	d.lingering.Add(-o.size)
	return true
}

// path is where the object's file lies, as long as its class is what it is.
func (d *Disk) path(o *object) string { return d.tree.path(o.address, o.size, o.class) }

// seek is called when a file was not where it should be. Either somebody is
// moving or removing it; then all is well when they are done. Or it was taken
// away from outside; then the object is no more.
func (d *Disk) seek(ctx context.Context, op string, a b3.Address) error {
	if err := d.begin(ctx, op, a); err != nil {
		return err
	}
	defer d.end(a)
	o, path := d.find(a)
	if o == nil {
		return nil
	}
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		d.integrityFails.Add(1)
		d.hide(o)
	}
	return nil
}

// find looks for a visible object. It is called on an errand, so the answer
// stays true.
func (d *Disk) find(a b3.Address) (o *object, path string) {
	s := d.shard(a)
	s.mu.Lock()
	defer s.mu.Unlock()
	if o = s.objects[a]; o == nil {
		return nil, ""
	}
	return o, d.path(o)
}

// hide makes an object invisible. It is called on an errand, so only the end of
// the store can have done so before.
func (d *Disk) hide(o *object) {
	s := d.shard(o.address)
	s.mu.Lock()
	visible := s.objects[o.address] == o
	if visible {
		s.remove(o)
		d.uncount(o)
	}
	s.mu.Unlock()
	if visible {
		d.release(o)
	}
}

func (d *Disk) isPinned(o *object) bool {
	s := d.shard(o.address)
	s.mu.Lock()
	defer s.mu.Unlock()
	return o.class == Pinned
}

// Delete removes an object. Its file goes first: if that fails, nothing has
// happened. Who comes in between waits for the end of the errand, and finds
// nothing.
func (d *Disk) Delete(ctx context.Context, a b3.Address) error {
	return d.change(ctx, "store.delete", a, func(o *object, path string) error {
		if err := d.tree.erase(path); err != nil {
			return err
		}
		d.hide(o)
		return d.tree.syncFolder(filepath.Dir(path))
	})
}

// Pin keeps an object until it is deleted.
func (d *Disk) Pin(ctx context.Context, a b3.Address) error {
	return d.change(ctx, "store.pin", a, d.mover(Pinned))
}

// Unpin lets an object be evicted when room is needed.
func (d *Disk) Unpin(ctx context.Context, a b3.Address) error {
	return d.change(ctx, "store.unpin", a, d.mover(Cached))
}

// change runs an errand for a visible object.
func (d *Disk) change(ctx context.Context, op string, a b3.Address, do func(o *object, path string) error) error {
	if err := d.refuse(ctx, op); err != nil {
		return err
	}
	if !d.enter() {
		return closed(op)
	}
	defer d.leave()
	if err := d.begin(ctx, op, a); err != nil {
		return err
	}
	defer d.end(a)
	o, path := d.find(a)
	if o == nil {
		return notFound(op, a)
	}
	return diskFault(op, do(o, path))
}

// mover gives an object a class: on the disk first, and then for all to see.
func (d *Disk) mover(class Class) func(*object, string) error {
	return func(o *object, path string) error {
		if o.class == class { // nobody else changes it during our errand
			return nil
		}
		to := d.tree.path(o.address, o.size, class)
		if err := d.tree.rename(path, to); err != nil {
			return err
		}
		d.become(o, class)
		return d.tree.syncFolders(to, path)
	}
}

// become shows the class that an object has on the disk.
func (d *Disk) become(o *object, class Class) {
	s := d.shard(o.address)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.objects[o.address] == o {
		d.reclass(s, o, class)
	}
}

// condemn takes a corrupt object out of view and its file into quarantine. If
// somebody is busy with the object, they go first; whoever reads it next will
// find the same.
func (d *Disk) condemn(o *object) {
	if !d.enter() {
		return
	}
	defer d.leave()
	s := d.shard(o.address)
	s.mu.Lock()
	if s.objects[o.address] != o || s.begin(o.address) != nil {
		s.mu.Unlock()
		return
	}
	path := d.path(o)
	s.mu.Unlock()
	defer d.end(o.address)
	d.integrityFails.Add(1)
	d.hide(o)
	d.jail.take(&d.tree, path, lengthOf(o.size))
}

// begin waits until nobody else changes the file of an address, and claims it.
func (d *Disk) begin(ctx context.Context, op string, a b3.Address) error {
	s := d.shard(a)
	for {
		s.mu.Lock()
		busy := s.begin(a)
		s.mu.Unlock()
		if busy == nil {
			return nil
		}
		select {
		case <-busy:
		case <-ctx.Done():
			return flow.Ended(ctx, op)
		}
	}
}

// end ends an errand.
func (d *Disk) end(a b3.Address) {
	s := d.shard(a)
	s.mu.Lock()
	s.end(a)
	s.mu.Unlock()
}

// reserve takes n bytes of the budget, evicting for them if it must. Files that
// cannot be removed stay where they are, and so do their objects.
func (d *Disk) reserve(n int64) error {
	if d.budget.take(n) {
		return nil
	}
	victims, surplus, ok := d.gather(n)
	var failed error
	for o := victims; o != nil; {
		next := o.next
		if err := d.tree.erase(d.path(o)); err != nil {
			failed = err
			surplus -= o.cost
			d.restore(o)
		} else {
			d.discard(o)
		}
		d.end(o.address)
		o = next
	}
	if ok && failed != nil {
		surplus += n
	}
	d.budget.give(surplus)
	switch {
	case failed != nil:
		return diskFault(opPut, failed)
	case !ok:
		return d.full(n)
	default:
		return nil
	}
}

// restore makes an object visible again that could not be evicted, or lets go of
// it if the store was closed meanwhile.
func (d *Disk) restore(o *object) {
	o.next = nil
	if d.show(o) {
		d.lingering.Add(-o.size)
	} else {
		d.release(o)
	}
}

func (d *Disk) full(n int64) error {
	u := d.Usage()
	err := fault.New(opPut, fault.StoreFull, "no room for %d more bytes: %d of %d are in use, and too few of them can be freed", n, u.Held, u.Budget)
	err.Next = "Remove objects, or raise the quota of the store (store.disk_bytes, or edge.cache.max_bytes for what the edge keeps)."
	return err
}

// Usage tells how much is held.
func (d *Disk) Usage() Usage {
	u := d.usage()
	if !d.limited {
		u.Budget = 0
	}
	return u
}

// Close refuses all that comes later. What is on disk stays there. The folder
// is free for others when the last Put that is under way has ended.
func (d *Disk) Close() error {
	if d.closed.Swap(true) {
		return nil
	}
	for i := range d.shards {
		for _, o := range d.empty(&d.shards[i]) {
			d.release(o)
		}
	}
	d.leave()
	return nil
}

// enter counts one who is about to change the folder. It fails when the folder
// is no longer ours.
func (d *Disk) enter() bool {
	for {
		n := d.users.Load()
		if n == 0 {
			return false
		}
		if d.users.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (d *Disk) leave() {
	if d.users.Add(-1) == 0 {
		_ = d.lock.Close() // which also unlocks; there is nobody to tell
	}
}
