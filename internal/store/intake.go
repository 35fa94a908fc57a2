package store

import (
	"context"
	"io"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/flow"
)

const opPut = "store.put"

// firstBlock is what a body of unknown size gets to begin with. Most are small,
// and a store that is nearly full must not refuse them for want of a slab.
const firstBlock = 4 << 10

// Put takes an object in.
func (r *RAM) Put(ctx context.Context, src io.Reader, opt PutOptions) (Info, bool, error) {
	if err := r.refuse(ctx, opPut); err != nil {
		return Info{}, false, err
	}
	if !opt.Want.IsZero() {
		if info, here := r.again(opt.Want, opt.Class); here {
			return info, false, nil
		}
	}
	in := intake{ram: r, declared: opt.Size}
	defer in.abandon()
	if err := in.take(ctx, src); err != nil {
		if fault.KindOf(err) == fault.StoreFull {
			r.refusals.Add(1)
		}
		return Info{}, false, err
	}
	address := r.addressOf(in.blocks)
	if !opt.Want.IsZero() && address != opt.Want {
		r.mismatches.Add(1)
		return Info{}, false, fault.Wrap(opPut, &b3.Mismatch{Want: opt.Want, Got: address})
	}
	if err := flow.Ended(ctx, opPut); err != nil {
		return Info{}, false, err
	}
	return in.commit(address, opt.Class)
}

// again finds an object that is here already, as a Put of it would leave it.
func (r *RAM) again(a b3.Address, class Class) (info Info, here bool) {
	s := r.shard(a)
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.objects[a]
	if o == nil {
		return Info{}, false
	}
	return r.putAgain(s, o, class), true
}

// putAgain is what a Put of a visible object does. The shard's mutex is held.
func (r *RAM) putAgain(s *shard, o *object, class Class) Info {
	s.touch(o)
	if class == Pinned {
		r.reclass(s, o, Pinned)
	}
	return o.info()
}

// addressOf hashes what lies in a row of blocks.
//
// This is done when the body is complete, and not while it comes in: a hasher
// takes 18 KiB, and a thousand slow bodies would hold a thousand of them.
func (r *RAM) addressOf(blocks [][]byte) b3.Address {
	switch len(blocks) {
	case 0:
		return b3.Of(nil)
	case 1:
		return b3.Of(blocks[0])
	}
	h := r.hashers.Get().(*b3.Hasher)
	for _, block := range blocks {
		_, _ = h.Write(block) // it never fails
	}
	address := h.Sum()
	r.retire(h)
	return address
}

// retire lets somebody else have the hasher. It holds the last bytes of what it
// hashed.
func (r *RAM) retire(h *b3.Hasher) {
	h.Reset()
	if r.slabs.zero {
		*h = b3.Hasher{}
	}
	r.hashers.Put(h)
}

// intake is a body on its way in. It belongs to the one Put that made it.
type intake struct {
	ram      *RAM
	declared int64 // or Unknown

	reserved int64 // what it has of the budget
	entry    bool  // whether bookkeeping is charged as memory
	size     int64
	blocks   [][]byte // the last one's length is how much of it is filled
}

// take reserves what is known to be needed, and only then reads the body.
func (in *intake) take(ctx context.Context, src io.Reader) error {
	if err := in.begin(); err != nil {
		return err
	}
	return in.fill(ctx, src)
}

// begin reserves what is known to be needed.
func (in *intake) begin() error {
	need := int64(entryCost)
	switch {
	case in.declared < Unknown:
		return fault.New(opPut, fault.Malformed, "a size of %d bytes", in.declared)
	case in.declared > in.ram.maxObject:
		return in.tooLarge(in.declared)
	case in.declared != Unknown:
		need = costOf(in.declared)
	}
	if err := in.reserve(need); err != nil {
		return err
	}
	if in.declared <= slabSize {
		in.ram.slabs.charge(entryCost)
		in.entry = true
	}
	return nil
}

// fill reads the body to its end.
func (in *intake) fill(ctx context.Context, src io.Reader) error {
	for {
		room, err := in.room()
		if err != nil || len(room) == 0 {
			return in.expectEnd(ctx, src, err)
		}
		n, err := ReadBody(ctx, src, room)
		in.grow(n)
		if err == io.EOF {
			return in.end()
		}
		if err != nil {
			return BodyFault(ctx, err)
		}
	}
}

// room is where the next bytes go. There is none when all that was declared has
// come; there is an error when no more can be had.
func (in *intake) room() ([]byte, error) {
	if in.declared != Unknown {
		return in.planned(), nil
	}
	if in.size > in.ram.maxObject {
		return nil, in.tooLarge(in.size)
	}
	last := len(in.blocks) - 1
	switch {
	case last < 0:
		return in.another(firstBlock)
	case len(in.blocks[last]) < cap(in.blocks[last]):
	case last == 0 && cap(in.blocks[0]) < slabSize:
		if err := in.reserve(slabSize); err != nil {
			return nil, err
		}
		in.move(slabSize)
	default:
		return in.another(slabSize)
	}
	block := in.blocks[last]
	return block[len(block):cap(block)], nil
}

// planned is the room of a body whose size was declared. It is reserved.
func (in *intake) planned() []byte {
	rest := in.declared - in.size
	if rest == 0 {
		return nil
	}
	filled := int(in.size % slabSize)
	if filled == 0 {
		in.blocks = append(in.blocks, in.ram.slabs.take(int(min(rest, slabSize)))[:0])
	}
	return in.blocks[len(in.blocks)-1][filled:min(int64(filled)+rest, slabSize)]
}

// another adds an empty block of unplanned size.
func (in *intake) another(size int) ([]byte, error) {
	if err := in.reserve(int64(size)); err != nil {
		return nil, err
	}
	in.blocks = append(in.blocks, in.ram.slabs.take(size)[:0])
	if len(in.blocks) == 2 {
		in.forgetEntry()
	}
	return in.blocks[len(in.blocks)-1][:size], nil
}

// forgetEntry ends the charge for bookkeeping: the object has become large.
func (in *intake) forgetEntry() {
	in.ram.slabs.discharge(entryCost)
	in.entry = false
	in.give(entryCost)
}

// move exchanges the last block for one of another size, which is reserved.
func (in *intake) move(size int) {
	last := len(in.blocks) - 1
	old := in.blocks[last]
	in.blocks[last] = append(in.ram.slabs.take(size)[:0], old...)
	in.ram.slabs.give(old)
	in.give(int64(cap(old)))
}

// grow notes that n more bytes lie in the last block.
func (in *intake) grow(n int) {
	in.size += int64(n)
	last := len(in.blocks) - 1
	in.blocks[last] = in.blocks[last][:len(in.blocks[last])+n]
}

// expectEnd is called when no more bytes can be taken: because all that were
// declared have come, or because of a refusal. The body may end just here.
func (in *intake) expectEnd(ctx context.Context, src io.Reader, refusal error) error {
	var one [1]byte
	n, err := ReadBody(ctx, src, one[:])
	switch {
	case n > 0 && refusal != nil:
		return refusal
	case n > 0:
		return fault.New(opPut, fault.Malformed, "%d bytes were declared, and more came", in.declared)
	case err == io.EOF:
		return in.end()
	default:
		return BodyFault(ctx, err)
	}
}

// end checks the size, and fits the last block to what is in it.
func (in *intake) end() error {
	if in.declared != Unknown && in.size < in.declared {
		return fault.New(opPut, fault.Malformed, "%d bytes were declared, and %d came", in.declared, in.size)
	}
	if in.size > in.ram.maxObject {
		return in.tooLarge(in.size)
	}
	in.fit()
	return nil
}

// fit exchanges the last block for a smaller one if that would do and can be
// had without evicting anything.
func (in *intake) fit() {
	last := len(in.blocks) - 1
	if last < 0 {
		return
	}
	filled := len(in.blocks[last])
	if filled == 0 {
		in.dropLast()
		return
	}
	cost := int64(blockSizes[kindOf(filled)])
	if cost < int64(cap(in.blocks[last])) && in.ram.budget.take(cost) {
		in.reserved += cost
		in.move(filled)
	}
}

// dropLast gives the last block back: the body ended just before it. If one
// block is left, the object has not become large after all.
func (in *intake) dropLast() {
	last := len(in.blocks) - 1
	block := in.blocks[last]
	in.ram.slabs.give(block)
	in.blocks = in.blocks[:last]
	refund := int64(cap(block))
	if last == 1 {
		in.ram.slabs.charge(entryCost)
		in.entry = true
		refund -= entryCost
	}
	in.give(refund)
}

// commit makes the object visible, unless it has become so meanwhile.
func (in *intake) commit(a b3.Address, class Class) (Info, bool, error) {
	r, s := in.ram, in.ram.shard(a)
	o := in.object(a, class)
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.closed.Load() {
		return Info{}, false, closed(opPut)
	}
	if old := s.objects[a]; old != nil {
		return r.putAgain(s, old, class), false, nil
	}
	o.count.add()
	s.add(o)
	r.count(o)
	*in = intake{ram: r, declared: in.declared} // what it had is the object's now
	return o.info(), true, nil
}

// object is what the intake will have become.
func (in *intake) object(a b3.Address, class Class) *object {
	o := &object{address: a, size: in.size, cost: in.reserved, class: class}
	if len(in.blocks) == 1 {
		o.single[0] = in.blocks[0]
		o.blocks = o.single[:]
	} else {
		o.blocks = in.blocks
	}
	return o
}

// abandon gives back what did not become an object.
func (in *intake) abandon() {
	for _, block := range in.blocks {
		in.ram.slabs.give(block)
	}
	if in.entry {
		in.ram.slabs.discharge(entryCost)
	}
	in.ram.budget.give(in.reserved)
}

func (in *intake) reserve(n int64) error {
	if !in.ram.reserve(n) {
		u := in.ram.Usage()
		return fault.New(opPut, fault.StoreFull, "no room for %d more bytes: %d of %d are in use, and too few of them can be freed", n, u.Held, u.Budget)
	}
	in.reserved += n
	return nil
}

func (in *intake) give(n int64) {
	in.reserved -= n
	in.ram.budget.give(n)
}

// tooLarge refuses a body that can never be kept, because of the limit for one
// object or because the whole store is too small.
func (in *intake) tooLarge(size int64) error {
	r := in.ram
	if r.capped {
		err := fault.New(opPut, fault.BodyTooLarge, "%d bytes, and an object may have %d", size, r.maxObject)
		err.Next = "Put it in parts, or raise store.max_object_bytes."
		return err
	}
	return fault.New(opPut, fault.StoreFull, "%d bytes, and the whole store has %d", size, r.budget.limit)
}
