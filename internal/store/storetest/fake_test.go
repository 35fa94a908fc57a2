package storetest_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"sync"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/store"
	"micronode/internal/store/storetest"
)

// flaw is a rule that the fake breaks. The zero flaw breaks none.
type flaw string

// fake is the shortest store that keeps every rule: a map, a mutex and a
// counter. That it passes shows that the suite requires nothing that only the
// store in RAM has.
type fake struct {
	flaw flaw

	mu     sync.Mutex
	items  map[b3.Address]*item
	tick   int
	closed bool
	usage  store.Usage
	counts store.Counts
}

type item struct {
	data    []byte
	class   store.Class
	handles int
	visible bool
	used    int
}

func newFake(f flaw) *fake {
	return &fake{flaw: f, items: map[b3.Address]*item{}, usage: store.Usage{Budget: storetest.LeastBudget}}
}

// has reports whether this fake has a certain flaw.
func (f *fake) has(flaws ...flaw) bool { return slices.Contains(flaws, f.flaw) }

func (f *fake) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil && !f.has("serves who has left") {
		return fault.Wrap("fake", err)
	}
	if f.closed && !f.has("serves when closed") {
		return fault.WrapKind("fake", fault.Canceled, flow.ErrClosed)
	}
	return nil
}

func (f *fake) Put(ctx context.Context, src io.Reader, opt store.PutOptions) (store.Info, bool, error) {
	f.mu.Lock()
	err := f.enter(ctx)
	old := f.items[opt.Want]
	if err == nil && old != nil {
		info := f.putExisting(opt.Want, old, opt.Class)
		f.mu.Unlock()
		return info, false, nil
	}
	f.mu.Unlock()
	if err != nil {
		return store.Info{}, false, err
	}
	var theirs []byte
	if buffer, ok := src.(*bytes.Buffer); ok && f.has("keeps the bytes of others") {
		theirs = buffer.Bytes()
	}
	data, err := f.read(ctx, src, opt.Size)
	if theirs != nil {
		data = theirs
	}
	if err == nil && !opt.Want.IsZero() && b3.Of(data) != opt.Want && !f.has("accepts wrong bytes") {
		f.mu.Lock()
		f.counts.Mismatches++
		f.mu.Unlock()
		err = fault.Wrap("fake", &b3.Mismatch{Want: opt.Want, Got: b3.Of(data)})
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil {
		err = f.enter(ctx)
	}
	if err != nil && !(f.has("keeps what broke off") && len(data) > 0 && fault.KindOf(err) == fault.Internal) {
		if !f.has("leaks what it reserved") {
			f.usage.Held -= int64(len(data))
		}
		return store.Info{}, false, err
	}
	info, created := f.insert(data, opt.Class)
	return info, created, err
}

// insert makes data visible. It is in usage.Held already.
func (f *fake) insert(data []byte, class store.Class) (store.Info, bool) {
	a := b3.Of(data)
	if old := f.items[a]; old != nil {
		if !f.has("counts twice") {
			f.usage.Held -= int64(len(data))
		} else {
			f.usage.Bytes += int64(len(data))
		}
		return f.putExisting(a, old, class), f.has("creates twice")
	}
	it := &item{data: data, class: class, visible: true}
	f.items[a] = it
	f.touch(it)
	f.addTotals(it, 1)
	return store.Info{Address: a, Size: int64(len(data)), Class: class}, true
}

func (f *fake) putExisting(a b3.Address, it *item, class store.Class) store.Info {
	f.touch(it)
	if kept := it.class.With(class); kept != it.class && !f.has("does not pin again") || f.has("unpins by a put") {
		f.addTotals(it, -1)
		if it.class = kept; f.has("unpins by a put") {
			it.class = class
		}
		f.addTotals(it, 1)
	}
	return store.Info{Address: a, Size: int64(len(it.data)), Class: it.class}
}

func (f *fake) touch(it *item) {
	f.tick++
	it.used = f.tick
	if f.has("evicts what is used") {
		it.used = -f.tick
	}
}

// addTotals adds an item to what is visible, or takes it away.
func (f *fake) addTotals(it *item, n int64) {
	f.usage.Objects += n
	f.usage.Bytes += n * int64(len(it.data))
	if it.class != store.Cached {
		f.usage.Pinned += n * int64(len(it.data))
	}
}

// read reads a body and reserves space for it. The space for what it returns is
// reserved, with an error too.
func (f *fake) read(ctx context.Context, src io.Reader, size int64) (data []byte, err error) {
	if size < store.Unknown {
		return nil, fault.Malformed
	}
	if f.has("reads before it refuses") {
		head := make([]byte, 1)
		n, _ := src.Read(head)
		src = io.MultiReader(bytes.NewReader(head[:n]), src)
	}
	if size != store.Unknown && !f.reserve(size) {
		return nil, fault.StoreFull
	}
	declared := size != store.Unknown
	defer func() {
		if declared { // what was not read is released
			f.mu.Lock()
			f.usage.Held -= size - int64(len(data))
			f.mu.Unlock()
		}
	}()
	for chunk, idle := make([]byte, 32<<10), 0; ; {
		if err := ctx.Err(); err != nil && !f.has("serves who has left") {
			return data, fault.Wrap("fake", err)
		}
		n, err := src.Read(chunk)
		if idle++; n > 0 {
			idle = 0
		} else if idle > 100 {
			err = io.ErrNoProgress
		}
		if declared && int64(len(data)+n) > size {
			return data, fault.Malformed
		}
		if !declared && n > 0 && !f.reserve(int64(n)) {
			return data, fault.StoreFull
		}
		data = append(data, chunk[:n]...)
		switch {
		case err == io.EOF && declared && int64(len(data)) < size && !f.has("takes what is too short"):
			return data, fault.Malformed
		case err == io.EOF:
			return data, nil
		case errors.Is(err, io.ErrUnexpectedEOF):
			return data, fault.WrapKind("fake", fault.BrokenPipe, err)
		case err != nil:
			return data, fault.Wrap("fake", err)
		}
	}
}

// reserve evicts until there is space for n bytes.
func (f *fake) reserve(n int64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	var free int64
	for _, it := range f.items {
		if f.isEvictable(it) {
			free += int64(len(it.data))
		}
	}
	available := f.usage.Budget - f.usage.Held
	if n > available+free && !f.has("evicts in vain") || n > available && f.has("never evicts") {
		if !f.has("has no limit") {
			f.counts.Refusals++
			return false
		}
	}
	for n > f.usage.Budget-f.usage.Held {
		if !f.evict() {
			break
		}
	}
	if n > f.usage.Budget-f.usage.Held && !f.has("has no limit") {
		f.counts.Refusals++
		return false
	}
	f.usage.Held += n
	return true
}

func (f *fake) isEvictable(it *item) bool {
	return (it.class == store.Cached || f.has("evicts pinned") || it.class == store.Named && f.has("evicts what is named")) && (it.handles == 0 || f.has("evicts open"))
}

// evict removes the least recently used object.
func (f *fake) evict() bool {
	var oldest b3.Address
	var found *item
	for a, it := range f.items {
		if f.isEvictable(it) && (found == nil || it.used < found.used) {
			oldest, found = a, it
		}
	}
	if found == nil {
		return false
	}
	f.counts.Evictions++
	f.remove(oldest, found)
	if f.has("evicts open") {
		clear(found.data)
	}
	return true
}

func (f *fake) remove(a b3.Address, it *item) {
	delete(f.items, a)
	f.addTotals(it, -1)
	it.visible = false
	f.usage.Lingering += int64(len(it.data))
	if f.has("pulls away what is deleted") {
		clear(it.data)
	}
	if it.handles == 0 {
		f.free(it)
	} else if f.has("frees what is open") {
		f.usage.Held -= int64(len(it.data))
	}
}

func (f *fake) free(it *item) {
	f.usage.Lingering -= int64(len(it.data))
	f.usage.Held -= int64(len(it.data))
}

// find calls do with an item.
func (f *fake) find(ctx context.Context, a b3.Address, do func(*item)) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.enter(ctx); err != nil {
		return err
	}
	it := f.items[a]
	if it == nil {
		return fault.NotFound
	}
	do(it)
	return nil
}

func (f *fake) Open(ctx context.Context, a b3.Address) (h store.Handle, err error) {
	err = f.find(ctx, a, func(it *item) {
		it.handles++
		f.touch(it)
		h = &fakeHandle{f: f, it: it, a: a}
	})
	return h, err
}

func (f *fake) Stat(ctx context.Context, a b3.Address) (info store.Info, err error) {
	err = f.find(ctx, a, func(it *item) { info = store.Info{Address: a, Size: int64(len(it.data)), Class: it.class} })
	if f.has("does not see pinned ones") && err == nil && info.Class == store.Pinned {
		return store.Info{}, fault.NotFound
	}
	return info, err
}

func (f *fake) Delete(ctx context.Context, a b3.Address) error {
	err := f.find(ctx, a, func(it *item) {
		if !f.has("deletes nothing") {
			f.remove(a, it)
		}
	})
	if f.has("deletes what is not there") && fault.KindOf(err) == fault.NotFound {
		return nil
	}
	return err
}

func (f *fake) reclass(ctx context.Context, a b3.Address, class store.Class) error {
	return f.find(ctx, a, func(it *item) {
		f.addTotals(it, -1)
		it.class = class
		f.addTotals(it, 1)
	})
}

func (f *fake) Pin(ctx context.Context, a b3.Address) error { return f.reclass(ctx, a, store.Pinned) }

func (f *fake) Unpin(ctx context.Context, a b3.Address) error {
	if f.has("does not unpin") {
		return f.find(ctx, a, func(*item) {})
	}
	return f.reclass(ctx, a, store.Cached)
}

func (f *fake) Reclass(ctx context.Context, a b3.Address, from, to store.Class) (changed bool, err error) {
	err = f.find(ctx, a, func(it *item) {
		if changed = it.class == from || f.has("unpins what was pinned"); changed {
			f.addTotals(it, -1)
			it.class = to
			f.addTotals(it, 1)
		}
	})
	return changed, err
}

func (f *fake) Evict(ctx context.Context, a b3.Address) (evicted bool, err error) {
	err = f.find(ctx, a, func(it *item) {
		if evicted = it.class == store.Cached || f.has("evicts more than cached"); evicted {
			f.remove(a, it)
		}
	})
	if fault.KindOf(err) == fault.NotFound {
		err = nil
	}
	return evicted, err
}

func (f *fake) List(ctx context.Context, after b3.Address, limit int) (page []store.Info, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.enter(ctx); err != nil {
		return nil, err
	}
	for a, it := range f.items {
		if bytes.Compare(a[:], after[:]) > 0 {
			page = append(page, store.Info{Address: a, Size: int64(len(it.data)), Class: it.class})
		}
	}
	if !f.has("lists in no order") {
		slices.SortFunc(page, func(x, y store.Info) int { return bytes.Compare(x.Address[:], y.Address[:]) })
	}
	switch f.flaw {
	case "lists without end":
		return page, nil
	case "lists the same again":
		if len(page) == 0 && len(f.items) > 0 {
			page = append(page, store.Info{Address: after})
		}
	case "cannot list":
		return nil, fault.StorageBusy
	}
	return page[:min(len(page), max(1, min(limit, store.MaxPage)))], nil
}

func (f *fake) Verify(ctx context.Context, a b3.Address, _ store.Pace) error {
	return f.find(ctx, a, func(it *item) {
		if f.has("cries corrupt") {
			f.counts.IntegrityFails++
		}
	})
}

func (f *fake) Usage() store.Usage {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch f.flaw {
	case "is out by one":
		return store.Usage{Objects: f.usage.Objects, Bytes: f.usage.Bytes + 1, Budget: f.usage.Budget, Held: f.usage.Held + 1}
	case "holds for free":
		return store.Usage{Objects: f.usage.Objects, Bytes: f.usage.Bytes, Pinned: f.usage.Pinned, Budget: f.usage.Budget}
	}
	return f.usage
}

func (f *fake) Counts() store.Counts {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.has("counts nothing") {
		return store.Counts{}
	}
	return f.counts
}

func (f *fake) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	if f.has("zeroes what is open") {
		for _, it := range f.items {
			clear(it.data)
		}
	}
	if f.has("cannot close") {
		return fault.Internal
	}
	return nil
}

type fakeHandle struct {
	f      *fake
	it     *item
	a      b3.Address
	closed bool
}

func (h *fakeHandle) Address() b3.Address { return h.a }
func (h *fakeHandle) Size() int64         { return int64(len(h.it.data)) }

func (h *fakeHandle) Bytes() ([]byte, bool) {
	if h.f.has("gives other bytes at once") {
		return []byte("other"), true
	}
	return h.it.data, !h.closed
}

func (h *fakeHandle) ReadAt(p []byte, off int64) (int, error) {
	if h.closed && !h.f.has("reads after close") {
		return 0, fault.Internal
	}
	if h.f.has("reads one too far") && off > 0 {
		off--
	}
	if off >= h.Size() {
		return 0, io.EOF
	}
	return bytes.NewReader(h.it.data).ReadAt(p, off)
}

func (h *fakeHandle) WriteTo(w io.Writer) (int64, error) { return h.WriteRange(w, 0, h.Size()) }

func (h *fakeHandle) WriteRange(w io.Writer, off, n int64) (int64, error) {
	if h.closed {
		return 0, fault.Internal
	}
	if off < 0 || n < 0 || off > h.Size() || n > h.Size()-off {
		if h.f.has("clips ranges") {
			return 0, nil
		}
		return 0, fault.InvalidRange
	}
	data := h.it.data[off : off+n]
	if h.f.has("gives wrong bytes") && n > 0 {
		data = append([]byte{data[0] ^ 1}, data[1:]...)
	}
	written, err := w.Write(data)
	if err == nil && written < len(data) && !h.f.has("ignores short writes") {
		err = io.ErrShortWrite
	}
	return int64(written), err
}

func (h *fakeHandle) Close() error {
	h.f.mu.Lock()
	defer h.f.mu.Unlock()
	if h.f.has("cannot close handles") {
		return fault.Internal
	}
	if h.closed && !h.f.has("closes twice") {
		return nil
	}
	h.closed = true
	h.it.handles--
	if h.it.handles == 0 && !h.it.visible {
		if h.f.has("frees what is open") {
			h.f.usage.Held += int64(len(h.it.data))
		}
		h.f.free(h.it)
	}
	return nil
}
