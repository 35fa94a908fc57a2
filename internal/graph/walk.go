package graph

// Direction is which way edges are walked.
type Direction string

// The two directions.
const (
	Follows   Direction = "follows"   // to the nodes that a node follows
	Followers Direction = "followers" // to the nodes that follow it
)

// MaxHops is the maximum number of hops of a walk.
const MaxHops = 3

// walkSpec configures a walk.
type walkSpec struct {
	from      string
	direction Direction
	hops      int // from 1 to MaxHops
	maxNodes  int // maximum number of nodes found
	maxEdges  int // maximum number of edges visited
}

// NearNode is a node that was found, and its distance in hops.
type NearNode struct {
	ID   string `json:"id"`
	Hops int    `json:"hops"`
}

// scratch is the working memory of a walk. It can be reused for one walk after
// the other, in one set or in several. The zero scratch is ready.
type scratch struct {
	seen       []uint32 // by id: the generation of the last walk that visited it
	generation uint32
	queue      []id // nodes found, in that order
}

// checkEvery is how many edges are visited between two calls of check.
const checkEvery = 1024

// walk finds the nodes around a node, nearest first, and at equal distance in
// the order of discovery, which is deterministic as long as the graph does not
// change. The node itself is not among them, and an unknown node has no
// neighbours. Truncated says that there may be more. It calls check from time
// to time; an error of it ends the walk.
func (e *edgeSet) walk(s *scratch, w walkSpec, check func() error) (found []NearNode, truncated bool, err error) {
	from, known := e.ids[w.from]
	if !known {
		return nil, false, nil
	}
	s.begin(from, len(e.nodes))
	var ends [MaxHops + 1]int // of each distance, in the queue
	ends[0] = 1
	budget := w.maxEdges
	for hop := 1; hop <= w.hops && !truncated; hop++ {
		begin := 0
		if hop > 1 {
			begin = ends[hop-2]
		}
		truncated, err = e.expand(s, s.queue[begin:ends[hop-1]], w, &budget, check)
		if err != nil {
			return nil, false, err
		}
		ends[hop] = len(s.queue)
	}
	return e.nearNodes(s.queue, ends), truncated, nil
}

// begin prepares a scratch for a walk.
func (s *scratch) begin(from id, nodes int) {
	s.generation++
	if s.generation == 0 { // it wrapped around: marks of old walks must not count
		clear(s.seen)
		s.generation = 1
	}
	if len(s.seen) < nodes {
		s.seen = append(s.seen, make([]uint32, nodes-len(s.seen))...)
	}
	s.queue = append(s.queue[:0], from)
	s.seen[from] = s.generation
}

// expand appends to the queue the unvisited nodes that are one hop away from
// the given ones. It reports whether a limit stopped it.
func (e *edgeSet) expand(s *scratch, from []id, w walkSpec, budget *int, check func() error) (stopped bool, err error) {
	for _, at := range from {
		neighbours := &e.nodes[at].follows
		if w.direction == Followers {
			neighbours = &e.nodes[at].followers
		}
		for _, run := range neighbours.runs {
			for _, n := range run {
				if *budget == 0 {
					return true, nil
				}
				if *budget--; *budget%checkEvery == 0 {
					if err := check(); err != nil {
						return true, err
					}
				}
				if s.seen[n] == s.generation {
					continue
				}
				if len(s.queue) > w.maxNodes { // the first in the queue is the start node
					return true, nil
				}
				s.seen[n] = s.generation
				s.queue = append(s.queue, n)
			}
		}
	}
	return false, nil
}

// nearNodes returns the queue without its first element, with the distances.
func (e *edgeSet) nearNodes(queue []id, ends [MaxHops + 1]int) []NearNode {
	found := make([]NearNode, 0, len(queue)-1)
	for i, n := range queue[1:] {
		hops := 1
		for ends[hops] <= i+1 {
			hops++
		}
		found = append(found, NearNode{ID: e.name(n), Hops: hops})
	}
	return found
}
