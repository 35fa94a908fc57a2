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

// Place makes a place that outlives a store, such as a folder, and returns what
// opens a store there. It is called again only after the last one was closed.
type Place func(t testing.TB) (open func() store.Store)

// RunDurable runs the checks for stores that keep what they have when they are
// closed. Such a store has to pass Run too.
func RunDurable(t *testing.T, place Place) {
	for _, check := range DurableChecks() {
		t.Run(check.Name, func(t *testing.T) { check.In(t, place) })
	}
}

// DurableChecks lists the rules for stores that are opened again.
func DurableChecks() []Check {
	return []Check{
		{Name: "what is put lasts", rule: durablePut},
		{Name: "a class lasts", rule: durableClass},
		{Name: "what is deleted stays away", rule: durableDelete},
		{Name: "what was refused is not there later", rule: durableRefused},
		{Name: "what was kept counts against the budget", bounded: true, rule: durableRoom},
		{Name: "a random history with ends in it is as in the model", rule: durableHistory},
	}
}

// In applies the rule to a store in a new place.
func (check Check) In(t testing.TB, place Place) {
	t.Helper()
	open := place(t)
	c := &subject{TB: t, s: open(), again: open, ctx: context.Background()}
	check.apply(c)
}

// reopen closes the store and opens it again.
func (c *subject) reopen() {
	c.Helper()
	if err := c.s.Close(); err != nil {
		c.Fatalf("Close: %v", err)
	}
	c.s = c.again()
}

// lasting reopens the store and checks that this has changed nothing.
func (c *subject) lasting() {
	c.Helper()
	listed := c.everythingListed()
	c.unchanged("closing and opening again", c.reopen)
	if again := c.everythingListed(); !slices.Equal(listed, again) {
		c.Fatalf("%d objects before, %d after, or others: %+v and %+v", len(listed), len(again), listed, again)
	}
}

func (c *subject) everythingListed() (all []store.Info) {
	c.Helper()
	for info, err := range store.Walk(c.ctx, c.s) {
		if err != nil {
			c.Fatalf("walk: %v", err)
		}
		all = append(all, info)
	}
	return all
}

func durablePut(c *subject) {
	c.lasting() // an empty one
	var bodies [][]byte
	for i, size := range sizes[:len(sizes)-2] { // together they fit into the smallest budget
		data := content(uint64(i), size)
		bodies = append(bodies, data)
		c.put(data, store.Class(i%2))
		if i%8 == 0 {
			c.lasting()
		}
	}
	c.lasting()
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
			{func() error {
				_, _, err := c.s.Put(c.ctx, bytes.NewReader(data), known(data, store.Pinned))
				return err
			}, store.Pinned},
		} {
			if err := step.do(); err != nil {
				c.Fatalf("to make it %s: %v", step.want, err)
			}
			c.lasting()
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
			c.lasting()
		}
		h := c.open(a)
		c.delete(a)
		c.close(h)
		c.lasting()
		c.lacks(data)
		c.holds(kept)
		c.put(data, store.Cached) // it can come back
		c.lasting()
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
		c.lasting()
		c.lacks(head)
	}
	c.holds(kept)
	if u := c.s.Usage(); u.Objects != 1 {
		c.Errorf("one object was put, and %d are there", u.Objects)
	}
}

func durableRoom(c *subject) {
	pieces := c.fill()
	c.lasting()
	late := c.piece(99)
	_, _, err := c.s.Put(c.ctx, bytes.NewReader(late), known(late, store.Pinned))
	c.refused(err, "put into a full store that was opened again", fault.StoreFull)
	for _, data := range pieces[:len(pieces)/2] {
		if err := c.s.Unpin(c.ctx, b3.Of(data)); err != nil {
			c.Fatalf("unpin: %v", err)
		}
	}
	c.reopen()
	c.put(late, store.Pinned) // what is cached makes room, now as before
	for _, data := range pieces[len(pieces)/2:] {
		c.holds(data)
	}
	c.lasting()
}

// durableHistory is the history of the model, with ends.
func durableHistory(c *subject) {
	for seed := range uint64(6) {
		m := newModel(c, 100+seed)
		for step := range 120 {
			m.step()
			if m.random.IntN(15) == 0 {
				for len(m.opened) > 0 {
					m.shutOne()
				}
				m.reopen()
				m.agree(seed, step)
			}
		}
		m.end(seed)
	}
}
