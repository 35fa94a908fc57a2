package storetest

import (
	"bytes"
	"math/rand/v2"
	"sync/atomic"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/store"
)

var togetherChecks = []Check{
	{Name: "the same object put by many is created once", rule: togetherPut},
	{Name: "puts and deletes of one object take turns", rule: togetherDelete},
	{Name: "everybody sees their own", rule: togetherOwn},
	{Name: "eviction spares who reads", bounded: true, rule: togetherEvict},
}

func togetherPut(c *subject) {
	for round := range uint64(30) {
		data := content(round, []int{100, 16 * kib, 100_000}[round%3])
		var created atomic.Int64
		together(8, func(i int) {
			opt := known(data, store.Pinned)
			if i%2 == 0 {
				opt = unknown(store.Pinned)
			}
			info, isNew, err := c.s.Put(c.ctx, bytes.NewReader(data), opt)
			if err != nil || info.Address != b3.Of(data) {
				c.Errorf("put: %+v, %v", info, err)
			}
			if isNew {
				created.Add(1)
			}
		})
		if created.Load() != 1 {
			c.Errorf("%d of 8 puts of the same bytes say that they created the object", created.Load())
		}
		c.holds(data)
	}
	c.balance()
}

// togetherDelete holds puts and deletes of one address against their only
// possible orders: they alternate, so what is there at the end is what was
// created less what was deleted.
func togetherDelete(c *subject) {
	data := content(1, 30_000)
	a := b3.Of(data)
	var created, deleted atomic.Int64
	together(8, func(i int) {
		for range 100 {
			switch i % 4 {
			case 0, 1:
				_, isNew, err := c.s.Put(c.ctx, bytes.NewReader(data), known(data, store.Class(i%2)))
				if err != nil {
					c.Errorf("put: %v", err)
				}
				if isNew {
					created.Add(1)
				}
			case 2:
				switch err := c.s.Delete(c.ctx, a); fault.KindOf(err) {
				case 0:
					deleted.Add(1)
				case fault.NotFound:
				default:
					c.Errorf("delete: %v", err)
				}
			default:
				c.peek(data, nil)
			}
		}
	})
	var left int64
	if c.has(a) {
		left = 1
	}
	if created.Load()-deleted.Load() != left {
		c.Errorf("created %d times, deleted %d times, and then there were %d", created.Load(), deleted.Load(), left)
	}
}

// peek opens an object and checks it, twice if there is something to do in
// between. It may be gone.
func (c *subject) peek(data []byte, between func()) {
	h, err := c.s.Open(c.ctx, b3.Of(data))
	if err != nil {
		if fault.KindOf(err) != fault.NotFound {
			c.Errorf("open: %v", err)
		}
		return
	}
	if err := compare(h, data); err != nil {
		c.Errorf("%v", err)
	}
	if between != nil {
		between()
		if err := compare(h, data); err != nil {
			c.Errorf("while the handle was open: %v", err)
		}
	}
	c.close(h)
}

// togetherOwn lets each of several users do as they like with objects of their
// own, which they pin, while others look on and flood the store. Each user
// knows exactly what must be there.
func togetherOwn(c *subject) {
	const users, others, each, steps = 6, 3, 5, 100
	own := func(user, i int) []byte { return content(uint64(100*user+i), 1+i*5000) }
	together(users+others, func(me int) {
		random := rand.New(rand.NewPCG(uint64(me), 1))
		if me >= users {
			for i := range steps {
				c.peek(own(random.IntN(users), random.IntN(each)), nil)
				c.spill(uint64(1000+me*steps+i), 50_000)
			}
			return
		}
		there := map[int]bool{}
		for range steps {
			i := random.IntN(each)
			c.useOwn(random.IntN(uses), own(me, i), there[i], func(now bool) { there[i] = now })
		}
		for i := range each {
			c.useOwn(useStat, own(me, i), there[i], nil)
		}
	})
}

// What one can do with an object.
const (
	usePut = iota
	useDelete
	useStat
	useOpen
	uses int = iota
)

// useOwn does one thing with an object that nobody else puts or deletes.
func (c *subject) useOwn(what int, data []byte, there bool, become func(bool)) {
	a := b3.Of(data)
	switch what {
	case usePut:
		_, created, err := c.s.Put(c.ctx, bytes.NewReader(data), known(data, store.Pinned))
		if err != nil || created == there {
			c.Errorf("put: created %t, %v; it was there: %t", created, err, there)
		}
		become(true)
	case useDelete:
		if err := c.s.Delete(c.ctx, a); (err == nil) != there {
			c.Errorf("delete: %v; it was there: %t", err, there)
		}
		become(false)
	case useStat:
		if _, err := c.s.Stat(c.ctx, a); (err == nil) != there {
			c.Errorf("stat: %v; it was there: %t", err, there)
		}
	case useOpen:
		h, err := c.s.Open(c.ctx, a)
		if (err == nil) != there {
			c.Errorf("open: %v; it was there: %t", err, there)
		}
		if err == nil {
			if err := compare(h, data); err != nil {
				c.Errorf("%v", err)
			}
			c.close(h)
		}
	}
}

// spill puts something cached. If there is no room, others have it all open.
func (c *subject) spill(seed uint64, size int) {
	data := content(seed, size)
	if _, _, err := c.s.Put(c.ctx, bytes.NewReader(data), known(data, store.Cached)); err != nil && fault.KindOf(err) != fault.StoreFull {
		c.Errorf("put of a cached object: %v", err)
	}
	c.within()
}

// togetherEvict floods a store with objects that others read at the same time.
// Seeds repeat, so that what was evicted comes back while it is still open.
func togetherEvict(c *subject) {
	const seeds, steps = 24, 25
	size := int(c.s.Usage().Budget / 12)
	together(6, func(me int) {
		random := rand.New(rand.NewPCG(uint64(me), 2))
		for range steps {
			seed := uint64(random.IntN(seeds))
			if me < 3 {
				c.spill(seed, size)
			} else {
				c.peek(content(seed, size), func() { c.spill(uint64(random.IntN(seeds)), size) })
			}
		}
	})
	if c.s.Counts().Evictions == 0 {
		c.Errorf("nothing was evicted; the check has checked nothing")
	}
}
