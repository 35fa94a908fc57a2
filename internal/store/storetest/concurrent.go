package storetest

import (
	"bytes"
	"math/rand/v2"
	"sync/atomic"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/store"
)

var concurrencyChecks = []Check{
	{Name: "the same object put by many is created once", rule: concurrentPut},
	{Name: "puts and deletes of one object take turns", rule: concurrentDelete},
	{Name: "everybody sees their own", rule: concurrentOwn},
	{Name: "eviction spares who reads", bounded: true, rule: concurrentEvict},
}

func concurrentPut(c *subject) {
	for round := range uint64(30) {
		data := content(round, []int{100, 16 * kib, 100_000}[round%3])
		var created atomic.Int64
		runConcurrently(8, func(i int) {
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
	c.checkTotals()
}

// concurrentDelete checks puts and deletes of one address against their only
// possible orders: they alternate, so the final state is what was created less
// what was deleted.
func concurrentDelete(c *subject) {
	data := content(1, 30_000)
	a := b3.Of(data)
	var created, deleted atomic.Int64
	runConcurrently(8, func(i int) {
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
				c.readIfPresent(data, nil)
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

// readIfPresent opens an object and checks it, twice if between is set. It may
// have been removed.
func (s *subject) readIfPresent(data []byte, between func()) {
	h, err := s.s.Open(s.ctx, b3.Of(data))
	if err != nil {
		if fault.KindOf(err) != fault.NotFound {
			s.Errorf("open: %v", err)
		}
		return
	}
	if err := compare(h, data); err != nil {
		s.Errorf("%v", err)
	}
	if between != nil {
		between()
		if err := compare(h, data); err != nil {
			s.Errorf("while the handle was open: %v", err)
		}
	}
	s.close(h)
}

// concurrentOwn lets each of several users put, read and delete objects of
// their own, which they pin, while others read them and flood the store. Each
// user knows exactly what must exist.
func concurrentOwn(c *subject) {
	const users, others, each, steps = 6, 3, 5, 100
	own := func(user, i int) []byte { return content(uint64(100*user+i), 1+i*5000) }
	runConcurrently(users+others, func(me int) {
		random := rand.New(rand.NewPCG(uint64(me), 1))
		if me >= users {
			for i := range steps {
				c.readIfPresent(own(random.IntN(users), random.IntN(each)), nil)
				c.putCached(uint64(1000+me*steps+i), 50_000)
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

// Operations on an object.
const (
	usePut = iota
	useDelete
	useStat
	useOpen
	uses int = iota
)

// useOwn does one operation on an object that only this user puts or deletes.
func (s *subject) useOwn(what int, data []byte, there bool, become func(bool)) {
	a := b3.Of(data)
	switch what {
	case usePut:
		_, created, err := s.s.Put(s.ctx, bytes.NewReader(data), known(data, store.Pinned))
		if err != nil || created == there {
			s.Errorf("put: created %t, %v; it was there: %t", created, err, there)
		}
		become(true)
	case useDelete:
		if err := s.s.Delete(s.ctx, a); (err == nil) != there {
			s.Errorf("delete: %v; it was there: %t", err, there)
		}
		become(false)
	case useStat:
		if _, err := s.s.Stat(s.ctx, a); (err == nil) != there {
			s.Errorf("stat: %v; it was there: %t", err, there)
		}
	case useOpen:
		h, err := s.s.Open(s.ctx, a)
		if (err == nil) != there {
			s.Errorf("open: %v; it was there: %t", err, there)
		}
		if err == nil {
			if err := compare(h, data); err != nil {
				s.Errorf("%v", err)
			}
			s.close(h)
		}
	}
}

// putCached puts a cached object. There is no space only if all others are
// open.
func (s *subject) putCached(seed uint64, size int) {
	data := content(seed, size)
	if _, _, err := s.s.Put(s.ctx, bytes.NewReader(data), known(data, store.Cached)); err != nil && fault.KindOf(err) != fault.StoreFull {
		s.Errorf("put of a cached object: %v", err)
	}
	s.checkBudget()
}

// concurrentEvict floods a store with objects that are read at the same time.
// Seeds repeat, so that what was evicted is put again while it is still open.
func concurrentEvict(c *subject) {
	const seeds, steps = 24, 25
	size := int(c.s.Usage().Budget / 12)
	runConcurrently(6, func(me int) {
		random := rand.New(rand.NewPCG(uint64(me), 2))
		for range steps {
			seed := uint64(random.IntN(seeds))
			if me < 3 {
				c.putCached(seed, size)
			} else {
				c.readIfPresent(content(seed, size), func() { c.putCached(uint64(random.IntN(seeds)), size) })
			}
		}
	})
	if c.s.Counts().Evictions == 0 {
		c.Errorf("nothing was evicted; the check has checked nothing")
	}
}
