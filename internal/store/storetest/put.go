package storetest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing/iotest"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/store"
)

// sizes are those where something changes in some store: groups of the hash,
// chunks, blocks.
var sizes = []int{
	0, 1, 255, 256, 257, 1000, 4095, 4096, 4097, 16*kib - 1, 16 * kib, 16*kib + 1,
	40 * kib, 64*kib - 1, 64 * kib, 64*kib + 1, 128 * kib, 128*kib + 1, 200_000, 1*mib - 1, mib, mib + 1,
}

var putChecks = []Check{
	{Name: "what is put can be read", rule: putAndRead},
	{Name: "what is put twice is kept once", rule: putTwice},
	{Name: "the bytes belong to the store", rule: putCopies},
	{Name: "a wanted address is checked", rule: putWanted},
	{Name: "a declared size is checked", rule: putDeclared},
	{Name: "an interrupted put keeps nothing", rule: putInterrupted},
	{Name: "a put pins and never unpins", rule: putClass},
}

func putAndRead(c *subject) {
	for i, size := range sizes {
		data := content(uint64(i), size)
		a := c.put(data, store.Pinned)
		c.holds(data)
		c.delete(a)
		c.putReader(iotest.HalfReader(bytes.NewReader(data)), data)
		c.holds(data)
	}
	c.putReader(iotest.DataErrReader(bytes.NewReader([]byte("the end comes with the data"))), []byte("the end comes with the data"))
	c.putReader(iotest.OneByteReader(bytes.NewReader(content(7, 5000))), content(7, 5000))
}

// putReader puts a body of unknown size that must be new.
func (s *subject) putReader(src io.Reader, data []byte) {
	s.Helper()
	info, created, err := s.s.Put(s.ctx, src, unknown(store.Cached))
	want := store.Info{Address: b3.Of(data), Size: int64(len(data)), Class: store.Cached}
	if err != nil || info != want || !created {
		s.Fatalf("put of unknown size, %d bytes: %+v, created %t, %v; want %+v", len(data), info, created, err, want)
	}
}

func putTwice(c *subject) {
	for _, size := range []int{0, 100, 16 * kib, 300_000} {
		data := content(1, size)
		c.put(data, store.Pinned)
		c.unchanged("a second put", func() {
			for _, opt := range []store.PutOptions{
				known(data, store.Pinned),
				unknown(store.Pinned),
				{Size: store.Unknown, Want: b3.Of(data)},
				{Size: int64(size), Want: b3.Of(data)},
			} {
				info, created, err := c.s.Put(c.ctx, bytes.NewReader(data), opt)
				if err != nil || created || info.Address != b3.Of(data) || info.Size != int64(size) {
					c.Fatalf("second put of %d bytes with %+v: %+v, created %t, %v", size, opt, info, created, err)
				}
			}
		})
		c.holds(data)
	}
}

func putCopies(c *subject) {
	for _, size := range []int{500, 100_000} {
		data := content(2, size)
		mine := bytes.Clone(data)
		if _, _, err := c.s.Put(c.ctx, bytes.NewBuffer(mine), known(mine, store.Pinned)); err != nil {
			c.Fatalf("put: %v", err)
		}
		clear(mine)
		c.holds(data)
	}
}

func putWanted(c *subject) {
	for _, size := range []int{0, 700, 20 * kib, 300_000} {
		right, wrong := content(3, size), content(4, size+1)
		c.unchanged("a put of wrong bytes", func() {
			for _, declared := range []int64{store.Unknown, int64(len(wrong))} {
				_, _, err := c.s.Put(c.ctx, bytes.NewReader(wrong), store.PutOptions{Want: b3.Of(right), Size: declared})
				c.refused(err, "put of wrong bytes", fault.IntegrityFail)
			}
		})
		c.lacks(wrong)
		c.lacks(right)
		_, created, err := c.s.Put(c.ctx, bytes.NewReader(right), store.PutOptions{Want: b3.Of(right), Size: int64(size)})
		if err != nil || !created {
			c.Fatalf("put of the wanted bytes: created %t, %v", created, err)
		}
		c.holds(right)
	}
	if n := c.s.Counts().Mismatches; n != 8 {
		c.Errorf("8 puts had wrong bytes, %d were counted", n)
	}
}

func putDeclared(c *subject) {
	data := content(5, 100_000)
	for _, size := range []int64{0, 1, 99_999, 100_001, 200_000, -2} {
		c.unchanged("a put with a wrong size", func() {
			_, _, err := c.s.Put(c.ctx, bytes.NewReader(data), store.PutOptions{Size: size})
			c.refused(err, "put with a wrong size", fault.Malformed)
		})
		c.lacks(data)
		c.lacks(data[:min(max(0, size), 100_000)])
	}
}

func putInterrupted(c *subject) {
	broken := errors.New("the line is dead")
	whole := content(6, 300_000)
	for _, length := range []int{0, 10, 5000, 70_000, 200_000} {
		for _, size := range []int64{store.Unknown, int64(len(whole))} {
			c.interrupted(whole[:length], size, broken)
			c.abandoned(whole[:length], size)
		}
	}
	c.unchanged("a put whose client went away", func() {
		_, _, err := c.s.Put(c.ctx, iotest.ErrReader(io.ErrUnexpectedEOF), unknown(store.Pinned))
		c.refused(err, "put whose client went away", fault.BrokenPipe)
	})
	c.unchanged("a put from a reader that gives nothing", func() {
		_, _, err := c.s.Put(c.ctx, emptyReader{}, unknown(store.Pinned))
		if !errors.Is(err, io.ErrNoProgress) {
			c.Errorf("put from a reader that gives nothing: %v", err)
		}
	})
}

// interrupted puts a body that ends with an error.
func (s *subject) interrupted(head []byte, size int64, broken error) {
	s.Helper()
	s.unchanged("a put that broke off", func() {
		_, _, err := s.s.Put(s.ctx, io.MultiReader(bytes.NewReader(head), iotest.ErrReader(broken)), store.PutOptions{Size: size})
		if !errors.Is(err, broken) {
			s.Fatalf("a put that broke off: %v, want the reader's error", err)
		}
	})
	s.lacks(head)
}

// abandoned puts a body whose caller cancels while it is being read. More of it
// would follow.
func (s *subject) abandoned(head []byte, size int64) {
	s.Helper()
	s.unchanged("a put that was given up", func() {
		ctx, cancel := context.WithCancel(s.ctx)
		defer cancel()
		src := io.MultiReader(bytes.NewReader(head), &canceler{cancel: cancel, rest: []byte("x")})
		_, _, err := s.s.Put(ctx, src, store.PutOptions{Size: size})
		s.refused(err, "a put that was given up", fault.Canceled)
	})
	s.unchanged("a put that was given up at its end", func() {
		ctx, cancel := context.WithCancel(s.ctx)
		defer cancel()
		src := io.MultiReader(bytes.NewReader(head), &canceler{cancel: cancel})
		_, _, err := s.s.Put(ctx, src, unknown(store.Pinned))
		s.refused(err, "a put that was given up at its end", fault.Canceled)
	})
	s.lacks(head)
}

// canceler cancels the context of its reader at the first read.
type canceler struct {
	cancel context.CancelFunc
	rest   []byte
}

func (c *canceler) Read(p []byte) (int, error) {
	c.cancel()
	if len(c.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// emptyReader never returns anything and never ends.
type emptyReader struct{}

func (emptyReader) Read([]byte) (int, error) { return 0, nil }

func putClass(c *subject) {
	data := content(8, 3000)
	a := c.put(data, store.Cached)
	for _, step := range []struct{ put, want store.Class }{
		{store.Cached, store.Cached},
		{store.Named, store.Named},
		{store.Cached, store.Named},
		{store.Pinned, store.Pinned},
		{store.Named, store.Pinned},
		{store.Cached, store.Pinned},
	} {
		for _, want := range []b3.Address{{}, a} {
			info, created, err := c.s.Put(c.ctx, bytes.NewReader(data), store.PutOptions{Want: want, Size: 3000, Class: step.put})
			if err != nil || created || info.Class != step.want {
				c.Fatalf("put as %s: %+v, created %t, %v; want it %s", step.put, info, created, err, step.want)
			}
		}
		if info, err := c.s.Stat(c.ctx, a); err != nil || info.Class != step.want {
			c.Fatalf("after a put as %s: %+v, %v; want it %s", step.put, info, err, step.want)
		}
	}
}
