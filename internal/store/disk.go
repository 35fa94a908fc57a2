package store

import (
	"context"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/flow"
)

// Disk is a Store in a folder. What it has acknowledged survives the process.
type Disk struct {
	catalogue

	// set at construction
	limited    bool // it has a budget
	maxObject  int64
	capped     bool // maxObject is less than the budget
	layout     diskLayout
	lock       *os.File
	quarantine quarantine
	damages    damages
	partials

	// writers counts running changes of the folder, and one for the store until
	// it is closed. The last one releases the lock of the folder.
	writers atomic.Int64
}

var _ Store = (*Disk)(nil)

// DiskSpec configures a disk store.
type DiskSpec struct {
	// Folder is where objects are kept. It is created if it does not exist. No
	// other process may use it at the same time, and nothing else belongs into
	// it.
	Folder string

	// Budget is how many bytes may be kept, each object rounded up to whole 4
	// KiB. With zero, there is no limit but the disk; a store with a negative
	// one rejects everything.
	Budget int64

	// Headroom is the part of the budget that cached objects never fill, so
	// that bytes that are not verified yet find space without evicting.
	Headroom int64

	// MaxObject is how large one object may be; zero for the size of the
	// budget.
	MaxObject int64

	// Damaged is called for each object that is found corrupt. It must not block.
	// Nil if nobody wants to know.
	Damaged func(Damage)

	// Sync makes the store wait until what it acknowledges is on the disk,
	// where a power cut cannot undo it. A cache that can be filled again does
	// not need it: it survives the process all the same.
	Sync bool
}

// blockSize is what files are rounded up to, as most file systems do it.
const blockSize = 4 << 10

// noLimit is the budget of a store that has none. It is far from where sums
// overflow.
const noLimit = math.MaxInt64 / 4

// diskCost is the cost of an object of a size in the budget. Even an empty one
// costs something: a name, and its entry in the catalogue.
func diskCost(size int64) int64 { return max(1, (size+blockSize-1)/blockSize) * blockSize }

// newDisk returns a store that has not scanned its folder yet.
func newDisk(spec DiskSpec) *Disk {
	limit := int64(noLimit)
	switch {
	case spec.Budget > 0:
		limit = diskCost(min(spec.Budget, noLimit))
	case spec.Budget < 0:
		limit = 0
	}
	d := &Disk{
		catalogue: catalogue{budget: budget{limit: limit, headroom: clampHeadroom(spec.Headroom, limit)}, onDisk: true},
		limited:   spec.Budget != 0,
		maxObject: limit,
		layout:    diskLayout{root: spec.Folder, sync: spec.Sync},
		damages:   damages{report: spec.Damaged},
	}
	if spec.MaxObject > 0 && spec.MaxObject < limit {
		d.maxObject, d.capped = spec.MaxObject, true
	}
	d.writers.Store(1)
	return d
}

// Open finds an object, counts its use and opens its file, unless that is open.
func (d *Disk) Open(ctx context.Context, a b3.Address) (Handle, error) {
	const op = "store.open"
	for {
		if err := d.checkOpen(ctx, op); err != nil {
			return nil, err
		}
		o, path, file := d.acquire(a)
		if o == nil {
			return nil, notFound(op, a)
		}
		if file != nil {
			return &diskHandle{disk: d, object: o, file: file}, nil
		}
		f, err := d.layout.open(path)
		if err == nil {
			return &diskHandle{disk: d, object: o, file: d.attachFile(o, f)}, nil
		}
		d.release(o)
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, diskFault(op, err)
		}
		if err := d.checkMissing(ctx, op, a); err != nil {
			return nil, err
		}
	}
}

// acquire counts a new handle of the object, and its use. The file is nil if it
// must be opened first.
func (d *Disk) acquire(a b3.Address) (o *object, path string, file *diskFile) {
	s := d.shard(a)
	s.mu.Lock()
	defer s.mu.Unlock()
	if o = s.objects[a]; o == nil {
		return nil, "", nil
	}
	o.refs.retain()
	s.touch(o)
	if file = o.file; file != nil {
		file.refs++
		return o, "", file
	}
	return o, d.path(o), nil
}

// attachFile makes a file the object's. If another goroutine has opened it
// meanwhile, that one is used.
func (d *Disk) attachFile(o *object, f *os.File) *diskFile {
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

// releaseFile releases an object and its file. The file that was released last
// in each shard stays open: what is read is often read again at once, part by
// part, and what was verified of it need not be verified again.
func (d *Disk) releaseFile(o *object, file *diskFile) {
	var idle *diskFile
	s := d.shard(o.address)
	s.mu.Lock()
	file.refs--
	if file.refs == 0 && s.objects[o.address] == o {
		if last := s.idleObject; last != nil && last != o && last.file.refs == 0 {
			idle, last.file = last.file, nil
		}
		s.idleObject = o
	}
	s.mu.Unlock()
	if idle != nil {
		idle.close()
	}
	d.release(o)
}

// release releases one reference to an object. The last one closes its file,
// and frees its part of the budget: only then is it free on the disk too.
func (d *Disk) release(o *object) {
	if d.unref(o) {
		d.budget.release(o.cost())
	}
}

// unref releases one reference to an object. The last one closes its file, but
// its part of the budget stays with the caller.
func (d *Disk) unref(o *object) bool {
	if !o.refs.release() {
		return false
	}
	if o.file != nil { // the object is no longer visible
		o.file.close()
	}
	d.lingering.Add(-o.size)
	return true
}

// path returns the path of the object's file in its present class.
func (d *Disk) path(o *object) string { return d.layout.path(o.address, o.size, o.class) }

// checkMissing is called when a file was not at its path. Either another
// goroutine is moving or removing it; then the caller can retry when that is
// done. Or it was removed from outside; then the object is removed.
func (d *Disk) checkMissing(ctx context.Context, op string, a b3.Address) error {
	if err := d.lockAddress(ctx, op, a); err != nil {
		return err
	}
	defer d.unlockAddress(a)
	o, path := d.find(a)
	if o == nil {
		return nil
	}
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		d.integrityFails.Add(1)
		class := d.classOf(o)
		d.removeObject(o)
		d.damages.add(Damage{Address: a, Size: o.size, Class: class, At: time.Now()})
	}
	return nil
}

// find looks for a visible object. It is called with the address locked, so the
// result stays true.
func (d *Disk) find(a b3.Address) (o *object, path string) {
	s := d.shard(a)
	s.mu.Lock()
	defer s.mu.Unlock()
	if o = s.objects[a]; o == nil {
		return nil, ""
	}
	return o, d.path(o)
}

// removeObject makes an object invisible. It is called with the address locked,
// so only closing the store can have done so before.
func (d *Disk) removeObject(o *object) {
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

func (d *Disk) classOf(o *object) Class {
	s := d.shard(o.address)
	s.mu.Lock()
	defer s.mu.Unlock()
	return o.class
}

// Delete removes an object, or forgets one that was found corrupt. Its file is removed first: if that fails, nothing
// has happened. Concurrent calls wait for the lock of the address, and find
// nothing.
func (d *Disk) Delete(ctx context.Context, a b3.Address) error {
	err := d.change(ctx, "store.delete", a, d.deleteObject)
	switch fault.KindOf(err) {
	case 0:
		d.forgetDamaged(a)
	case fault.NotFound:
		if d.forgetDamaged(a) {
			return nil
		}
	}
	return err
}

// deleteObject removes an object whose address is locked.
func (d *Disk) deleteObject(o *object, path string) error {
	if err := d.layout.unlink(path); err != nil {
		return err
	}
	d.removeObject(o)
	return d.layout.syncFolder(filepath.Dir(path))
}

// Evict removes an object if it is cached.
func (d *Disk) Evict(ctx context.Context, a b3.Address) (evicted bool, err error) {
	err = d.change(ctx, "store.evict", a, func(o *object, path string) error {
		if d.classOf(o) != Cached { // it does not change while the address is locked
			return nil
		}
		evicted = true
		return d.deleteObject(o, path)
	})
	return evicted && err == nil, ignoreNotFound(err)
}

// Reclass gives an object another class if it has the class from.
func (d *Disk) Reclass(ctx context.Context, a b3.Address, from, to Class) (changed bool, err error) {
	err = d.change(ctx, "store.reclass", a, func(o *object, path string) error {
		if d.classOf(o) != from {
			return nil
		}
		changed = true
		return d.moveToClass(to)(o, path)
	})
	return changed && err == nil, err
}

// Pin keeps an object until it is deleted.
func (d *Disk) Pin(ctx context.Context, a b3.Address) error {
	return d.change(ctx, "store.pin", a, d.moveToClass(Pinned))
}

// Unpin lets an object be evicted when space is needed.
func (d *Disk) Unpin(ctx context.Context, a b3.Address) error {
	return d.change(ctx, "store.unpin", a, d.moveToClass(Cached))
}

// change runs do for a visible object with its address locked.
func (d *Disk) change(ctx context.Context, op string, a b3.Address, do func(o *object, path string) error) error {
	if err := d.checkOpen(ctx, op); err != nil {
		return err
	}
	if !d.beginWrite() {
		return closed(op)
	}
	defer d.endWrite()
	if err := d.lockAddress(ctx, op, a); err != nil {
		return err
	}
	defer d.unlockAddress(a)
	o, path := d.find(a)
	if o == nil {
		return notFound(op, a)
	}
	return diskFault(op, do(o, path))
}

// moveToClass gives an object a class: on the disk first, and then in the
// catalogue.
func (d *Disk) moveToClass(class Class) func(*object, string) error {
	return func(o *object, path string) error {
		if o.class == class { // it does not change while the address is locked
			return nil
		}
		to := d.layout.path(o.address, o.size, class)
		if err := d.layout.rename(path, to); err != nil {
			return err
		}
		d.setClass(o, class)
		return d.layout.syncFolders(to, path)
	}
}

// setClass sets the class that an object has on the disk.
func (d *Disk) setClass(o *object, class Class) {
	s := d.shard(o.address)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.objects[o.address] == o {
		d.setClassLocked(s, o, class)
	}
}

// quarantineObject makes a corrupt object invisible and moves its file into
// quarantine. If the address is locked, it does nothing; the next read will
// find the same.
func (d *Disk) quarantineObject(o *object) {
	if !d.beginWrite() {
		return
	}
	defer d.endWrite()
	s := d.shard(o.address)
	s.mu.Lock()
	if s.objects[o.address] != o || s.tryLockAddress(o.address) != nil {
		s.mu.Unlock()
		return
	}
	path, class := d.path(o), o.class
	s.mu.Unlock()
	defer d.unlockAddress(o.address)
	d.integrityFails.Add(1)
	d.removeObject(o)
	aside := d.quarantine.add(&d.layout, path, fileLength(o.size))
	d.damages.add(Damage{Address: o.address, Size: o.size, Class: class, Path: aside, At: time.Now()})
}

// lockAddress waits until an address is unlocked, and locks it.
func (d *Disk) lockAddress(ctx context.Context, op string, a b3.Address) error {
	s := d.shard(a)
	for {
		s.mu.Lock()
		busy := s.tryLockAddress(a)
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

// unlockAddress unlocks an address.
func (d *Disk) unlockAddress(a b3.Address) {
	s := d.shard(a)
	s.mu.Lock()
	s.unlockAddress(a)
	s.mu.Unlock()
}

// reserve reserves n bytes, evicting for them if it must. Files that cannot be
// removed stay where they are, and so do their objects.
func (d *Disk) reserve(n int64) error {
	if d.budget.reserveOutsideHeadroom(n) || d.dropPartials(0, 0) && d.budget.reserveOutsideHeadroom(n) {
		return nil
	}
	victims, surplus, ok := d.reclaim(n)
	var failed error
	for o := victims; o != nil; {
		next := o.next
		if err := d.layout.unlink(d.path(o)); err != nil {
			failed = err
			surplus -= o.cost()
			d.restore(o)
		} else {
			d.unref(o)
		}
		d.unlockAddress(o.address)
		o = next
	}
	if ok && failed != nil {
		surplus += n
	}
	d.budget.release(surplus)
	switch {
	case failed != nil:
		return diskFault(opPut, failed)
	case !ok:
		return d.full(n)
	default:
		return nil
	}
}

// restore makes an object visible again that could not be evicted, or releases
// it if the store was closed meanwhile.
func (d *Disk) restore(o *object) {
	o.next = nil
	if d.insertObject(o) {
		d.lingering.Add(-o.size)
	} else {
		d.release(o)
	}
}

func (d *Disk) full(n int64) error {
	u := d.Usage()
	return fault.New(opPut, fault.StoreFull, "no space for %d more bytes: %d of %d are in use, and too few of them can be evicted", n, u.Held, u.Budget).
		Advise("Remove objects, or raise the quota of the store (store.disk_bytes, or edge.cache.max_bytes for the cache of the edge).")
}

// Usage reports how much is held.
func (d *Disk) Usage() Usage {
	u := d.usage()
	if !d.limited {
		u.Budget = 0
	}
	return u
}

// Close rejects all later calls. What is on disk stays there. The folder is
// free for other processes when the last running Put has ended.
func (d *Disk) Close() error {
	if d.closed.Swap(true) {
		return nil
	}
	for i := range d.shards {
		for _, o := range d.removeAll(&d.shards[i]) {
			d.release(o)
		}
	}
	d.endWrite()
	return nil
}

// beginWrite counts a change of the folder that is about to start. It fails
// when the folder is no longer ours.
func (d *Disk) beginWrite() bool {
	for {
		n := d.writers.Load()
		if n == 0 {
			return false
		}
		if d.writers.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (d *Disk) endWrite() {
	if d.writers.Add(-1) == 0 {
		_ = d.lock.Close() // which also unlocks; the error cannot be returned
	}
}
