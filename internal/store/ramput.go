package store

import (
	"context"
	"io"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/flow"
)

const opPut = "store.put"

// firstBlockSize is the first block of a body of unknown size. Most are small,
// and a store that is nearly full must not reject them for lack of a slab.
const firstBlockSize = 4 << 10

// Put stores an object.
func (r *RAM) Put(ctx context.Context, src io.Reader, opt PutOptions) (info Info, created bool, err error) {
	if err := r.checkOpen(ctx, opPut); err != nil {
		return Info{}, false, err
	}
	if !opt.Want.IsZero() {
		if info, here := r.findForPut(opt.Want, opt.Class); here {
			return info, false, nil
		}
	}
	in := ramPut{ram: r, declared: opt.Size, unverified: opt.Unverified}
	defer func() { in.abandon(err) }()
	in.arrival = opt.Arrival
	defer opt.Arrival.end()
	in.takePartial(opt)
	if err := in.readAll(ctx, src); err != nil {
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
	info, created, err = in.commit(address, opt.Class)
	if created && opt.Unverified {
		r.restoreHeadroom(ctx, address)
	}
	return info, created, err
}

// noHeadroom rejects unverified bytes that would have to evict something.
func noHeadroom(n int64, u Usage) error {
	return fault.New(opPut, fault.StoreFull, "no space for %d more unverified bytes: %d of %d are in use, and nothing is evicted for unverified bytes", n, u.Held, u.Budget).
		Advise("Delete objects, or give the store more space (store.ram_bytes, store.disk_bytes).")
}

// findForPut finds an existing object and returns the result of a Put of it.
func (r *RAM) findForPut(a b3.Address, class Class) (info Info, here bool) {
	s := r.shard(a)
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.objects[a]
	if o == nil {
		return Info{}, false
	}
	return r.putExisting(s, o, class), true
}

// putExisting does what a Put of a visible object does. The shard's mutex is
// held.
func (r *RAM) putExisting(s *shard, o *object, class Class) Info {
	s.touch(o)
	r.setClassLocked(s, o, o.class.With(class))
	return o.info()
}

// addressOf hashes a list of blocks.
//
// This is done when the body is complete, and not while it is read: a hasher
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
	r.putHasher(h)
	return address
}

// putHasher returns a hasher to the pool. It holds the last bytes of what it
// hashed.
func (r *RAM) putHasher(h *b3.Hasher) {
	h.Reset()
	if r.slabs.zero {
		*h = b3.Hasher{}
	}
	r.hashers.Put(h)
}

// ramPut is a body that is being read. It belongs to the one Put that made it.
type ramPut struct {
	ram      *RAM
	declared int64 // or Unknown

	unverified bool // it evicts nothing

	reserved        int64 // its part of the budget
	overheadCharged bool  // whether bookkeeping is charged as memory
	size            int64
	blocks          [][]byte // the last one's length is how much of it is filled

	arrival *Arrival // locked to change size and blocks; nil if nobody reads

	// of a Put with Resume
	taken  b3.Address // whose partial it has taken; zero if it leaves none
	resume func(kept io.ReaderAt, n int64, good io.Writer) error
}

// takePartial takes what is kept of the object.
func (p *ramPut) takePartial(opt PutOptions) {
	if opt.Resume == nil || opt.Want.IsZero() || opt.Size < minPartial {
		return
	}
	one, ok := p.ram.partials.take(opt.Want)
	if !ok {
		return
	}
	p.taken, p.resume = opt.Want, opt.Resume
	if one != nil {
		p.blocks, p.reserved = one.blocks, one.cost
	}
}

// goOn reads what is kept instead of the front of the body, as far as it is
// right.
func (p *ramPut) goOn() error {
	if len(p.blocks) == 0 {
		return nil
	}
	kept := blockReader(p.blocks)
	err := p.resume(kept, kept.size(), (*ramKept)(p))
	whole := int((p.size + slabSize - 1) / slabSize)
	rest := p.blocks[whole:]
	p.arrival.changeRAM(p, func() {
		p.blocks = p.blocks[:whole:whole]
		if last := whole - 1; last >= 0 {
			p.blocks[last] = p.blocks[last][:p.size-int64(last)*slabSize]
		}
	})
	for _, block := range rest {
		p.ram.slabs.put(block)
	}
	return err
}

// ramKept is a ramPut that takes bytes over which are in its blocks already.
type ramKept ramPut

func (k *ramKept) Write(b []byte) (int, error) {
	p := (*ramPut)(k)
	p.arrival.changeRAM(p, func() { p.size += int64(len(b)) })
	return len(b), nil
}

// blockReader reads blocks, of which all but the last are whole slabs.
type blockReader [][]byte

func (b blockReader) size() (n int64) {
	for _, block := range b {
		n += int64(len(block))
	}
	return n
}

func (b blockReader) ReadAt(p []byte, off int64) (n int, err error) {
	for n < len(p) {
		at := int(off / slabSize)
		if at >= len(b) || off%slabSize >= int64(len(b[at])) {
			return n, io.EOF
		}
		copied := copy(p[n:], b[at][off%slabSize:])
		n, off = n+copied, off+int64(copied)
	}
	return n, nil
}

// readAll reserves the declared size, and only then reads the body.
func (p *ramPut) readAll(ctx context.Context, src io.Reader) error {
	if err := p.reserveDeclared(); err != nil {
		return err
	}
	if err := p.goOn(); err != nil {
		return err
	}
	return p.readBody(ctx, src)
}

// reserveDeclared reserves the declared size.
func (p *ramPut) reserveDeclared() error {
	need := int64(objectOverhead)
	switch {
	case p.declared < Unknown:
		return fault.New(opPut, fault.Malformed, "a size of %d bytes", p.declared)
	case p.declared > p.ram.maxObject:
		return p.tooLarge(p.declared)
	case p.declared != Unknown:
		need = ramCost(p.declared) - p.reserved // some may be kept
	}
	if err := p.reserve(need); err != nil {
		return err
	}
	if p.declared <= slabSize {
		p.ram.slabs.charge(objectOverhead)
		p.overheadCharged = true
	}
	return nil
}

// readBody reads the body to its end.
func (p *ramPut) readBody(ctx context.Context, src io.Reader) error {
	for {
		space, err := p.nextSpace()
		if err != nil || len(space) == 0 {
			return p.expectEnd(ctx, src, err)
		}
		n, err := ReadBody(ctx, src, space)
		p.advance(n)
		if err == io.EOF {
			return p.finish()
		}
		if err != nil {
			return BodyFault(ctx, err)
		}
	}
}

// nextSpace returns where the next bytes are read to. It is empty when
// everything declared has been read; the error is for lack of space.
func (p *ramPut) nextSpace() ([]byte, error) {
	if p.declared != Unknown {
		return p.declaredSpace(), nil
	}
	if p.size > p.ram.maxObject {
		return nil, p.tooLarge(p.size)
	}
	last := len(p.blocks) - 1
	switch {
	case last < 0:
		return p.addBlock(firstBlockSize)
	case len(p.blocks[last]) < cap(p.blocks[last]):
	case last == 0 && cap(p.blocks[0]) < slabSize:
		if err := p.reserve(slabSize); err != nil {
			return nil, err
		}
		p.replaceLast(slabSize)
	default:
		return p.addBlock(slabSize)
	}
	block := p.blocks[last]
	return block[len(block):cap(block)], nil
}

// declaredSpace returns the next space of a body whose size was declared. It is
// reserved.
func (p *ramPut) declaredSpace() []byte {
	rest := p.declared - p.size
	if rest == 0 {
		return nil
	}
	filled := int(p.size % slabSize)
	if filled == 0 {
		block := p.ram.slabs.get(int(min(rest, slabSize)))[:0]
		p.arrival.changeRAM(p, func() { p.blocks = append(p.blocks, block) })
	}
	return p.blocks[len(p.blocks)-1][filled:min(int64(filled)+rest, slabSize)]
}

// addBlock reserves and adds an empty block.
func (p *ramPut) addBlock(size int) ([]byte, error) {
	if err := p.reserve(int64(size)); err != nil {
		return nil, err
	}
	block := p.ram.slabs.get(size)[:0]
	p.arrival.changeRAM(p, func() { p.blocks = append(p.blocks, block) })
	if len(p.blocks) == 2 {
		p.dischargeOverhead()
	}
	return p.blocks[len(p.blocks)-1][:size], nil
}

// dischargeOverhead ends the charge for bookkeeping: the object has become large.
func (p *ramPut) dischargeOverhead() {
	p.ram.slabs.discharge(objectOverhead)
	p.overheadCharged = false
	p.release(objectOverhead)
}

// replaceLast replaces the last block by one of another size, which is
// reserved.
func (p *ramPut) replaceLast(size int) {
	last := len(p.blocks) - 1
	old := p.blocks[last]
	block := append(p.ram.slabs.get(size)[:0], old...)
	p.arrival.changeRAM(p, func() { p.blocks[last] = block })
	p.ram.slabs.put(old)
	p.release(int64(cap(old)))
}

// advance adds n bytes to the length of the last block.
func (p *ramPut) advance(n int) {
	p.arrival.changeRAM(p, func() {
		p.size += int64(n)
		last := len(p.blocks) - 1
		p.blocks[last] = p.blocks[last][:len(p.blocks[last])+n]
	})
}

// expectEnd is called when no more bytes can be read: because all that were
// declared have been, or because of a refusal. The body may end exactly here.
func (p *ramPut) expectEnd(ctx context.Context, src io.Reader, refusal error) error {
	var one [1]byte
	n, err := ReadBody(ctx, src, one[:])
	switch {
	case n > 0 && refusal != nil:
		return refusal
	case n > 0:
		return fault.New(opPut, fault.Malformed, "%d bytes were declared, but more arrived", p.declared)
	case err == io.EOF:
		return p.finish()
	default:
		return BodyFault(ctx, err)
	}
}

// finish checks the size, and shrinks the last block to its content.
func (p *ramPut) finish() error {
	if p.declared != Unknown && p.size < p.declared {
		return fault.New(opPut, fault.Malformed, "%d bytes were declared, but %d arrived", p.declared, p.size)
	}
	if p.size > p.ram.maxObject {
		return p.tooLarge(p.size)
	}
	p.shrinkLast()
	return nil
}

// shrinkLast replaces the last block by a smaller one if that is possible
// without evicting anything.
func (p *ramPut) shrinkLast() {
	last := len(p.blocks) - 1
	if last < 0 {
		return
	}
	filled := len(p.blocks[last])
	if filled == 0 {
		p.dropLast()
		return
	}
	cost := int64(blockSizes[sizeClass(filled)])
	if cost < int64(cap(p.blocks[last])) && p.ram.budget.reserve(cost) {
		p.reserved += cost
		p.replaceLast(filled)
	}
}

// dropLast frees the last block: the body ended just before it. If one block is
// left, the object has not become large after all.
func (p *ramPut) dropLast() {
	last := len(p.blocks) - 1
	block := p.blocks[last] // empty, so nobody reads it
	p.arrival.changeRAM(p, func() { p.blocks = p.blocks[:last] })
	p.ram.slabs.put(block)
	refund := int64(cap(block))
	if last == 1 {
		p.ram.slabs.charge(objectOverhead)
		p.overheadCharged = true
		refund -= objectOverhead
	}
	p.release(refund)
}

// commit makes the object visible, unless it exists by now.
func (p *ramPut) commit(a b3.Address, class Class) (Info, bool, error) {
	p.arrival.end() // from here on the object can be opened, or nothing is kept
	r, s := p.ram, p.ram.shard(a)
	o := p.object(a, class)
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.closed.Load() {
		return Info{}, false, closed(opPut)
	}
	if old := s.objects[a]; old != nil {
		return r.putExisting(s, old, class), false, nil
	}
	o.refs.retain()
	s.add(o)
	r.count(o)
	*p = ramPut{ram: r, declared: p.declared, taken: p.taken} // the object owns everything now
	return o.info(), true, nil
}

// object returns the object of the completed put.
func (p *ramPut) object(a b3.Address, class Class) *object {
	o := newObject(a, p.size, p.reserved, class, time.Now())
	if len(p.blocks) == 1 {
		o.inlineBlock[0] = p.blocks[0]
		o.blocks = o.inlineBlock[:]
	} else {
		o.blocks = p.blocks
	}
	return o
}

// abandon releases what did not become an object, or keeps it for the next Put.
func (p *ramPut) abandon(err error) {
	if !p.taken.IsZero() && p.keep(err) {
		return
	}
	for _, block := range p.blocks {
		p.ram.slabs.put(block)
	}
	if p.overheadCharged {
		p.ram.slabs.discharge(objectOverhead)
	}
	p.ram.budget.release(p.reserved)
	if !p.taken.IsZero() {
		p.ram.partials.put(p.taken, nil)
	}
}

// keep keeps what has arrived, if it is worth it.
func (p *ramPut) keep(err error) bool {
	if !isWorthKeeping(p.size, err) {
		return false
	}
	if last := len(p.blocks) - 1; len(p.blocks[last]) == 0 {
		p.ram.slabs.put(p.blocks[last])
		p.blocks = p.blocks[:last]
	}
	one := &partial{size: p.size, at: time.Now(), blocks: p.blocks}
	for _, block := range p.blocks {
		one.cost += int64(cap(block))
	}
	p.release(p.reserved - one.cost)
	p.ram.partials.put(p.taken, one)
	p.ram.dropPartials(maxPartials, p.ram.budget.limit/partialDivisor)
	if p.ram.closed.Load() {
		p.ram.dropPartials(0, 0)
	}
	return true
}

func (p *ramPut) reserve(n int64) error {
	reserve := p.ram.reserve
	if p.unverified {
		reserve = p.ram.budget.reserve
	}
	if !reserve(n) {
		u := p.ram.Usage()
		if p.unverified {
			return noHeadroom(n, u)
		}
		return fault.New(opPut, fault.StoreFull, "no space for %d more bytes: %d of %d are in use, and too few of them can be evicted", n, u.Held, u.Budget)
	}
	p.reserved += n
	return nil
}

func (p *ramPut) release(n int64) {
	p.reserved -= n
	p.ram.budget.release(n)
}

// tooLarge rejects a body that can never be stored, because of the limit for
// one object or because the whole store is too small.
func (p *ramPut) tooLarge(size int64) error {
	r := p.ram
	if r.capped {
		return fault.New(opPut, fault.BodyTooLarge, "%d bytes; the maximum of an object is %d", size, r.maxObject).
			Advise("Put it in parts, or raise store.max_object_bytes.")
	}
	return fault.New(opPut, fault.StoreFull, "%d bytes; the whole store has %d", size, r.budget.limit)
}
