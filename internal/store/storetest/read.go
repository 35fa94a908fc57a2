package storetest

import (
	"bytes"
	"errors"
	"io"
	"testing/iotest"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/store"
)

var readChecks = []Check{
	{Name: "what is not there is not found", rule: readAbsent},
	{Name: "ranges are exact", rule: readRanges},
	{Name: "ranges outside are refused", rule: readOutside},
	{Name: "a failing writer is told", rule: readToBrokenWriter},
	{Name: "a closed handle gives nothing", rule: readClosed},
	{Name: "a sound object verifies", rule: readVerify},
}

func readAbsent(c *subject) {
	c.put(content(1, 100), store.Pinned)
	absent := b3.Of(content(2, 100))
	_, errOpen := c.s.Open(c.ctx, absent)
	_, errStat := c.s.Stat(c.ctx, absent)
	for what, err := range map[string]error{
		"Open": errOpen, "Stat": errStat,
		"Delete": c.s.Delete(c.ctx, absent), "Pin": c.s.Pin(c.ctx, absent), "Unpin": c.s.Unpin(c.ctx, absent),
		"Verify": c.s.Verify(c.ctx, absent, nil),
	} {
		c.refused(err, what+" of an absent object", fault.NotFound)
	}
}

func readRanges(c *subject) {
	for i, size := range sizes {
		data := content(uint64(i), size)
		c.put(data, store.Pinned)
		h := c.open(b3.Of(data))
		for _, off := range []int{0, 1, 4096, 16 * kib, 64*kib - 1, 64 * kib, size / 2, size - 1, size} {
			for _, n := range []int{0, 1, 100, 64 * kib, 130_000, size - off} {
				if off >= 0 && off <= size && n >= 0 {
					c.readRange(h, data, off, n)
				}
			}
		}
		c.close(h)
	}
}

// readRange reads up to n bytes in both ways.
func (s *subject) readRange(h store.Handle, data []byte, off, n int) {
	s.Helper()
	want := data[off:min(off+n, len(data))]
	p := make([]byte, n)
	got, err := h.ReadAt(p, int64(off))
	if !bytes.Equal(p[:got], want) {
		s.Fatalf("ReadAt(%d bytes, %d) of %d: other bytes than were put", n, off, len(data))
	}
	if len(want) < n && err != io.EOF || len(want) == n && err != nil && err != io.EOF {
		s.Fatalf("ReadAt(%d bytes, %d) of %d: %d, %v", n, off, len(data), got, err)
	}
	w := matchWriter{rest: want}
	written, err := h.WriteRange(&w, int64(off), int64(len(want)))
	if err != nil || written != int64(len(want)) || len(w.rest) > 0 {
		s.Fatalf("WriteRange(%d, %d) of %d: %d, %v, and %d bytes did not come", off, len(want), len(data), written, err, len(w.rest))
	}
}

func readOutside(c *subject) {
	for _, size := range []int64{0, 100, 200_000} {
		h := c.open(c.put(content(1, int(size)), store.Pinned))
		for _, r := range []struct{ off, n int64 }{{-1, 1}, {0, -1}, {0, size + 1}, {size, 1}, {size + 1, 0}, {1, size}, {1<<62 + 1, 1 << 62}} {
			var w bytes.Buffer
			n, err := h.WriteRange(&w, r.off, r.n)
			c.refused(err, "WriteRange outside", fault.InvalidRange)
			if n != 0 || w.Len() != 0 {
				c.Fatalf("WriteRange(%d, %d) of %d wrote %d bytes", r.off, r.n, size, w.Len())
			}
		}
		if n, err := h.ReadAt(make([]byte, 10), -1); n != 0 || err == nil || err == io.EOF {
			c.Errorf("ReadAt(-1): %d, %v", n, err)
		}
		if n, err := h.ReadAt(make([]byte, 10), size+5); n != 0 || err != io.EOF {
			c.Errorf("ReadAt beyond the end: %d, %v, want io.EOF", n, err)
		}
		c.close(h)
	}
}

func readToBrokenWriter(c *subject) {
	for _, size := range []int{100, 200_000} {
		h := c.open(c.put(content(1, size), store.Pinned))
		n, err := h.WriteTo(iotest.TruncateWriter(brokenWriter{}, 50))
		if !errors.Is(err, errBrokenWriter) && !errors.Is(err, io.ErrShortWrite) {
			c.Errorf("WriteTo a broken writer: %d, %v", n, err)
		}
		if n, err := h.WriteTo(shortWriter{}); !errors.Is(err, io.ErrShortWrite) || n != 10 {
			c.Errorf("WriteTo a writer that takes 10 bytes: %d, %v, want 10 and io.ErrShortWrite", n, err)
		}
		c.close(h)
	}
}

var errBrokenWriter = errors.New("nobody reads")

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errBrokenWriter }

// shortWriter breaks the rule of io.Writer: it writes less and returns no
// error.
type shortWriter struct{}

func (shortWriter) Write(p []byte) (int, error) { return min(10, len(p)), nil }

func readClosed(c *subject) {
	for _, size := range []int{100, 200_000} {
		data := content(1, size)
		a := c.put(data, store.Pinned)
		h, other := c.open(a), c.open(a)
		c.close(h)
		c.close(h) // a second time: it must not release the reference of the other handle
		if n, err := h.ReadAt(make([]byte, 10), 0); n != 0 || err == nil || err == io.EOF {
			c.Errorf("ReadAt after Close: %d, %v", n, err)
		}
		var w bytes.Buffer
		if _, err := h.WriteTo(&w); err == nil || w.Len() > 0 {
			c.Errorf("WriteTo after Close wrote %d bytes, %v", w.Len(), err)
		}
		if _, ok := h.Bytes(); ok {
			c.Errorf("Bytes after Close gave some")
		}
		c.delete(a)
		if u := c.s.Usage(); u.Lingering != int64(size) {
			c.Errorf("one handle was closed twice, another is open on a deleted object of %d bytes; %d linger", size, u.Lingering)
		}
		if err := compare(other, data); err != nil {
			c.Errorf("another handle was closed twice, then the object deleted: %v", err)
		}
		c.close(other)
	}
}

func readVerify(c *subject) {
	for _, size := range sizes {
		a := c.put(content(3, size), store.Pinned)
		if err := c.s.Verify(c.ctx, a, nil); err != nil {
			c.Errorf("verify of %d bytes: %v", size, err)
		}
		if !c.has(a) {
			c.Errorf("an object of %d bytes is gone after it was verified", size)
		}
	}
	if n := c.s.Counts().IntegrityFails; n != 0 {
		c.Errorf("%d objects are counted as corrupt, none is", n)
	}
}
