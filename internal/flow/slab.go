package flow

// slab keeps the items that wait in a fair queue, and the classes that they
// belong to. Slots are reused by any class: the queue costs what waits in it,
// however many classes that belongs to, and once it is warm it allocates
// nothing. A slab is guarded by its owner's mutex.
type slab[T any] struct {
	slots          []slot[T] // slots[0] is unused, so that zero can mean none
	freeSlot       int32     // the first free slot; free slots are linked by next
	classes        map[classKey]*class
	freeClasses    *class // emptied classes, kept for reuse, linked by next
	freeClassCount int    // how many
}

// slot holds one item and its neighbours in the list.
type slot[T any] struct {
	item       FairItem[T]
	prev, next int32
}

// slotList is a list of slots, in the order in which their items arrived.
type slotList struct {
	first, last int32
	n           int
}

// maxFreeClasses is how many emptied classes are kept for reuse.
const maxFreeClasses = 16

// append puts an item at the end of a list.
func (s *slab[T]) append(l *slotList, p *FairItem[T]) {
	at := s.allocSlot()
	one := &s.slots[at]
	one.item, one.prev, one.next = *p, l.last, 0
	if l.n == 0 {
		l.first = at
	} else {
		s.slots[l.last].next = at
	}
	l.last = at
	l.n++
}

func (s *slab[T]) allocSlot() int32 {
	if at := s.freeSlot; at != 0 {
		s.freeSlot = s.slots[at].next
		return at
	}
	if s.slots == nil {
		s.slots = make([]slot[T], 1, 16)
	}
	s.slots = append(s.slots, slot[T]{})
	return int32(len(s.slots) - 1)
}

// remove takes an item out of a list, at any position, moves it to to, and
// returns its cost. The slot is cleared, so that the slab does not keep the
// item alive.
func (s *slab[T]) remove(l *slotList, at int32, to *T) (cost int) {
	one := &s.slots[at]
	if one.prev == 0 {
		l.first = one.next
	} else {
		s.slots[one.prev].next = one.next
	}
	if one.next == 0 {
		l.last = one.prev
	} else {
		s.slots[one.next].prev = one.prev
	}
	l.n--
	cost = one.item.Cost
	*to = one.item.Item
	*one = slot[T]{next: s.freeSlot}
	s.freeSlot = at
	return cost
}

// newClass makes a class, reusing an emptied one if there is any.
func (s *slab[T]) newClass(key classKey) *class {
	c := s.freeClasses
	if c == nil {
		c = &class{}
	} else {
		s.freeClasses = c.next
		s.freeClassCount--
	}
	c.key = key
	if s.classes == nil {
		s.classes = map[classKey]*class{}
	}
	s.classes[key] = c
	return c
}

// freeClass removes a class without items.
func (s *slab[T]) freeClass(c *class) {
	delete(s.classes, c.key)
	*c = class{}
	if s.freeClassCount < maxFreeClasses {
		c.next, s.freeClasses = s.freeClasses, c
		s.freeClassCount++
	}
}
