package flow

// shelf keeps the items that wait in a fair queue. Places are used again and
// again, by whichever class comes next: the queue costs what waits in it,
// however many classes that belongs to, and once it is warm it allocates
// nothing. A shelf is guarded by its owner's mutex.
type shelf[T any] struct {
	places []place[T] // places[0] is nobody's, so that zero can mean none
	free   int32      // the first free place; free places are linked by next
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

// roomy is how many places an empty shelf may keep. What a rare burst needed
// beyond that is given back: there is a shelf for each of ten thousand sessions.
const roomy = 128

// append puts an item at the end of a line.
func (s *shelf[T]) append(l *line, p Parcel[T]) {
	at := s.vacant()
	s.places[at] = place[T]{parcel: p, prev: l.last}
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

// remove takes an item out of a line, wherever it stands in it. The place is
// cleared, so that the shelf does not keep what it handed over alive.
func (s *shelf[T]) remove(l *line, at int32) Parcel[T] {
	one := s.places[at]
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
	s.places[at] = place[T]{next: s.free}
	s.free = at
	return one.parcel
}

// tidy is called when nothing is left on the shelf, and says whether it had
// grown so much that its places were given back.
func (s *shelf[T]) tidy() bool {
	if len(s.places) <= roomy {
		return false
	}
	*s = shelf[T]{}
	return true
}
