package storetest

import (
	"bytes"
	"context"
	"io"
	"sync"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/store"
)

var roomChecks = []Check{
	{Name: "a full store refuses before it reads", bounded: true, rule: roomFull},
	{Name: "one object may take the whole budget", bounded: true, rule: roomWhole},
	{Name: "an endless body is refused and gives all back", bounded: true, rule: roomEndless},
	{Name: "what cannot fit evicts nothing", bounded: true, rule: roomInVain},
	{Name: "cached objects make room", bounded: true, rule: roomEvict},
	{Name: "pinned objects stay", bounded: true, rule: roomPinned},
	{Name: "open objects stay", bounded: true, rule: roomOpen},
	{Name: "objects in use stay", bounded: true, rule: roomUsed},
	{Name: "pin and unpin take effect", bounded: true, rule: roomPin},
	{Name: "many half-finished puts keep to the budget", bounded: true, rule: roomHalfFinished},
}

// piece is a sixteenth of the budget.
func (c *subject) piece(seed uint64) []byte {
	return content(seed, int(c.s.Usage().Budget/16))
}

// fill puts pinned pieces until there is no room for another.
func (c *subject) fill() (pieces [][]byte) {
	c.Helper()
	for seed := range uint64(17) {
		data := c.piece(seed)
		_, _, err := c.s.Put(c.ctx, bytes.NewReader(data), known(data, store.Pinned))
		if err != nil {
			c.refused(err, "put into a full store", fault.StoreFull)
			break
		}
		pieces = append(pieces, data)
		c.within()
	}
	if len(pieces) < 12 || len(pieces) > 16 {
		c.Fatalf("%d pieces of a sixteenth of the budget went in; it should be most of 16, and not more", len(pieces))
	}
	return pieces
}

// flood puts cached pieces, n budgets of them. Each must find room.
func (c *subject) flood(budgets int, each func()) (last []byte) {
	c.Helper()
	for seed := range uint64(16 * budgets) {
		last = c.piece(1000 + seed)
		if _, _, err := c.s.Put(c.ctx, bytes.NewReader(last), known(last, store.Cached)); err != nil {
			c.Fatalf("put of a cached piece: %v", err)
		}
		c.within()
		if each != nil {
			each()
		}
	}
	return last
}

func roomFull(c *subject) {
	pieces := c.fill()
	refusals := c.s.Counts().Refusals
	c.unchanged("a put into a full store", func() {
		late := c.piece(99)
		src := &countingReader{Reader: bytes.NewReader(late)}
		_, _, err := c.s.Put(c.ctx, src, known(late, store.Pinned))
		c.refused(err, "put into a full store", fault.StoreFull)
		if src.reads != 0 {
			c.Errorf("the body was read %d times before it was refused", src.reads)
		}
		_, _, err = c.s.Put(c.ctx, bytes.NewReader(late), unknown(store.Cached))
		c.refused(err, "put of unknown size into a full store", fault.StoreFull)
	})
	if n := c.s.Counts().Refusals - refusals; n != 2 {
		c.Errorf("2 puts were refused, %d were counted", n)
	}
	_, created, err := c.s.Put(c.ctx, bytes.NewReader(pieces[3]), store.PutOptions{Want: b3.Of(pieces[3]), Size: int64(len(pieces[3]))})
	if err != nil || created {
		c.Errorf("put of what is there, into a full store: created %t, %v", created, err)
	}
	for _, data := range pieces {
		c.holds(data)
	}
	c.delete(b3.Of(pieces[0]))
	c.put(c.piece(99), store.Pinned)
}

func roomWhole(c *subject) {
	c.flood(1, nil)
	data := content(1, int(c.s.Usage().Budget))
	for _, opt := range []store.PutOptions{known(data, store.Pinned), unknown(store.Pinned)} {
		_, _, err := c.s.Put(c.ctx, bytes.NewReader(data), opt)
		if fault.KindOf(err) == fault.BodyTooLarge {
			continue // the store was made with a limit for one object
		}
		if err != nil {
			c.Fatalf("put of an object as large as the budget: %v", err)
		}
		c.holds(data)
		c.delete(b3.Of(data))
	}
}

func roomEndless(c *subject) {
	kept := c.piece(1)
	c.put(kept, store.Pinned)
	for range 3 {
		c.unchanged("an endless body", func() {
			src := &countingReader{Reader: endless{}}
			_, _, err := c.s.Put(c.ctx, src, unknown(store.Pinned))
			c.refused(err, "put of an endless body", fault.StoreFull, fault.BodyTooLarge)
			if src.bytes > c.s.Usage().Budget+mib {
				c.Errorf("%d bytes were read for a budget of %d", src.bytes, c.s.Usage().Budget)
			}
		})
		c.holds(kept)
	}
}

func roomInVain(c *subject) {
	var pinned, cached [][]byte
	for seed := range uint64(6) {
		pinned = append(pinned, c.piece(seed))
		cached = append(cached, c.piece(100+seed))
		c.put(pinned[seed], store.Pinned)
		c.put(cached[seed], store.Cached)
	}
	budget := c.s.Usage().Budget
	for _, size := range []int64{budget * 3 / 4, budget + 1, 1 << 40, 1<<63 - 1} {
		c.unchanged("a put that can never fit", func() {
			src := &countingReader{Reader: endless{}}
			_, _, err := c.s.Put(c.ctx, src, store.PutOptions{Size: size})
			c.refused(err, "put that can never fit", fault.StoreFull, fault.BodyTooLarge)
			if src.reads != 0 {
				c.Errorf("a body of %d bytes was read %d times before it was refused", size, src.reads)
			}
		})
	}
	for _, data := range append(pinned, cached...) {
		c.holds(data)
	}
}

func roomEvict(c *subject) {
	first := c.piece(1)
	c.put(first, store.Cached)
	last := c.flood(4, nil)
	c.holds(last)
	c.lacks(first)
	if c.s.Counts().Evictions < 32 {
		c.Errorf("4 budgets went in, and %d objects were evicted", c.s.Counts().Evictions)
	}
	if u := c.s.Usage(); u.Bytes < u.Budget/2 {
		c.Errorf("after 4 budgets went in, only %d bytes of %d are kept", u.Bytes, u.Budget)
	}
	c.put(first, store.Cached) // it can come back
	c.holds(first)
}

func roomPinned(c *subject) {
	var pinned [][]byte
	for seed := range uint64(5) {
		pinned = append(pinned, c.piece(seed))
		c.put(pinned[seed], store.Pinned)
	}
	c.flood(3, nil)
	for _, data := range pinned {
		c.holds(data)
	}
}

func roomOpen(c *subject) {
	data := c.piece(1)
	a := c.put(data, store.Cached)
	h := c.open(a)
	c.flood(4, nil)
	if !c.has(a) {
		c.Errorf("an object was evicted while it was open")
	}
	if err := compare(h, data); err != nil {
		c.Errorf("after 4 budgets went in: %v", err)
	}
	c.close(h)
	c.flood(4, nil)
	c.lacks(data)
}

func roomUsed(c *subject) {
	data := c.piece(1)
	a := c.put(data, store.Cached)
	c.flood(4, func() {
		c.Helper()
		for range 3 {
			h, err := c.s.Open(c.ctx, a)
			if err != nil {
				c.Fatalf("an object that was used before every put was evicted: %v", err)
			}
			c.close(h)
		}
	})
	c.holds(data)
}

func roomPin(c *subject) {
	data := c.piece(1)
	a := c.put(data, store.Cached)
	c.change("Pin", c.s.Pin, a, store.Pinned)
	c.flood(3, nil)
	c.holds(data)
	c.change("Unpin", c.s.Unpin, a, store.Cached)
	c.flood(4, nil)
	c.lacks(data)
}

// change pins or unpins, twice: the second time changes nothing.
func (c *subject) change(what string, do func(context.Context, b3.Address) error, a b3.Address, want store.Class) {
	c.Helper()
	for range 2 {
		if err := do(c.ctx, a); err != nil {
			c.Fatalf("%s: %v", what, err)
		}
		if info, err := c.s.Stat(c.ctx, a); err != nil || info.Class != want {
			c.Fatalf("after %s: %+v, %v", what, info, err)
		}
	}
	c.balance()
}

// roomHalfFinished starts more bodies than fit, each of which stops half way.
// Whatever the order, the budget holds, and all is given back in the end.
func roomHalfFinished(c *subject) {
	kept := c.piece(1)
	c.put(kept, store.Pinned)
	before := c.s.Usage()
	const bodies = 40
	var arrived sync.WaitGroup // those who have read their half, or were refused
	arrived.Add(bodies)
	stop := make(chan struct{})
	ctx, cancel := context.WithCancel(c.ctx)
	together(bodies+1, func(i int) {
		if i == bodies {
			arrived.Wait()
			c.within()
			if u := c.s.Usage(); u.Held <= before.Held {
				c.Errorf("%d puts are under way and hold nothing", bodies)
			}
			cancel()
			close(stop)
			return
		}
		data := c.piece(uint64(2 + i))
		half := &stalled{data: data[:len(data)/2], arrived: arrived.Done, stop: stop}
		opt := unknown(store.Class(i % 2))
		if i%3 == 0 {
			opt = known(data, store.Pinned)
		}
		_, _, err := c.s.Put(ctx, half, opt)
		half.once.Do(arrived.Done)
		if kind := fault.KindOf(err); kind != fault.Canceled && kind != fault.BrokenPipe && kind != fault.StoreFull {
			c.Errorf("a half-finished put: %v", err)
		}
	})
	after := c.s.Usage()
	before.Idle, after.Idle = 0, 0
	if before != after {
		c.Errorf("half-finished puts left something behind: %+v before, %+v after", before, after)
	}
	c.holds(kept)
}

// stalled gives its data, and then nothing until it is stopped.
type stalled struct {
	data    []byte
	once    sync.Once
	arrived func()
	stop    chan struct{}
}

func (r *stalled) Read(p []byte) (int, error) {
	if len(r.data) > 0 {
		n := copy(p, r.data)
		r.data = r.data[n:]
		return n, nil
	}
	r.once.Do(r.arrived)
	<-r.stop
	return 0, io.ErrUnexpectedEOF
}
