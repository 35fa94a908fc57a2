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

// callAll calls every operation that takes a context.
func (s *subject) callAll(ctx context.Context, a b3.Address) map[string]error {
	_, errOpen := s.s.Open(ctx, a)
	_, errStat := s.s.Stat(ctx, a)
	_, errList := s.s.List(ctx, b3.Address{}, 1)
	_, _, errPut := s.s.Put(ctx, strings.NewReader("new"), unknown(store.Pinned))
	_, _, errWant := s.s.Put(ctx, strings.NewReader("new"), store.PutOptions{Want: a, Size: 3})
	var errWalk error
	for _, errWalk = range store.Walk(ctx, s.s) {
		break
	}
	return map[string]error{
		"Open": errOpen, "Stat": errStat, "List": errList, "Put": errPut, "Put with Want": errWant, "Walk": errWalk,
		"Delete": s.s.Delete(ctx, a), "Pin": s.s.Pin(ctx, a), "Unpin": s.s.Unpin(ctx, a), "Verify": s.s.Verify(ctx, a, nil),
	}
}

// closeStore closes the store.
func (s *subject) closeStore() {
	s.Helper()
	s.closed = true
	if err := s.s.Close(); err != nil {
		s.Fatalf("Close: %v", err)
	}
}

func closeRefuses(c *subject) {
	a := c.put(content(1, 100), store.Pinned)
	c.closeStore()
	c.closeStore() // a second time is allowed
	for what, err := range c.callAll(c.ctx, a) {
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
	c.closeStore()
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
	src := io.MultiReader(bytes.NewReader(content(1, 100_000)), &closingReader{c: c})
	_, _, err := c.s.Put(c.ctx, src, unknown(store.Pinned))
	c.refused(err, "put into a store that is closed meanwhile", fault.Canceled)
}

// closingReader closes the store in the middle of a body.
type closingReader struct{ c *subject }

func (r *closingReader) Read([]byte) (int, error) {
	r.c.closeStore()
	return 0, io.EOF
}

func closeContext(c *subject) {
	a := c.put(content(1, 100), store.Pinned)
	ended, cancel := context.WithCancel(c.ctx)
	cancel()
	c.unchanged("a caller who has left", func() {
		for what, err := range c.callAll(ended, a) {
			c.refused(err, what+" of a caller who has left", fault.Canceled)
		}
	})
}
