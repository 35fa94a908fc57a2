package store

import (
	"bytes"
	"slices"
	"sync"

	"micronode/b3"
)

const (
	// maxUsed is how many rounds of the clock's hand the most used object
	// survives without being used again.
	maxUsed = 3

	// glance is how many objects the hand passes under one lock.
	glance = 64

	// shrinkBelow is how small a map may be and still not be made anew after it
	// was larger.
	shrinkBelow = 32
)

// shard is one of 256 parts of a catalogue. Everything in it is guarded by mu.
type shard struct {
	mu      sync.Mutex //lockblock:leaf a look-up, or a glance at a bounded number of objects
	objects map[b3.Address]*object
	peak    int       // how many objects there were since the map was made
	ring    []*object // the cached ones, in the order in which the hand sees them
	hand    int

	// for a store on disk
	errands map[b3.Address]chan struct{} // see begin
	rest    *object                      // the one whose file was closed last, and is kept open
}

// add makes an object visible.
func (s *shard) add(o *object) {
	if s.objects == nil {
		s.objects = map[b3.Address]*object{}
	}
	s.objects[o.address] = o
	s.peak = max(s.peak, len(s.objects))
	o.used = 1 // new ones survive the next round
	if o.class == Cached {
		s.enlist(o)
	}
}

// remove makes an object invisible.
func (s *shard) remove(o *object) {
	delete(s.objects, o.address)
	if o.class == Cached {
		s.delist(o)
	}
	if s.rest == o {
		s.rest = nil
	}
	// A map never becomes smaller by itself. Without this, a shard that once
	// held many small objects would keep memory that nobody has budgeted.
	if s.peak > shrinkBelow && len(s.objects) <= s.peak/4 {
		s.rebuild()
	}
}

func (s *shard) rebuild() {
	fresh := make(map[b3.Address]*object, len(s.objects))
	for address, o := range s.objects {
		fresh[address] = o
	}
	s.objects, s.peak = fresh, len(fresh)
	s.ring = slices.Clip(slices.Clone(s.ring))
}

// enlist puts a cached object where the hand passes.
func (s *shard) enlist(o *object) {
	o.slot = int32(len(s.ring))
	s.ring = append(s.ring, o)
}

// delist takes it out. The last one takes its place, which keeps it cheap and
// the order good enough.
func (s *shard) delist(o *object) {
	last := len(s.ring) - 1
	s.ring[o.slot] = s.ring[last]
	s.ring[o.slot].slot = o.slot
	s.ring[last] = nil
	s.ring = s.ring[:last]
}

// touch notes that an object was used.
func (s *shard) touch(o *object) {
	if o.used < maxUsed {
		o.used++
	}
}

// sweep moves the hand over the next few objects and removes the first that
// may go: one that nobody has open and that was not used lately, or force is
// set. It reports when the hand has come round.
func (s *shard) sweep(force bool) (victim *object, round bool) {
	for range glance {
		if s.hand >= len(s.ring) {
			s.hand = 0
			return nil, true
		}
		o := s.ring[s.hand]
		switch {
		case o.count.isOpen() || s.errands[o.address] != nil:
			s.hand++
		case o.used > 0 && !force:
			o.used--
			s.hand++
		default:
			s.remove(o)
			return o, false
		}
	}
	return nil, false
}

// after collects the objects whose addresses follow one, sorted.
func (s *shard) after(a b3.Address) []Info {
	s.mu.Lock()
	infos := make([]Info, 0, len(s.objects))
	for _, o := range s.objects {
		if bytes.Compare(o.address[:], a[:]) > 0 {
			infos = append(infos, o.info())
		}
	}
	s.mu.Unlock()
	slices.SortFunc(infos, func(x, y Info) int { return bytes.Compare(x.Address[:], y.Address[:]) })
	return infos
}

// begin claims an address for whoever is about to change its file: to make,
// move or remove it takes the disk, and for so long the mutex cannot be held.
// As long as the errand lasts, nobody else changes the file or makes an object
// of that address visible or invisible, but for the end of the whole store. If
// somebody is at it already, it returns what is closed when they are done.
func (s *shard) begin(a b3.Address) (busy <-chan struct{}) {
	if other := s.errands[a]; other != nil {
		return other
	}
	if s.errands == nil {
		s.errands = map[b3.Address]chan struct{}{}
	}
	s.errands[a] = make(chan struct{})
	return nil
}

// end ends an errand.
func (s *shard) end(a b3.Address) {
	close(s.errands[a])
	delete(s.errands, a)
}
