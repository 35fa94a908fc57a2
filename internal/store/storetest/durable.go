package storetest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"testing"
	"testing/iotest"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/store"
)

// DurableMaker makes a location that outlives a store, such as a folder, and
// returns a function that opens a store there. That is called again only after
// the last one was closed.
type DurableMaker func(t testing.TB) (open func() store.Store)

// RunDurable runs the checks for stores that keep what they have when they are
// closed. Such a store has to pass Run too.
func RunDurable(t *testing.T, maker DurableMaker) {
	for _, check := range DurableChecks() {
		t.Run(check.Name, func(t *testing.T) { check.AgainstDurable(t, maker) })
	}
}

// DurableChecks lists the rules for stores that are opened again.
func DurableChecks() []Check {
	return []Check{
		{Name: "what is put lasts", rule: durablePut},
		{Name: "a class lasts", rule: durableClass},
		{Name: "what is deleted stays away", rule: durableDelete},
		{Name: "what was refused is not there later", rule: durableRefused},
		{Name: "what was kept counts against the budget", bounded: true, rule: durableBudget},
		{Name: "a random history with ends in it is as in the model", rule: durableHistory},
	}
}

// AgainstDurable applies the rule to a store in a new location.
func (check Check) AgainstDurable(t testing.TB, maker DurableMaker) {
	t.Helper()
	open := maker(t)
	c := &subject{TB: t, s: open(), reopenStore: open, ctx: context.Background()}
	check.apply(c)
}

// reopen closes the store and opens it again.
func (s *subject) reopen() {
	s.Helper()
	if err := s.s.Close(); err != nil {
		s.Fatalf("Close: %v", err)
	}
	s.s = s.reopenStore()
}

// reopenUnchanged reopens the store and checks that this has changed nothing.
func (s *subject) reopenUnchanged() {
	s.Helper()
	listed := s.listObjects()
	s.unchanged("closing and opening again", s.reopen)
	if again := s.listObjects(); !slices.Equal(listed, again) {
		s.Fatalf("%d objects before, %d after, or others: %+v and %+v", len(listed), len(again), listed, again)
	}
}

func (s *subject) listObjects() (all []store.Info) {
	s.Helper()
	for info, err := range store.Walk(s.ctx, s.s) {
		if err != nil {
			s.Fatalf("walk: %v", err)
		}
		all = append(all, info)
	}
	return all
}

func durablePut(c *subject) {
	c.reopenUnchanged() // an empty one
	var bodies [][]byte
	for i, size := range sizes[:len(sizes)-2] { // together they fit into the smallest budget
		data := content(uint64(i), size)
		bodies = append(bodies, data)
		c.put(data, store.Class(i%2))
		if i%8 == 0 {
			c.reopenUnchanged()
		}
	}
	c.reopenUnchanged()
	for _, data := range bodies {
		c.holds(data)
		if err := c.s.Verify(c.ctx, b3.Of(data), nil); err != nil {
			c.Errorf("verify: %v", err)
		}
		_, created, err := c.s.Put(c.ctx, bytes.NewReader(data), known(data, store.Cached))
		if err != nil || created {
			c.Errorf("put of what was there before: created %t, %v", created, err)
		}
	}
}

func durableClass(c *subject) {
	for _, size := range []int{0, 100, 300_000} {
		data := content(1, size)
		a := c.put(data, store.Cached)
		for _, step := range []struct {
			do   func() error
			want store.Class
		}{
			{func() error { return nil }, store.Cached},
			{func() error { return c.s.Pin(c.ctx, a) }, store.Pinned},
			{func() error { return c.s.Unpin(c.ctx, a) }, store.Cached},
			{func() error { _, err := c.s.Reclass(c.ctx, a, store.Cached, store.Named); return err }, store.Named},
			{func() error {
				_, _, err := c.s.Put(c.ctx, bytes.NewReader(data), known(data, store.Pinned))
				return err
			}, store.Pinned},
		} {
			if err := step.do(); err != nil {
				c.Fatalf("to make it %s: %v", step.want, err)
			}
			c.reopenUnchanged()
			if info, err := c.s.Stat(c.ctx, a); err != nil || info.Class != step.want {
				c.Fatalf("opened again: %+v, %v; it was %s", info, err, step.want)
			}
			c.holds(data)
		}
	}
}

func durableDelete(c *subject) {
	for i, size := range []int{0, 100, 16 * kib, 300_000} {
		data, kept := content(1, size), content(2, size+1)
		c.put(kept, store.Pinned)
		a := c.put(data, store.Class(i%2))
		if i%2 == 0 {
			c.reopenUnchanged()
		}
		h := c.open(a)
		c.delete(a)
		c.close(h)
		c.reopenUnchanged()
		c.lacks(data)
		c.holds(kept)
		c.put(data, store.Cached) // it can be put again
		c.reopenUnchanged()
		c.holds(data)
		c.delete(a)
	}
}

func durableRefused(c *subject) {
	broken := errors.New("the line is dead")
	kept := content(1, 1000)
	c.put(kept, store.Pinned)
	for i, size := range []int{10, 5000, 70_000, 400_000} {
		head := content(uint64(10+i), size)
		src := io.MultiReader(bytes.NewReader(head), iotest.ErrReader(broken))
		if _, _, err := c.s.Put(c.ctx, src, unknown(store.Pinned)); !errors.Is(err, broken) {
			c.Fatalf("a put that broke off: %v", err)
		}
		_, _, err := c.s.Put(c.ctx, bytes.NewReader(head), store.PutOptions{Want: b3.Of(kept[1:]), Size: store.Unknown})
		c.refused(err, "put of wrong bytes", fault.IntegrityFail)
		c.reopenUnchanged()
		c.lacks(head)
	}
	c.holds(kept)
	if u := c.s.Usage(); u.Objects != 1 {
		c.Errorf("one object was put, and %d are there", u.Objects)
	}
}

func durableBudget(c *subject) {
	bodies := c.fillPinned()
	c.reopenUnchanged()
	late := c.sixteenth(99)
	_, _, err := c.s.Put(c.ctx, bytes.NewReader(late), known(late, store.Pinned))
	c.refused(err, "put into a full store that was opened again", fault.StoreFull)
	for _, data := range bodies[:len(bodies)/2] {
		if err := c.s.Unpin(c.ctx, b3.Of(data)); err != nil {
			c.Fatalf("unpin: %v", err)
		}
	}
	c.reopen()
	c.put(late, store.Pinned) // cached objects are evicted, now as before
	for _, data := range bodies[len(bodies)/2:] {
		c.holds(data)
	}
	c.reopenUnchanged()
}

// durableHistory is the history of the model, with reopening.
func durableHistory(c *subject) {
	for seed := range uint64(6) {
		m := newModel(c, 100+seed)
		for step := range 120 {
			m.step()
			if m.random.IntN(15) == 0 {
				for len(m.handles) > 0 {
					m.closeOne()
				}
				m.reopen()
				m.compare(seed, step)
			}
		}
		m.end(seed)
	}
}
