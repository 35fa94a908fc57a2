package flow

// shelf keeps the items that wait in a fair queue, and the classes that they
// belong to. Places are used again and again, by whichever class comes next:
// the queue costs what waits in it, however many classes that belongs to, and
// once it is warm it allocates nothing. A shelf is guarded by its owner's mutex.
type shelf[T any] struct {
	places  []place[T] // places[0] is nobody's, so that zero can mean none
	free    int32      // the first free place; free places are linked by next
	classes map[classKey]*class
	spares  *class // emptied ones, kept for the next, linked by next
	spare   int    // how many
}

// place holds one item and knows its neighbours in line.
type place[T any] struct {
	parcel     Parcel[T]
	prev, next int32
}

// line is a row of places, in the order in which their items came.
type line struct {
	first, last int32
	n           int
}

// maxSpare is how many emptied classes are kept for the next.
const maxSpare = 16

// append puts an item at the end of a line.
func (s *shelf[T]) append(l *line, p *Parcel[T]) {
	at := s.vacant()
	one := &s.places[at]
	one.parcel, one.prev, one.next = *p, l.last, 0
	if l.n == 0 {
		l.first = at
	} else {
		s.places[l.last].next = at
	}
	l.last = at
	l.n++
}

func (s *shelf[T]) vacant() int32 {
	if at := s.free; at != 0 {
		s.free = s.places[at].next
		return at
	}
	if s.places == nil {
		s.places = make([]place[T], 1, 16)
	}
	s.places = append(s.places, place[T]{})
	return int32(len(s.places) - 1)
}

// remove takes an item out of a line, wherever it stands in it, and moves it to
// where it is wanted. The place is cleared, so that the shelf does not keep what
// it handed over alive. It says what the item cost.
func (s *shelf[T]) remove(l *line, at int32, to *T) (cost int) {
	one := &s.places[at]
	if one.prev == 0 {
		l.first = one.next
	} else {
		s.places[one.prev].next = one.next
	}
	if one.next == 0 {
		l.last = one.prev
	} else {
		s.places[one.next].prev = one.prev
	}
	l.n--
	cost = one.parcel.Cost
	*to = one.parcel.Item
	*one = place[T]{next: s.free}
	s.free = at
	return cost
}

// open makes a class, of a spare one if there is any.
func (s *shelf[T]) open(key classKey) *class {
	c := s.spares
	if c == nil {
		c = &class{}
	} else {
		s.spares = c.next
		s.spare--
	}
	c.key = key
	if s.classes == nil {
		s.classes = map[classKey]*class{}
	}
	s.classes[key] = c
	return c
}

// close forgets a class that nothing waits in.
func (s *shelf[T]) close(c *class) {
	delete(s.classes, c.key)
	*c = class{}
	if s.spare < maxSpare {
		c.next, s.spares = s.spares, c
		s.spare++
	}
}
