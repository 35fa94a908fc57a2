package flow_test

import (
	"context"
	"errors"
	"slices"

	"micronode/fault"
	"micronode/internal/flow"
)

// fairModel checks a fair queue against lists: what waits in each class, in
// order, and how far any two classes got while both of them waited. It knows
// what must not happen, not whose turn it is.
type fairModel struct {
	queue   *flow.Fair[int]
	inv     *flow.Inventory
	bands   []flow.BandSpec // [0] is the urgent one
	quantum int

	serial  int
	items   map[int]modelItem // by item
	waiting map[modelClass][]int
	largest map[modelClass]int
	want    []flow.Counts
	lead    map[[2]modelClass]*stretch
	closed  bool
}

type modelClass struct {
	band  int
	class uint64
}

type modelItem struct {
	of   modelClass
	cost int
}

// stretch is a time in which two classes both waited: how much more the one got
// than the other, now and at its extremes.
type stretch struct{ now, least, most int }

// failer is what a test, a fuzz target and a property have in common.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

func newFairModel(quantum int, urgent flow.BandSpec, bands ...flow.BandSpec) *fairModel {
	m := &fairModel{
		inv: flow.NewInventory(), bands: append([]flow.BandSpec{urgent}, bands...), quantum: quantum,
		items: map[int]modelItem{}, waiting: map[modelClass][]int{}, largest: map[modelClass]int{},
		want: make([]flow.Counts, 1+len(bands)), lead: map[[2]modelClass]*stretch{},
	}
	m.queue = flow.NewFair[int](m.inv, flow.FairSpec{Service: "overlay", Quantum: quantum, Urgent: urgent, Bands: bands})
	return m
}

// newItem makes the next item.
func (m *fairModel) newItem(band int, class uint64, cost int) flow.FairItem[int] {
	m.serial++
	of := modelClass{band, class}
	if band == flow.Urgent {
		of.class = 0 // the urgent band is one class
	}
	m.items[m.serial] = modelItem{of, max(cost, 1)}
	m.largest[of] = max(m.largest[of], cost, 1)
	return flow.FairItem[int]{Class: class, Cost: cost, Item: m.serial}
}

func (m *fairModel) held(of modelClass) (items, bytes int) {
	for _, item := range m.waiting[of] {
		bytes += m.items[item].cost
	}
	return len(m.waiting[of]), bytes
}

func (m *fairModel) heldBy(band int) (items, bytes int) {
	for of := range m.waiting {
		if of.band == band {
			n, b := m.held(of)
			items, bytes = items+n, bytes+b
		}
	}
	return items, bytes
}

func (m *fairModel) mostItems(band int) (most int) {
	for of, items := range m.waiting {
		if of.band == band {
			most = max(most, len(items))
		}
	}
	return most
}

// push is TryPush: accepted if it fits, and nothing is evicted.
func (m *fairModel) push(t failer, p flow.FairItem[int]) {
	t.Helper()
	one := m.items[p.Item]
	err := m.queue.TryPush(one.of.band, p)
	items, bytes := m.heldBy(one.of.band)
	bound := m.bands[one.of.band]
	switch {
	case m.closed:
		expect(t, errors.Is(err, flow.ErrClosed), "closed: %v", err)
	case items < bound.Cap && bytes+one.cost <= bound.Bytes:
		expect(t, err == nil, "push with room: %v", err)
		m.admit(p.Item)
	default:
		expect(t, errors.Is(err, fault.Busy), "full: %v", err)
		m.want[one.of.band].Refused++
	}
}

// offer is Offer of a batch for one band.
func (m *fairModel) offer(t failer, band int, batch []flow.FairItem[int]) {
	t.Helper()
	if len(batch) == 1 {
		m.checkOffer(t, batch[0], m.queue.Offer(band, batch, nil))
		return
	}
	before := m.stat(band)
	turned := m.queue.Offer(band, batch, []int{-1})
	expect(t, turned[0] == -1, "what was in turned before is gone: %v", turned)
	turned = turned[1:]
	expect(t, !m.closed || len(turned) == len(batch), "a closed queue took something: %v", turned)
	for _, item := range turned {
		m.evict(t, item)
	}
	for _, p := range batch {
		if !slices.Contains(turned, p.Item) {
			m.admit(p.Item)
		}
	}
	// Which item evicted which cannot be seen from outside, and an item may
	// come and go within the batch. The counts must add up.
	stat := m.stat(band)
	items, _ := m.heldBy(band)
	expect(t, stat.Accepted == stat.Delivered+stat.Dropped+stat.Expired+uint64(items), "counts do not add up: %+v with %d waiting", stat, items)
	offered := stat.Accepted + stat.Refused - before.Accepted - before.Refused
	expect(t, m.closed || offered == uint64(len(batch)), "%d offered, %d counted", len(batch), offered)
	m.want[band] = stat.Counts
}

// checkOffer checks the outcome of one offered item.
func (m *fairModel) checkOffer(t failer, p flow.FairItem[int], turned []int) {
	t.Helper()
	one := m.items[p.Item]
	band := one.of.band
	bound := m.bands[band]
	items, bytes := m.heldBy(band)
	full, short := items >= bound.Cap, bytes+one.cost > bound.Bytes
	ownItems, ownBytes := m.held(one.of)
	refused := slices.Equal(turned, []int{p.Item})
	switch {
	case m.closed:
		expect(t, refused, "closed: turned %v away, not %d", turned, p.Item)
	case !full && !short:
		expect(t, len(turned) == 0, "there was room for %d, yet %v went", p.Item, turned)
		m.admit(p.Item)
	case refused:
		m.want[band].Refused++
		m.checkRefusalWasFair(t, one, ownItems+1, ownBytes+one.cost, full, short)
	default:
		expect(t, len(turned) > 0 && !slices.Contains(turned, p.Item), "turned %v away for %d", turned, p.Item)
		victim := m.items[turned[0]].of
		expect(t, victim == one.of || !full || m.mostItems(band) > ownItems+1, "%v made room for the class with the most items", victim)
		expect(t, victim.band == band, "%v was displaced for an item of band %d", victim, band)
		m.admit(p.Item)
		for _, item := range turned {
			expect(t, m.items[item].of == victim, "two classes were displaced for one item: %v", turned)
			haveItems, haveBytes := m.held(victim)
			if victim != one.of {
				expect(t, short || haveItems > ownItems+1, "%v with %d items made room for a class with %d", victim, haveItems, ownItems+1)
				expect(t, !short || haveBytes > ownBytes+one.cost, "%v with %d bytes made room for a class with %d", victim, haveBytes, ownBytes+one.cost)
			} else {
				expect(t, bound.Policy == flow.DropOldest, "a class displaced its own item")
			}
			at := 0
			if bound.Policy != flow.DropOldest {
				at = len(m.waiting[victim]) - 1
			}
			expect(t, m.waiting[victim][at] == item, "displaced %d of %v", item, m.waiting[victim])
			m.evict(t, item)
			m.want[band].Dropped++
		}
	}
	items, bytes = m.heldBy(band)
	expect(t, items <= bound.Cap && bytes <= bound.Bytes, "band %d holds %d items, %d bytes", band, items, bytes)
}

// checkRefusalWasFair fails if an item was refused although one class had so
// much more that items of it could have been evicted.
func (m *fairModel) checkRefusalWasFair(t failer, one modelItem, items, bytes int, full, short bool) {
	t.Helper()
	bound := m.bands[one.of.band]
	if one.of.band == flow.Urgent || one.cost > bound.Bytes {
		return
	}
	expect(t, bound.Policy != flow.DropOldest || len(m.waiting[one.of]) == 0 || short, "drop-oldest refused although the class had items of its own")
	if full && !short {
		for of := range m.waiting {
			n, _ := m.held(of)
			expect(t, of.band != one.of.band || n <= items, "refused, but %v holds %d items against %d", of, n, items)
		}
	}
	if short && !full {
		_, used := m.heldBy(one.of.band)
		need := used + one.cost - bound.Bytes
		for of := range m.waiting {
			_, b := m.held(of)
			expect(t, of.band != one.of.band || b-need <= bytes, "refused, but %v holds %d bytes against %d and %d are needed", of, b, bytes, need)
		}
	}
}

func (m *fairModel) admit(item int) {
	of := m.items[item].of
	if len(m.waiting[of]) == 0 && of.band != flow.Urgent {
		for other := range m.waiting {
			if other.band != flow.Urgent && len(m.waiting[other]) > 0 {
				m.lead[[2]modelClass{of, other}] = &stretch{}
			}
		}
	}
	m.waiting[of] = append(m.waiting[of], item)
	m.want[of.band].Accepted++
}

// evict removes an item from the model, wherever it is.
func (m *fairModel) evict(t failer, item int) {
	t.Helper()
	of := m.items[item].of
	_, known := m.items[item]
	expect(t, known, "item %d had gone before, or never was", item)
	delete(m.items, item)
	i := slices.Index(m.waiting[of], item)
	if i < 0 {
		return // it was never accepted
	}
	if m.waiting[of] = slices.Delete(m.waiting[of], i, i+1); len(m.waiting[of]) == 0 {
		delete(m.waiting, of)
		for pair := range m.lead {
			if pair[0] == of || pair[1] == of {
				delete(m.lead, pair)
			}
		}
	}
}

// withdraw is Withdraw of an item, which may wait or not.
func (m *fairModel) withdraw(t failer, item int) {
	t.Helper()
	one, known := m.items[item]
	waits := known && one.of.band != flow.Urgent && slices.Contains(m.waiting[one.of], item)
	got := m.queue.Withdraw(max(1, one.of.band), one.of.class, func(other int) bool { return other == item })
	expect(t, got == waits, "withdrew %d: %t, and that it waits is %t", item, got, waits)
	if waits {
		m.want[one.of.band].Expired++
		m.evict(t, item)
	}
}

// take is Take of up to n items and most bytes.
func (m *fairModel) take(t failer, n, most int) {
	t.Helper()
	into := make([]int, n)
	ctx := context.Background()
	if len(m.waiting) == 0 && !m.closed {
		ctx = canceled
	}
	got, err := m.queue.Take(ctx, into, most)
	if len(m.waiting) == 0 {
		expect(t, got == 0 && (errors.Is(err, flow.ErrClosed) || !m.closed && errors.Is(err, fault.Canceled)), "take of nothing: %d, %v", got, err)
		return
	}
	expect(t, err == nil && got > 0, "take: %d, %v", got, err)
	spent := 0
	for i, item := range into[:got] {
		one, known := m.items[item]
		expect(t, known, "item %d was delivered twice, or never came", item)
		of := one.of
		expect(t, len(m.waiting[of]) > 0 && m.waiting[of][0] == item, "%d out of turn in %v", item, m.waiting[of])
		expect(t, of.band == flow.Urgent || len(m.waiting[modelClass{}]) == 0, "%d went before what is urgent", item)
		expect(t, i == 0 || spent < most, "took on after %d of %d bytes", spent, most)
		spent += one.cost
		m.serve(t, of, one.cost)
		m.want[of.band].Delivered++
		m.evict(t, item)
	}
	expect(t, got == n || spent >= most || len(m.waiting) == 0, "stopped at %d of %d items, %d of %d bytes", got, n, spent, most)
}

// serve records what a class got, against every other that waits too.
func (m *fairModel) serve(t failer, of modelClass, cost int) {
	t.Helper()
	for pair, s := range m.lead {
		switch of {
		case pair[0]:
			s.now += cost
		case pair[1]:
			s.now -= cost
		default:
			continue
		}
		s.least, s.most = min(s.least, s.now), max(s.most, s.now)
		bound := m.quantum + m.largest[pair[0]] + m.largest[pair[1]]
		expect(t, s.most-s.least <= bound, "%v and %v both waited, and one got %d bytes more; the bound is %d", pair[0], pair[1], s.most-s.least, bound)
	}
}

func (m *fairModel) close() {
	m.queue.Close()
	m.closed = true
}

func (m *fairModel) stat(band int) flow.Stat {
	for _, stat := range m.inv.Read() {
		if stat.Name == m.bands[band].Name {
			return stat
		}
	}
	return flow.Stat{}
}

// check compares what can be seen from outside.
func (m *fairModel) check(t failer) {
	t.Helper()
	for band, bound := range m.bands {
		items, bytes := m.heldBy(band)
		expect(t, m.queue.Len(band) == items && m.queue.Bytes(band) == bytes, "band %d says %d items, %d bytes; it holds %d, %d",
			band, m.queue.Len(band), m.queue.Bytes(band), items, bytes)
		expect(t, items <= bound.Cap && bytes <= bound.Bytes, "band %d is over its bound: %d items, %d bytes", band, items, bytes)
		stat := m.stat(band)
		expect(t, sameCounts(stat.Counts, m.want[band]) && stat.Depth == items, "band %d: %+v, want %+v", band, stat, m.want[band])
	}
}

func expect(t failer, holds bool, format string, args ...any) {
	if !holds {
		t.Helper()
		t.Fatalf(format, args...)
	}
}
