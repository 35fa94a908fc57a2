package storetest

import (
	"bytes"
	"io"
	"maps"
	"math/rand/v2"
	"slices"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/store"
)

var modelChecks = []Check{{Name: "a random history is as in the model", rule: modelHistory}}

// model is the simplest store there is. It knows what must exist; it has no
// budget, and the histories are too small to need one.
type model struct {
	*subject
	random   *rand.Rand
	contents [][]byte
	objects  map[b3.Address]*modelObject
	handles  []modelHandle
}

// modelObject is one lifetime of an object: from a put to a delete, and on
// until the last handle is closed.
type modelObject struct {
	data    []byte
	class   store.Class
	visible bool
	handles int
}

type modelHandle struct {
	store.Handle
	object *modelObject
}

func modelHistory(c *subject) {
	for seed := range uint64(12) {
		m := newModel(c, seed)
		for step := range 150 {
			m.step()
			if step%10 == 0 {
				m.compare(seed, step)
			}
		}
		m.end(seed)
	}
}

func newModel(c *subject, seed uint64) *model {
	m := &model{subject: c, random: rand.New(rand.NewPCG(seed, 3)), objects: map[b3.Address]*modelObject{}}
	for i, size := range []int{0, 1, 256, 4097, 16 * kib, 64 * kib, 64*kib + 1, 150_000} {
		m.contents = append(m.contents, content(seed<<8|uint64(i), size))
	}
	return m
}

// end closes and removes everything.
func (m *model) end(seed uint64) {
	m.Helper()
	for len(m.handles) > 0 {
		m.closeOne()
	}
	for _, a := range slices.Collect(maps.Keys(m.objects)) {
		m.remove(m.objects[a].data)
	}
	m.compare(seed, 150)
}

// step does one operation at random.
func (m *model) step() {
	m.Helper()
	data := m.contents[m.random.IntN(len(m.contents))]
	switch m.random.IntN(10) {
	case 0, 1, 2:
		m.insert(data)
	case 3:
		m.openOne(data)
	case 4:
		if len(m.handles) > 0 {
			m.closeOne()
		}
	case 5:
		m.remove(data)
	case 6:
		m.swapClass(data, store.Class(m.random.IntN(3)), store.Class(m.random.IntN(3)))
	case 7:
		m.evictOne(data)
	case 8:
		m.reclass(data, "pin", m.s.Pin(m.ctx, b3.Of(data)), store.Pinned)
	default:
		m.reclass(data, "unpin", m.s.Unpin(m.ctx, b3.Of(data)), store.Cached)
	}
}

// insert puts an object, sometimes in one of the ways that must fail.
func (m *model) insert(data []byte) {
	m.Helper()
	a := b3.Of(data)
	opt := store.PutOptions{Size: store.Unknown, Class: store.Class(m.random.IntN(3))}
	if m.random.IntN(2) == 0 {
		opt.Size = int64(len(data))
	}
	var src io.Reader = bytes.NewReader(data)
	switch m.random.IntN(4) {
	case 0:
		opt.Want = a
	case 1:
		opt.Want = b3.Of([]byte("something else"))
		_, _, err := m.s.Put(m.ctx, src, opt)
		m.refused(err, "put of other bytes than wanted", fault.IntegrityFail)
		return
	}
	info, created, err := m.s.Put(m.ctx, src, opt)
	old := m.objects[a]
	switch {
	case old == nil:
		m.objects[a] = &modelObject{data: data, class: opt.Class, visible: true}
	case opt.Class == store.Pinned || old.class == store.Cached:
		old.class = opt.Class
	}
	want := store.Info{Address: a, Size: int64(len(data)), Class: m.objects[a].class}
	if err != nil || created != (old == nil) || info != want {
		m.Fatalf("put with %+v: %+v, created %t, %v; want %+v, %t", opt, info, created, err, want, old == nil)
	}
}

func (m *model) openOne(data []byte) {
	m.Helper()
	h, err := m.s.Open(m.ctx, b3.Of(data))
	it := m.objects[b3.Of(data)]
	m.found("open", err, it)
	if it != nil {
		it.handles++
		m.handles = append(m.handles, modelHandle{h, it})
	}
}

// closeOne closes one of the handles, and reads it a last time.
func (m *model) closeOne() {
	m.Helper()
	i := m.random.IntN(len(m.handles))
	h := m.handles[i]
	if err := compare(h, h.object.data); err != nil {
		m.Fatal(err)
	}
	m.close(h)
	h.object.handles--
	m.handles = slices.Delete(m.handles, i, i+1)
}

func (m *model) remove(data []byte) {
	m.Helper()
	a := b3.Of(data)
	it := m.objects[a]
	m.found("delete", m.s.Delete(m.ctx, a), it)
	if it != nil {
		it.visible = false
		delete(m.objects, a)
	}
}

func (m *model) reclass(data []byte, what string, err error, class store.Class) {
	m.Helper()
	it := m.objects[b3.Of(data)]
	m.found(what, err, it)
	if it != nil {
		it.class = class
	}
}

// swapClass changes the class of an object if it has a certain one.
func (m *model) swapClass(data []byte, from, to store.Class) {
	m.Helper()
	it := m.objects[b3.Of(data)]
	changed, err := m.s.Reclass(m.ctx, b3.Of(data), from, to)
	m.found("reclass", err, it)
	if want := it != nil && it.class == from; changed != want {
		m.Fatalf("reclass from %v to %v: changed %t, want %t", from, to, changed, want)
	}
	if changed {
		it.class = to
	}
}

// evictOne removes an object if it is cached.
func (m *model) evictOne(data []byte) {
	m.Helper()
	a := b3.Of(data)
	it := m.objects[a]
	evicted, err := m.s.Evict(m.ctx, a)
	if want := it != nil && it.class == store.Cached; err != nil || evicted != want {
		m.Fatalf("evict: %t, %v; want %t", evicted, err, want)
	}
	if evicted {
		delete(m.objects, a)
		it.visible = false
	}
}

// found checks that an operation succeeds exactly if the object exists.
func (m *model) found(what string, err error, it *modelObject) {
	m.Helper()
	if it != nil && err != nil {
		m.Fatalf("%s of an object of %d bytes that is there: %v", what, len(it.data), err)
	}
	if it == nil {
		m.refused(err, what+" of an absent object", fault.NotFound)
	}
}

// compare compares the store with the model.
func (m *model) compare(seed uint64, step int) {
	m.Helper()
	var want store.Usage
	var infos []store.Info
	for a, it := range m.objects {
		info := store.Info{Address: a, Size: int64(len(it.data)), Class: it.class}
		infos = append(infos, info)
		want.Objects++
		want.Bytes += info.Size
		if it.class != store.Cached {
			want.Pinned += info.Size
		}
	}
	lingering := map[*modelObject]bool{}
	for _, h := range m.handles {
		if !h.object.visible && !lingering[h.object] {
			lingering[h.object] = true
			want.Lingering += int64(len(h.object.data))
		}
	}
	slices.SortFunc(infos, byAddress)
	got := m.s.Usage()
	want.Held, want.Idle, want.Budget = got.Held, got.Idle, got.Budget
	if got != want {
		m.Fatalf("seed %d, step %d: Usage %+v, want %+v", seed, step, got, want)
	}
	if page, err := m.s.List(m.ctx, b3.Address{}, store.MaxPage); err != nil || !slices.Equal(page, infos) {
		m.Fatalf("seed %d, step %d: listed are %+v, %v; want %+v", seed, step, page, err, infos)
	}
	m.checkBudget()
}
