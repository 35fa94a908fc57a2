package graph

// Direction is which way edges are walked.
type Direction string

// The two directions.
const (
	Follows   Direction = "follows"   // to those whom a node follows
	Followers Direction = "followers" // to those who follow it
)

// MaxHops is how far a walk may go.
const MaxHops = 3

// Walk is a question for those around a node.
type Walk struct {
	From      string
	Direction Direction
	Hops      int // from 1 to MaxHops
	Most      int // how many it may find
	Edges     int // how many edges it may look at
}

// Near is a node that was found, and how many steps away it is.
type Near struct {
	ID   string
	Hops int
}

// Scratch is what a walk takes notes in. It can be used for one walk after the
// other, in one graph or in several. The zero Scratch is ready.
type Scratch struct {
	seen  []uint32 // by id: the number of the last walk that came by
	walk  uint32
	queue []id // all that were found, in the order in which they were
}

// checkEvery is how many edges are looked at between two checks.
const checkEvery = 1024

// Walk finds those around a node, the nearest first, and among those who are
// equally near in the order in which they are come by; that order is the same
// each time as long as the graph is. The node itself is not among them, and a
// node that nobody knows has nobody around it. Truncated says that there may be
// more. From time to time check is asked; an error of it ends the walk.
func (g *Graph) Walk(s *Scratch, w Walk, check func() error) (found []Near, truncated bool, err error) {
	from, known := g.ids[w.From]
	if !known {
		return nil, false, nil
	}
	s.begin(from, len(g.nodes))
	var ends [MaxHops + 1]int // of each distance, in the queue
	ends[0] = 1
	budget := w.Edges
	for hop := 1; hop <= w.Hops && !truncated; hop++ {
		begin := 0
		if hop > 1 {
			begin = ends[hop-2]
		}
		truncated, err = g.step(s, s.queue[begin:ends[hop-1]], w, &budget, check)
		if err != nil {
			return nil, false, err
		}
		ends[hop] = len(s.queue)
	}
	return g.tell(s.queue, ends), truncated, nil
}

// begin makes a scratch ready for a walk.
func (s *Scratch) begin(from id, nodes int) {
	s.walk++
	if s.walk == 0 { // the numbers start over, and the old ones must not be mistaken for new ones
		clear(s.seen)
		s.walk = 1
	}
	if len(s.seen) < nodes {
		s.seen = append(s.seen, make([]uint32, nodes-len(s.seen))...)
	}
	s.queue = append(s.queue[:0], from)
	s.seen[from] = s.walk
}

// step adds those to the queue that are one step away from some of it and were
// not seen before. It reports whether it had to stop.
func (g *Graph) step(s *Scratch, from []id, w Walk, budget *int, check func() error) (stopped bool, err error) {
	for _, at := range from {
		way := &g.nodes[at].follows
		if w.Direction == Followers {
			way = &g.nodes[at].followers
		}
		for _, run := range way.runs {
			for _, n := range run {
				if *budget == 0 {
					return true, nil
				}
				if *budget--; *budget%checkEvery == 0 {
					if err := check(); err != nil {
						return true, err
					}
				}
				if s.seen[n] == s.walk {
					continue
				}
				if len(s.queue) > w.Most { // the first in the queue is where it began
					return true, nil
				}
				s.seen[n] = s.walk
				s.queue = append(s.queue, n)
			}
		}
	}
	return false, nil
}

// tell makes the answer: the queue without its first, with the distances.
func (g *Graph) tell(queue []id, ends [MaxHops + 1]int) []Near {
	found := make([]Near, 0, len(queue)-1)
	for i, n := range queue[1:] {
		hops := 1
		for ends[hops] <= i+1 {
			hops++
		}
		found = append(found, Near{ID: g.name(n), Hops: hops})
	}
	return found
}
