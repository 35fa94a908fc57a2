package store

import (
	"context"
	"io"
	"os"
	"sync/atomic"
	"time"

	"micronode/b3"
	"micronode/fault"
)

// Put stores an object: in a temporary file, which becomes the object's own
// when all of it is there and verified.
func (d *Disk) Put(ctx context.Context, src io.Reader, opt PutOptions) (info Info, created bool, err error) {
	if err := d.checkOpen(ctx, opPut); err != nil {
		return Info{}, false, err
	}
	if !d.beginWrite() {
		return Info{}, false, closed(opPut)
	}
	defer d.endWrite()
	if !opt.Want.IsZero() {
		if info, here, err := d.findForPut(ctx, opt.Want, opt.Class); here || err != nil {
			return info, false, err
		}
	}
	sp := diskPut{disk: d, declared: opt.Size, unverified: opt.Unverified, arrival: opt.Arrival}
	defer func() { sp.abandon(err) }()
	defer opt.Arrival.end()
	sp.takePartial(opt)
	info, created, err = sp.run(ctx, src, opt)
	if created && opt.Unverified {
		d.restoreHeadroom(ctx, info.Address)
	}
	if fault.KindOf(err) == fault.StoreFull {
		d.refusals.Add(1)
	}
	return info, created, err
}

// findForPut finds an existing object and returns the result of a Put of it.
func (d *Disk) findForPut(ctx context.Context, a b3.Address, class Class) (info Info, here bool, err error) {
	s := d.shard(a)
	s.mu.Lock()
	o := s.objects[a]
	if o != nil {
		s.touch(o)
		info = o.info()
	}
	s.mu.Unlock()
	if o == nil || info.Class.With(class) == info.Class {
		return info, o != nil, nil
	}
	err = d.change(ctx, opPut, a, func(o *object, path string) error {
		info.Class = d.classOf(o).With(class)
		return d.moveToClass(info.Class)(o, path)
	})
	if fault.KindOf(err) == fault.NotFound {
		return Info{}, false, nil // it was removed just now
	}
	return info, true, err
}

// minAllocate is the declared size from which space on the disk is allocated
// beforehand.
const minAllocate = 256 << 10

// diskPut is a body that is being written. It belongs to the one Put that made
// it.
type diskPut struct {
	disk     *Disk
	declared int64 // or Unknown

	unverified bool // it evicts nothing

	reserved int64 // its part of the budget
	size     int64
	buffer   *ioBuffer
	buffered int // how much of the buffer is not written yet

	// nil as long as all of it fits into the buffer
	hasher *b3.TreeHasher // of what was written
	file   *os.File

	arrival *Arrival // locked to change size, buffered and file; nil if nobody reads

	// of a Put with Resume
	taken b3.Address // whose partial it has taken; zero if it leaves none
	kept  *partial   // what was kept before; nil if nothing was
	tree  b3.Outboard
	ahead atomic.Int64 // how far the file has bytes, which may be ahead of size
}

// takePartial takes what is kept of the object, and its part of the budget.
func (dp *diskPut) takePartial(opt PutOptions) {
	if opt.Resume == nil || opt.Want.IsZero() || opt.Size < minPartial {
		return
	}
	if one, ok := dp.disk.partials.take(opt.Want); ok {
		if dp.taken, dp.kept, dp.tree = opt.Want, one, opt.Tree; one != nil {
			dp.reserved = one.cost
			dp.ahead.Store(min(one.size, dp.declared))
		}
	}
}

// goOn reads what is kept instead of the front of the body, as far as it is
// right.
func (dp *diskPut) goOn(resume func(kept io.ReaderAt, n int64, good io.Writer) error) error {
	if dp.kept == nil {
		return nil
	}
	file, err := dp.disk.layout.openPartial(dp.taken)
	if err != nil {
		dp.ahead.Store(0) // it was removed from outside
		return nil
	}
	dp.file, dp.hasher = file, b3.NewTreeHasher()
	if err := resume(file, dp.kept.size, (*diskKept)(dp)); err != nil {
		return err
	}
	if err := file.Truncate(dp.ahead.Load()); err != nil { // what is behind the object, if anything, is a part of its outboard
		return diskFault(opPut, err)
	}
	if _, err := file.Seek(dp.size, io.SeekStart); err != nil {
		return diskFault(opPut, err)
	}
	return diskFault(opPut, dp.disk.layout.allocate(file, fileLength(dp.declared)))
}

// lendAhead lets others write what arrives ahead of the body.
func (dp *diskPut) lendAhead(lend func(w io.WriterAt)) error {
	if lend == nil || dp.taken.IsZero() {
		return nil
	}
	if err := dp.open(); err != nil {
		return diskFault(opPut, err)
	}
	lend(&aheadWriter{file: dp.file, end: dp.declared, ahead: &dp.ahead})
	return nil
}

// aheadWriter writes what arrives ahead of the body. It may be used by many.
type aheadWriter struct {
	// set at construction
	file  *os.File
	end   int64 // of the object
	ahead *atomic.Int64
}

// WriteAt writes bytes of the object. That the body is written to the same file
// meanwhile does no harm: where both write, they write the same.
func (w *aheadWriter) WriteAt(p []byte, off int64) (int, error) {
	if off < 0 || off+int64(len(p)) > w.end {
		return 0, fault.New(opPut, fault.Internal, "%d bytes at %d are not within an object of %d", len(p), off, w.end)
	}
	n, err := w.file.WriteAt(p, off)
	for end := off + int64(n); ; {
		was := w.ahead.Load()
		if end <= was || w.ahead.CompareAndSwap(was, end) {
			return n, err
		}
	}
}

// diskKept is a diskPut that takes bytes over which are in its file already.
type diskKept diskPut

func (k *diskKept) Write(p []byte) (int, error) {
	dp := (*diskPut)(k)
	_, _ = dp.hasher.Write(p) // it never fails
	dp.arrival.changeDisk(dp, func() { dp.size += int64(len(p)) })
	return len(p), nil
}

// run does everything but the cleanup.
func (dp *diskPut) run(ctx context.Context, src io.Reader, opt PutOptions) (Info, bool, error) {
	if err := dp.reserveDeclared(); err != nil {
		return Info{}, false, err
	}
	dp.buffer = ioBuffers.Get().(*ioBuffer)
	if err := dp.goOn(opt.Resume); err != nil {
		return Info{}, false, err
	}
	if err := dp.lendAhead(opt.Ahead); err != nil {
		return Info{}, false, err
	}
	if err := dp.readBody(ctx, src); err != nil {
		return Info{}, false, err
	}
	address := dp.address()
	if !opt.Want.IsZero() && address != opt.Want {
		dp.disk.mismatches.Add(1)
		return Info{}, false, fault.Wrap(opPut, &b3.Mismatch{Want: opt.Want, Got: address})
	}
	if err := dp.disk.checkOpen(ctx, opPut); err != nil {
		return Info{}, false, err
	}
	return dp.commit(ctx, address, opt.Class)
}

// reserveDeclared reserves the declared size.
func (dp *diskPut) reserveDeclared() error {
	switch {
	case dp.declared < Unknown:
		return fault.New(opPut, fault.Malformed, "a size of %d bytes", dp.declared)
	case dp.declared > dp.disk.maxObject:
		return dp.disk.tooLarge(dp.declared)
	case dp.declared == Unknown:
		return nil
	}
	return dp.reserve(diskCost(dp.declared) - dp.reserved) // some may be kept
}

// readBody reads the body to its end. The last part of it stays in the buffer.
func (dp *diskPut) readBody(ctx context.Context, src io.Reader) error {
	for {
		if dp.declared == dp.size {
			return dp.expectEnd(ctx, src)
		}
		if err := dp.flush(); err != nil {
			return err
		}
		space := dp.buffer.data[dp.buffered:ioBufferSize]
		if dp.declared != Unknown {
			space = space[:min(int64(len(space)), dp.declared-dp.size)]
		}
		n, err := ReadBody(ctx, src, space)
		dp.arrival.changeDisk(dp, func() {
			dp.buffered += n
			dp.size += int64(n)
		})
		if err == io.EOF {
			return dp.finish()
		}
		if err != nil {
			return BodyFault(ctx, err)
		}
	}
}

// flush writes the buffer to the file when it is full.
func (dp *diskPut) flush() error {
	if dp.buffered < ioBufferSize {
		return nil
	}
	if err := dp.reserveGrowth(); err != nil {
		return err
	}
	if dp.hasher == nil {
		dp.hasher = b3.NewTreeHasher()
	}
	_, _ = dp.hasher.Write(dp.buffer.data[:dp.buffered]) // it never fails
	err := dp.write(dp.buffer.data[:dp.buffered])
	if err == nil {
		dp.arrival.changeDisk(dp, func() { dp.buffered = 0 })
	}
	return diskFault(opPut, err)
}

// address returns that of the whole body, part of which is in the buffer.
func (dp *diskPut) address() b3.Address {
	rest := dp.buffer.data[:dp.buffered]
	if dp.hasher == nil {
		return b3.Of(rest)
	}
	_, _ = dp.hasher.Write(rest) // it never fails
	return dp.hasher.Sum()
}

// reserveGrowth reserves for the growth of a body of unknown size.
func (dp *diskPut) reserveGrowth() error {
	if dp.size > dp.disk.maxObject {
		return dp.disk.tooLarge(dp.size)
	}
	if more := diskCost(dp.size) - dp.reserved; more > 0 {
		return dp.reserve(more)
	}
	return nil
}

// write appends to the temporary file, which is created when it is needed.
func (dp *diskPut) write(p []byte) (err error) {
	if err := dp.open(); err != nil {
		return err
	}
	return dp.disk.layout.write(dp.file, p)
}

// open creates the temporary file, if it is not open, and writes the tree beside
// one whose bytes are kept.
func (dp *diskPut) open() (err error) {
	layout := &dp.disk.layout
	if dp.file == nil {
		if !dp.taken.IsZero() {
			dp.file, err = layout.createPartial(dp.taken)
		} else {
			dp.file, err = layout.create()
		}
		if err != nil {
			return err
		}
		if dp.declared >= minAllocate {
			if err := layout.allocate(dp.file, fileLength(dp.declared)); err != nil {
				return err
			}
		}
	}
	if len(dp.tree) > 0 {
		// One that is not written whole, or is wrong, is fetched again.
		_ = os.WriteFile(layout.treePath(dp.taken), dp.tree, fileMode)
		dp.tree = nil
	}
	return nil
}

// expectEnd is called when everything declared has been read.
func (dp *diskPut) expectEnd(ctx context.Context, src io.Reader) error {
	var one [1]byte
	n, err := ReadBody(ctx, src, one[:])
	switch {
	case n > 0:
		return fault.New(opPut, fault.Malformed, "%d bytes were declared, but more arrived", dp.declared)
	case err == io.EOF:
		return dp.finish()
	default:
		return BodyFault(ctx, err)
	}
}

// finish checks the size.
func (dp *diskPut) finish() error {
	if dp.declared != Unknown && dp.size < dp.declared {
		return fault.New(opPut, fault.Malformed, "%d bytes were declared, but %d arrived", dp.declared, dp.size)
	}
	return dp.reserveGrowth()
}

// commit makes the object visible, unless it exists by now. Concurrent puts of
// the same object wait for the lock of the address, and find it.
func (dp *diskPut) commit(ctx context.Context, a b3.Address, class Class) (Info, bool, error) {
	dp.arrival.end() // from here on the object can be opened, or nothing is kept
	d := dp.disk
	if err := d.lockAddress(ctx, opPut, a); err != nil {
		return Info{}, false, err
	}
	defer d.unlockAddress(a)
	if o, path := d.find(a); o != nil {
		info, err := d.putExisting(o, path, class)
		return info, false, diskFault(opPut, err)
	}
	path := d.layout.path(a, dp.size, class)
	if err := dp.publish(path); err != nil {
		return Info{}, false, diskFault(opPut, err)
	}
	o := newObject(a, dp.size, dp.reserved, class, time.Now())
	o.refs.retain()
	if !d.insertObject(o) {
		_ = d.layout.remove(path) // the store was closed; if the file stays, it is a good one
		return Info{}, false, closed(opPut)
	}
	dp.reserved = 0 // the object owns it now
	return Info{Address: a, Size: o.size, Class: class}, true, nil
}

// putExisting does what a Put of a visible object does. It is called with the
// address locked.
func (d *Disk) putExisting(o *object, path string, class Class) (Info, error) {
	s := d.shard(o.address)
	s.mu.Lock()
	s.touch(o)
	info := o.info()
	s.mu.Unlock()
	info.Class = info.Class.With(class)
	return info, d.moveToClass(info.Class)(o, path)
}

// insertObject makes a new object visible, unless the store is closed.
func (d *Disk) insertObject(o *object) bool {
	s := d.shard(o.address)
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.closed.Load() {
		return false
	}
	s.add(o)
	d.count(o)
	return true
}

// publish completes the file and gives it its name.
func (dp *diskPut) publish(path string) error {
	rest := dp.buffer.data[:dp.buffered]
	if !isSmall(dp.size) {
		tree := dp.hasher.Outboard()
		if len(rest)+len(tree) > cap(rest) { // that of a large object is many MiB, and is not copied
			if err := dp.write(rest); err != nil {
				return err
			}
			rest = tree
		} else {
			rest = append(rest, tree...) // in place
		}
	}
	if err := dp.write(rest); err != nil {
		return err
	}
	if err := dp.disk.layout.syncAndClose(dp.file); err != nil {
		return err
	}
	if err := dp.disk.layout.publish(dp.file, path); err != nil {
		return err
	}
	dp.file = nil
	return nil
}

// abandon releases what did not become an object, or keeps it for the next Put.
func (dp *diskPut) abandon(err error) {
	var one *partial
	if dp.file != nil && !dp.taken.IsZero() {
		one = dp.keep(err)
	}
	if one == nil && dp.file != nil {
		dp.disk.layout.removeTemp(dp.file)
	}
	if one == nil && !dp.taken.IsZero() && (dp.file != nil || err == nil) {
		_ = dp.disk.layout.unlink(dp.disk.layout.treePath(dp.taken))
	}
	if dp.buffer != nil {
		_ = dp.buffer.Close() // documented to be nil
	}
	if dp.taken.IsZero() {
		dp.disk.budget.release(dp.reserved)
		return
	}
	if one == nil && dp.file == nil && dp.kept != nil && dp.reserved > 0 {
		// It failed before it opened the file: that stays as it was.
		one = dp.kept
	}
	if one != nil {
		dp.reserved -= one.cost
	}
	dp.disk.budget.release(dp.reserved)
	dp.disk.partials.put(dp.taken, one)
	dp.disk.dropPartials(maxPartials, dp.disk.budget.limit/partialDivisor)
}

// keep keeps the file if what has arrived is worth it.
func (dp *diskPut) keep(err error) *partial {
	size := max(dp.size, dp.ahead.Load())
	if !isWorthKeeping(size, err) {
		return nil
	}
	// The last bytes are in the buffer. If they cannot be written, or are only
	// half, the next Put finds out.
	_ = dp.disk.layout.write(dp.file, dp.buffer.data[:dp.buffered])
	_ = dp.file.Truncate(size) // frees what was allocated beyond
	if dp.file.Close() != nil {
		return nil
	}
	return &partial{size: size, cost: min(diskCost(size), dp.reserved), at: time.Now()}
}

func (dp *diskPut) reserve(n int64) error {
	if dp.unverified {
		if !dp.disk.budget.reserve(n) && (!dp.disk.dropPartials(0, 0) || !dp.disk.budget.reserve(n)) {
			return noHeadroom(n, dp.disk.Usage())
		}
		dp.reserved += n
		return nil
	}
	if err := dp.disk.reserve(n); err != nil {
		return err
	}
	dp.reserved += n
	return nil
}

// tooLarge rejects a body that can never be stored, because of the limit for
// one object or because the whole store is too small.
func (d *Disk) tooLarge(size int64) error {
	if d.capped {
		return fault.New(opPut, fault.BodyTooLarge, "%d bytes; the maximum of an object is %d", size, d.maxObject).
			Advise("Put it in parts, or raise store.max_object_bytes.")
	}
	return fault.New(opPut, fault.StoreFull, "%d bytes; the whole store has %d", size, d.budget.limit)
}
