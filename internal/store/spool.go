package store

import (
	"context"
	"io"
	"os"

	"micronode/b3"
	"micronode/fault"
)

// Put takes an object in: to a temporary file, which becomes the object's own
// when all of it is there and right.
func (d *Disk) Put(ctx context.Context, src io.Reader, opt PutOptions) (Info, bool, error) {
	if err := d.refuse(ctx, opPut); err != nil {
		return Info{}, false, err
	}
	if !d.enter() {
		return Info{}, false, closed(opPut)
	}
	defer d.leave()
	if !opt.Want.IsZero() {
		if info, here, err := d.again(ctx, opt.Want, opt.Class); here || err != nil {
			return info, false, err
		}
	}
	sp := spool{disk: d, declared: opt.Size}
	defer sp.abandon()
	info, created, err := sp.put(ctx, src, opt)
	if fault.KindOf(err) == fault.StoreFull {
		d.refusals.Add(1)
	}
	return info, created, err
}

// again finds an object that is here already, as a Put of it would leave it.
func (d *Disk) again(ctx context.Context, a b3.Address, class Class) (info Info, here bool, err error) {
	s := d.shard(a)
	s.mu.Lock()
	o := s.objects[a]
	if o != nil {
		s.touch(o)
		info = o.info()
	}
	s.mu.Unlock()
	if o == nil || class != Pinned || info.Class == Pinned {
		return info, o != nil, nil
	}
	err = d.change(ctx, opPut, a, d.mover(Pinned))
	if fault.KindOf(err) == fault.NotFound {
		return Info{}, false, nil // it went just now
	}
	info.Class = Pinned
	return info, true, err
}

// allocateFrom is how large a body must be declared to be for room on the disk
// to be asked for beforehand.
const allocateFrom = 256 << 10

// spool is a body on its way to disk. It belongs to the one Put that made it.
type spool struct {
	disk     *Disk
	declared int64 // or Unknown

	reserved int64 // what it has of the budget
	size     int64
	buffer   *piece
	fill     int // how much of the buffer waits to be written

	// nil as long as all of it fits into the buffer
	tree *b3.TreeHasher // of what was written
	file *os.File
}

// put does all but tidy up.
func (sp *spool) put(ctx context.Context, src io.Reader, opt PutOptions) (Info, bool, error) {
	if err := sp.begin(); err != nil {
		return Info{}, false, err
	}
	sp.buffer = pieces.Get().(*piece)
	if err := sp.take(ctx, src); err != nil {
		return Info{}, false, err
	}
	address := sp.address()
	if !opt.Want.IsZero() && address != opt.Want {
		sp.disk.mismatches.Add(1)
		return Info{}, false, fault.Wrap(opPut, &b3.Mismatch{Want: opt.Want, Got: address})
	}
	if err := sp.disk.refuse(ctx, opPut); err != nil {
		return Info{}, false, err
	}
	return sp.commit(ctx, address, opt.Class)
}

// begin reserves what is known to be needed.
func (sp *spool) begin() error {
	switch {
	case sp.declared < Unknown:
		return fault.New(opPut, fault.Malformed, "a size of %d bytes", sp.declared)
	case sp.declared > sp.disk.maxObject:
		return sp.disk.tooLarge(sp.declared)
	case sp.declared == Unknown:
		return nil
	}
	return sp.reserve(diskCost(sp.declared))
}

// take reads the body to its end. The last part of it stays in the buffer.
func (sp *spool) take(ctx context.Context, src io.Reader) error {
	for {
		if sp.declared == sp.size {
			return sp.expectEnd(ctx, src)
		}
		if err := sp.flush(); err != nil {
			return err
		}
		room := sp.buffer.room[sp.fill:pieceSize]
		if sp.declared != Unknown {
			room = room[:min(int64(len(room)), sp.declared-sp.size)]
		}
		n, err := ReadBody(ctx, src, room)
		sp.fill += n
		sp.size += int64(n)
		if err == io.EOF {
			return sp.end()
		}
		if err != nil {
			return BodyFault(ctx, err)
		}
	}
}

// flush writes the buffer to the file when it is full.
func (sp *spool) flush() error {
	if sp.fill < pieceSize {
		return nil
	}
	if err := sp.grow(); err != nil {
		return err
	}
	if sp.tree == nil {
		sp.tree = b3.NewTreeHasher()
	}
	_, _ = sp.tree.Write(sp.buffer.room[:sp.fill]) // it never fails
	err := sp.write(sp.buffer.room[:sp.fill])
	sp.fill = 0
	return diskFault(opPut, err)
}

// address is that of the whole body, part of which waits in the buffer.
func (sp *spool) address() b3.Address {
	rest := sp.buffer.room[:sp.fill]
	if sp.tree == nil {
		return b3.Of(rest)
	}
	_, _ = sp.tree.Write(rest) // it never fails
	return sp.tree.Sum()
}

// grow reserves what a body of unknown size has come to need.
func (sp *spool) grow() error {
	if sp.size > sp.disk.maxObject {
		return sp.disk.tooLarge(sp.size)
	}
	if more := diskCost(sp.size) - sp.reserved; more > 0 {
		return sp.reserve(more)
	}
	return nil
}

// write appends to the temporary file, which is made when it is needed.
func (sp *spool) write(p []byte) (err error) {
	tree := &sp.disk.tree
	if sp.file == nil {
		if sp.file, err = tree.create(); err != nil {
			return err
		}
		if sp.declared >= allocateFrom {
			if err := tree.allocate(sp.file, lengthOf(sp.declared)); err != nil {
				return err
			}
		}
	}
	return tree.write(sp.file, p)
}

// expectEnd is called when all that was declared has come.
func (sp *spool) expectEnd(ctx context.Context, src io.Reader) error {
	var one [1]byte
	n, err := ReadBody(ctx, src, one[:])
	switch {
	case n > 0:
		return fault.New(opPut, fault.Malformed, "%d bytes were declared, and more came", sp.declared)
	case err == io.EOF:
		return sp.end()
	default:
		return BodyFault(ctx, err)
	}
}

// end checks the size.
func (sp *spool) end() error {
	if sp.declared != Unknown && sp.size < sp.declared {
		return fault.New(opPut, fault.Malformed, "%d bytes were declared, and %d came", sp.declared, sp.size)
	}
	return sp.grow()
}

// commit makes the object visible, unless it has become so meanwhile. Others
// who put the same wait for the end of the errand, and find it.
func (sp *spool) commit(ctx context.Context, a b3.Address, class Class) (Info, bool, error) {
	d := sp.disk
	if err := d.begin(ctx, opPut, a); err != nil {
		return Info{}, false, err
	}
	defer d.end(a)
	if o, path := d.find(a); o != nil {
		info, err := d.putAgain(o, path, class)
		return info, false, diskFault(opPut, err)
	}
	path := d.tree.path(a, sp.size, class)
	if err := sp.publish(path); err != nil {
		return Info{}, false, diskFault(opPut, err)
	}
	o := &object{address: a, size: sp.size, cost: sp.reserved, class: class}
	o.count.add()
	if !d.show(o) {
		_ = d.tree.remove(path) // the store was closed; if the file stays, it is a good one
		return Info{}, false, closed(opPut)
	}
	sp.reserved = 0 // it is the object's now
	return Info{Address: a, Size: o.size, Class: class}, true, nil
}

// putAgain is what a Put of a visible object does. It is called on an errand.
func (d *Disk) putAgain(o *object, path string, class Class) (Info, error) {
	s := d.shard(o.address)
	s.mu.Lock()
	s.touch(o)
	info := o.info()
	s.mu.Unlock()
	if class == Pinned {
		info.Class = Pinned
		return info, d.mover(Pinned)(o, path)
	}
	return info, nil
}

// show makes a new object visible, unless the store is closed.
func (d *Disk) show(o *object) bool {
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
func (sp *spool) publish(path string) error {
	rest := sp.buffer.room[:sp.fill]
	if !isSmall(sp.size) {
		rest = append(rest, sp.tree.Outboard()...) // in place, if it is short enough
	}
	if err := sp.write(rest); err != nil {
		return err
	}
	if err := sp.disk.tree.finish(sp.file); err != nil {
		return err
	}
	if err := sp.disk.tree.publish(sp.file, path); err != nil {
		return err
	}
	sp.file = nil
	return nil
}

// abandon gives back what did not become an object.
func (sp *spool) abandon() {
	if sp.file != nil {
		sp.disk.tree.drop(sp.file)
	}
	if sp.buffer != nil {
		_ = sp.buffer.Close() // documented to be nil
	}
	sp.disk.budget.give(sp.reserved)
}

func (sp *spool) reserve(n int64) error {
	if err := sp.disk.reserve(n); err != nil {
		return err
	}
	sp.reserved += n
	return nil
}

// tooLarge refuses a body that can never be kept, because of the limit for one
// object or because the whole store is too small.
func (d *Disk) tooLarge(size int64) error {
	if d.capped {
		err := fault.New(opPut, fault.BodyTooLarge, "%d bytes, and an object may have %d", size, d.maxObject)
		err.Next = "Put it in parts, or raise store.max_object_bytes."
		return err
	}
	return fault.New(opPut, fault.StoreFull, "%d bytes, and the whole store has %d", size, d.budget.limit)
}
