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

var budgetChecks = []Check{
	{Name: "a full store refuses before it reads", bounded: true, rule: budgetFull},
	{Name: "one object may take the whole budget", bounded: true, rule: budgetWhole},
	{Name: "an endless body is refused and gives all back", bounded: true, rule: budgetEndless},
	{Name: "what cannot fit evicts nothing", bounded: true, rule: budgetInVain},
	{Name: "cached objects make room", bounded: true, rule: budgetEvict},
	{Name: "pinned objects stay", bounded: true, rule: budgetPinned},
	{Name: "open objects stay", bounded: true, rule: budgetOpen},
	{Name: "objects in use stay", bounded: true, rule: budgetUsed},
	{Name: "pin and unpin take effect", bounded: true, rule: budgetPin},
	{Name: "named objects stay until they are released", bounded: true, rule: budgetNamed},
	{Name: "a class changes only from what it was", rule: changeClass},
	{Name: "many half-finished puts keep to the budget", bounded: true, rule: budgetHalfFinished},
}

// sixteenth is a sixteenth of the budget.
func (s *subject) sixteenth(seed uint64) []byte {
	return content(seed, int(s.s.Usage().Budget/16))
}

// fillPinned puts pinned objects until there is no space for another.
func (s *subject) fillPinned() (bodies [][]byte) {
	s.Helper()
	for seed := range uint64(17) {
		data := s.sixteenth(seed)
		_, _, err := s.s.Put(s.ctx, bytes.NewReader(data), known(data, store.Pinned))
		if err != nil {
			s.refused(err, "put into a full store", fault.StoreFull)
			break
		}
		bodies = append(bodies, data)
		s.checkBudget()
	}
	if len(bodies) < 12 || len(bodies) > 16 {
		s.Fatalf("%d pieces of a sixteenth of the budget went in; it should be most of 16, and not more", len(bodies))
	}
	return bodies
}

// floodCached puts cached objects, n budgets of them. Each must find space.
func (s *subject) floodCached(budgets int, each func()) (last []byte) {
	s.Helper()
	for seed := range uint64(16 * budgets) {
		last = s.sixteenth(1000 + seed)
		if _, _, err := s.s.Put(s.ctx, bytes.NewReader(last), known(last, store.Cached)); err != nil {
			s.Fatalf("put of a cached piece: %v", err)
		}
		s.checkBudget()
		if each != nil {
			each()
		}
	}
	return last
}

func budgetFull(c *subject) {
	bodies := c.fillPinned()
	refusals := c.s.Counts().Refusals
	c.unchanged("a put into a full store", func() {
		late := c.sixteenth(99)
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
	_, created, err := c.s.Put(c.ctx, bytes.NewReader(bodies[3]), store.PutOptions{Want: b3.Of(bodies[3]), Size: int64(len(bodies[3]))})
	if err != nil || created {
		c.Errorf("put of what is there, into a full store: created %t, %v", created, err)
	}
	for _, data := range bodies {
		c.holds(data)
	}
	c.delete(b3.Of(bodies[0]))
	c.put(c.sixteenth(99), store.Pinned)
}

func budgetWhole(c *subject) {
	c.floodCached(1, nil)
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

func budgetEndless(c *subject) {
	kept := c.sixteenth(1)
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

func budgetInVain(c *subject) {
	var pinned, cached [][]byte
	for seed := range uint64(6) {
		pinned = append(pinned, c.sixteenth(seed))
		cached = append(cached, c.sixteenth(100+seed))
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

func budgetEvict(c *subject) {
	first := c.sixteenth(1)
	c.put(first, store.Cached)
	last := c.floodCached(4, nil)
	c.holds(last)
	c.lacks(first)
	if c.s.Counts().Evictions < 32 {
		c.Errorf("4 budgets went in, and %d objects were evicted", c.s.Counts().Evictions)
	}
	if u := c.s.Usage(); u.Bytes < u.Budget/2 {
		c.Errorf("after 4 budgets went in, only %d bytes of %d are kept", u.Bytes, u.Budget)
	}
	c.put(first, store.Cached) // it can be put again
	c.holds(first)
}

func budgetPinned(c *subject) {
	var pinned [][]byte
	for seed := range uint64(5) {
		pinned = append(pinned, c.sixteenth(seed))
		c.put(pinned[seed], store.Pinned)
	}
	c.floodCached(3, nil)
	for _, data := range pinned {
		c.holds(data)
	}
}

func budgetOpen(c *subject) {
	data := c.sixteenth(1)
	a := c.put(data, store.Cached)
	h := c.open(a)
	c.floodCached(4, nil)
	if !c.has(a) {
		c.Errorf("an object was evicted while it was open")
	}
	if err := compare(h, data); err != nil {
		c.Errorf("after 4 budgets went in: %v", err)
	}
	c.close(h)
	c.floodCached(4, nil)
	c.lacks(data)
}

func budgetUsed(c *subject) {
	data := c.sixteenth(1)
	a := c.put(data, store.Cached)
	c.floodCached(4, func() {
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

func budgetPin(c *subject) {
	data := c.sixteenth(1)
	a := c.put(data, store.Cached)
	c.setClassTwice("Pin", c.s.Pin, a, store.Pinned)
	c.floodCached(3, nil)
	c.holds(data)
	c.setClassTwice("Unpin", c.s.Unpin, a, store.Cached)
	c.floodCached(4, nil)
	c.lacks(data)
}

func budgetNamed(c *subject) {
	data := c.sixteenth(1)
	a := c.put(data, store.Named)
	c.floodCached(3, nil)
	c.holds(data)
	if changed, err := c.s.Reclass(c.ctx, a, store.Named, store.Cached); err != nil || !changed {
		c.Fatalf("a named object was not released: %t, %v", changed, err)
	}
	c.floodCached(4, nil)
	c.lacks(data)
}

func changeClass(c *subject) {
	data := content(1, 3000)
	a := c.put(data, store.Named)
	for _, step := range []struct {
		from, to store.Class
		changed  bool
		want     store.Class
	}{
		{store.Cached, store.Pinned, false, store.Named},
		{store.Named, store.Pinned, true, store.Pinned},
		{store.Named, store.Cached, false, store.Pinned}, // somebody pinned it meanwhile
		{store.Pinned, store.Named, true, store.Named},
		{store.Named, store.Cached, true, store.Cached},
		{store.Cached, store.Named, true, store.Named},
	} {
		changed, err := c.s.Reclass(c.ctx, a, step.from, step.to)
		info, statErr := c.s.Stat(c.ctx, a)
		if err != nil || statErr != nil || changed != step.changed || info.Class != step.want {
			c.Fatalf("from %s to %s: %t, %v, and it is %s, %v; want %t and %s", step.from, step.to, changed, err, info.Class, statErr, step.changed, step.want)
		}
		c.checkTotals()
	}
	evict := func(want bool) {
		c.Helper()
		if evicted, err := c.s.Evict(c.ctx, a); err != nil || evicted != want {
			c.Fatalf("evict: %t, %v; want %t", evicted, err, want)
		}
	}
	evict(false) // it is named
	if err := c.s.Pin(c.ctx, a); err != nil {
		c.Fatal(err)
	}
	evict(false)
	c.holds(data)
	if err := c.s.Unpin(c.ctx, a); err != nil {
		c.Fatal(err)
	}
	evict(true)
	c.lacks(data)
	evict(false) // it is not there
	if _, err := c.s.Reclass(c.ctx, a, store.Named, store.Cached); fault.KindOf(err) != fault.NotFound {
		c.Fatalf("reclass of what is not there: %v", err)
	}
}

// setClassTwice pins or unpins, twice: the second time changes nothing.
func (s *subject) setClassTwice(what string, do func(context.Context, b3.Address) error, a b3.Address, want store.Class) {
	s.Helper()
	for range 2 {
		if err := do(s.ctx, a); err != nil {
			s.Fatalf("%s: %v", what, err)
		}
		if info, err := s.s.Stat(s.ctx, a); err != nil || info.Class != want {
			s.Fatalf("after %s: %+v, %v", what, info, err)
		}
	}
	s.checkTotals()
}

// budgetHalfFinished starts more bodies than fit, each of which stops half way.
// Whatever the order, the budget holds, and everything is released in the end.
func budgetHalfFinished(c *subject) {
	kept := c.sixteenth(1)
	c.put(kept, store.Pinned)
	before := c.s.Usage()
	const bodies = 40
	var arrived sync.WaitGroup // puts that have read their half, or were rejected
	arrived.Add(bodies)
	stop := make(chan struct{})
	ctx, cancel := context.WithCancel(c.ctx)
	runConcurrently(bodies+1, func(i int) {
		if i == bodies {
			arrived.Wait()
			c.checkBudget()
			if u := c.s.Usage(); u.Held <= before.Held {
				c.Errorf("%d puts are under way and hold nothing", bodies)
			}
			cancel()
			close(stop)
			return
		}
		data := c.sixteenth(uint64(2 + i))
		half := &stallingReader{data: data[:len(data)/2], arrived: arrived.Done, stop: stop}
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

// stallingReader returns its data, and then nothing until it is stopped.
type stallingReader struct {
	data    []byte
	once    sync.Once
	arrived func()
	stop    chan struct{}
}

func (r *stallingReader) Read(p []byte) (int, error) {
	if len(r.data) > 0 {
		n := copy(p, r.data)
		r.data = r.data[n:]
		return n, nil
	}
	r.once.Do(r.arrived)
	<-r.stop
	return 0, io.ErrUnexpectedEOF
}
