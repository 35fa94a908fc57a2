package storetest

import (
	"bytes"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/store"
)

var deleteChecks = []Check{
	{Name: "what is deleted is gone", rule: deleteGone},
	{Name: "what is deleted can be read by who has it open", rule: deleteOpen},
	{Name: "what is deleted counts until the last handle closes", rule: deleteCounts},
	{Name: "what is deleted can be put again", rule: deleteAndPut},
}

func deleteGone(c *subject) {
	empty := c.s.Usage()
	for _, size := range []int{0, 100, 16 * kib, 300_000} {
		for _, class := range []store.Class{store.Pinned, store.Cached} {
			data := content(1, size)
			a := c.put(data, class)
			c.delete(a)
			c.lacks(data)
			c.refused(c.s.Delete(c.ctx, a), "second delete", fault.NotFound)
		}
	}
	full := c.s.Usage()
	empty.Idle, full.Idle = 0, 0
	if full != empty {
		c.Errorf("all is deleted; Usage says %+v, and said %+v when the store was new", full, empty)
	}
}

func deleteOpen(c *subject) {
	for _, size := range []int{0, 100, 16 * kib, 300_000} {
		data := content(1, size)
		a := c.put(data, store.Pinned)
		first, second := c.open(a), c.open(a)
		c.delete(a)
		c.lacks(data)
		c.churn(size)
		for _, h := range []store.Handle{first, second} {
			if err := compare(h, data); err != nil {
				c.Errorf("deleted while it was open: %v", err)
			}
			c.close(h)
		}
	}
}

// churn puts and deletes objects of a size, so that memory which was freed too
// early is used for something else.
func (s *subject) churn(size int) {
	s.Helper()
	for seed := range uint64(8) {
		a := s.put(content(100+seed, max(1, size)), store.Pinned)
		s.delete(a)
	}
}

func deleteCounts(c *subject) {
	const size = 300_000
	a := c.put(content(1, size), store.Pinned)
	before := c.s.Usage()
	first, second := c.open(a), c.open(a)
	c.delete(a)
	c.close(first)
	if u := c.s.Usage(); u.Lingering != size || u.Held != before.Held || u.Bytes != 0 || u.Objects != 0 || u.Pinned != 0 {
		c.Errorf("deleted, but open: %+v; its %d bytes must linger, and be held as before: %+v", u, size, before)
	}
	c.close(second)
	if u := c.s.Usage(); u.Lingering != 0 || u.Held >= before.Held {
		c.Errorf("deleted and closed: %+v; nothing may be left", u)
	}
}

func deleteAndPut(c *subject) {
	for _, size := range []int{100, 300_000} {
		data := content(1, size)
		a := c.put(data, store.Pinned)
		old := c.open(a)
		c.delete(a)
		c.put(data, store.Cached)
		fresh := c.open(a)
		c.close(old)
		if err := compare(fresh, data); err != nil {
			c.Errorf("put again after delete: %v", err)
		}
		c.close(fresh)
		if info, created, err := c.s.Put(c.ctx, bytes.NewReader(data), known(data, store.Cached)); err != nil || created || info.Address != b3.Of(data) {
			c.Errorf("put of an object that is there: %+v, created %t, %v", info, created, err)
		}
	}
}
