package storetest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/store"
)

var closeChecks = []Check{
	{Name: "a closed store refuses all", rule: closeRefuses},
	{Name: "a handle outlives its store", rule: closeOpen},
	{Name: "a put that is under way ends with its store", rule: closePut},
	{Name: "who has left gets nothing", rule: closeContext},
}

// everything calls every operation that takes a context.
func (c *subject) everything(ctx context.Context, a b3.Address) map[string]error {
	_, errOpen := c.s.Open(ctx, a)
	_, errStat := c.s.Stat(ctx, a)
	_, errList := c.s.List(ctx, b3.Address{}, 1)
	_, _, errPut := c.s.Put(ctx, strings.NewReader("new"), unknown(store.Pinned))
	_, _, errWant := c.s.Put(ctx, strings.NewReader("new"), store.PutOptions{Want: a, Size: 3})
	var errWalk error
	for _, errWalk = range store.Walk(ctx, c.s) {
		break
	}
	return map[string]error{
		"Open": errOpen, "Stat": errStat, "List": errList, "Put": errPut, "Put with Want": errWant, "Walk": errWalk,
		"Delete": c.s.Delete(ctx, a), "Pin": c.s.Pin(ctx, a), "Unpin": c.s.Unpin(ctx, a), "Verify": c.s.Verify(ctx, a, nil),
	}
}

// shut closes the store.
func (c *subject) shut() {
	c.Helper()
	c.closed = true
	if err := c.s.Close(); err != nil {
		c.Fatalf("Close: %v", err)
	}
}

func closeRefuses(c *subject) {
	a := c.put(content(1, 100), store.Pinned)
	c.shut()
	c.shut() // a second time is nothing special
	for what, err := range c.everything(c.ctx, a) {
		c.refused(err, what+" after Close", fault.Canceled)
		if !errors.Is(err, flow.ErrClosed) {
			c.Errorf("%s after Close: %v, want flow.ErrClosed", what, err)
		}
	}
}

func closeOpen(c *subject) {
	for _, size := range []int{100, 300_000} {
		c.put(content(1, size), store.Pinned)
	}
	small, large := c.open(b3.Of(content(1, 100))), c.open(b3.Of(content(1, 300_000)))
	c.shut()
	if err := compare(small, content(1, 100)); err != nil {
		c.Errorf("after the store was closed: %v", err)
	}
	if err := compare(large, content(1, 300_000)); err != nil {
		c.Errorf("after the store was closed: %v", err)
	}
	c.close(small)
	c.close(large)
}

func closePut(c *subject) {
	src := io.MultiReader(bytes.NewReader(content(1, 100_000)), &closer{c: c})
	_, _, err := c.s.Put(c.ctx, src, unknown(store.Pinned))
	c.refused(err, "put into a store that is closed meanwhile", fault.Canceled)
}

// closer closes the store in the middle of a body.
type closer struct{ c *subject }

func (r *closer) Read([]byte) (int, error) {
	r.c.shut()
	return 0, io.EOF
}

func closeContext(c *subject) {
	a := c.put(content(1, 100), store.Pinned)
	ended, cancel := context.WithCancel(c.ctx)
	cancel()
	c.unchanged("a caller who has left", func() {
		for what, err := range c.everything(ended, a) {
			c.refused(err, what+" of a caller who has left", fault.Canceled)
		}
	})
}
