package store

import (
	"bytes"
	"slices"
	"sync"

	"micronode/b3"
)

const (
	// maxUseCount is how many rounds of the clock hand the most used object
	// survives without being used again.
	maxUseCount = 3

	// sweepBatch is how many objects the hand passes per lock.
	sweepBatch = 64

	// minShrinkPeak is the peak size up to which a map is never rebuilt to
	// shrink it.
	minShrinkPeak = 32
)

// shard is one of 256 parts of a catalogue. Everything in it is guarded by mu.
type shard struct {
	mu        sync.Mutex //lockblock:leaf a look-up, or a scan of a bounded number of objects
	objects   map[b3.Address]*object
	peak      int       // how many objects there were since the map was made
	ring      []*object // the cached ones, in the order of the hand
	clockHand int

	// for a store on disk
	addressLocks map[b3.Address]chan struct{} // see tryLockAddress
	idleObject   *object                      // the one whose file was released last, and is kept open
}

// add makes an object visible.
func (s *shard) add(o *object) {
	if s.objects == nil {
		s.objects = map[b3.Address]*object{}
	}
	s.objects[o.address] = o
	s.peak = max(s.peak, len(s.objects))
	o.useCount = 1 // new ones survive the next round
	if o.class == Cached {
		s.addToRing(o)
	}
}

// remove makes an object invisible.
func (s *shard) remove(o *object) {
	delete(s.objects, o.address)
	if o.class == Cached {
		s.removeFromRing(o)
	}
	if s.idleObject == o {
		s.idleObject = nil
	}
	// A map never shrinks by itself. Without this, a shard that once held many
	// small objects would keep memory that no budget covers.
	if s.peak > minShrinkPeak && len(s.objects) <= s.peak/4 {
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

// addToRing adds a cached object to the ring.
func (s *shard) addToRing(o *object) {
	o.ringIndex = int32(len(s.ring))
	s.ring = append(s.ring, o)
}

// removeFromRing removes it. The last one moves to its index, which is cheap
// and keeps the order good enough.
func (s *shard) removeFromRing(o *object) {
	last := len(s.ring) - 1
	s.ring[o.ringIndex] = s.ring[last]
	s.ring[o.ringIndex].ringIndex = o.ringIndex
	s.ring[last] = nil
	s.ring = s.ring[:last]
}

// touch counts a use of an object.
func (s *shard) touch(o *object) {
	if o.useCount < maxUseCount {
		o.useCount++
	}
}

// sweep moves the hand over the next few objects and removes the first that may
// be evicted: one that is not open and was not used recently, or force is set.
// It reports when the hand has completed a round.
func (s *shard) sweep(force bool) (victim *object, round bool) {
	for range sweepBatch {
		if s.clockHand >= len(s.ring) {
			s.clockHand = 0
			return nil, true
		}
		o := s.ring[s.clockHand]
		switch {
		case o.refs.isOpen() || s.addressLocks[o.address] != nil:
			s.clockHand++
		case o.useCount > 0 && !force:
			o.useCount--
			s.clockHand++
		default:
			s.remove(o)
			return o, false
		}
	}
	return nil, false
}

// listAfter collects the objects whose addresses follow one, sorted.
func (s *shard) listAfter(a b3.Address) []Info {
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

// tryLockAddress locks an address for a change of its file: creating, moving or
// removing it takes the disk, and the mutex cannot be held that long. While it
// is locked, no other goroutine changes the file or makes an object of that
// address visible or invisible, except when the whole store is closed. If it is
// locked already, it returns a channel that is closed on unlock.
func (s *shard) tryLockAddress(a b3.Address) (busy <-chan struct{}) {
	if other := s.addressLocks[a]; other != nil {
		return other
	}
	if s.addressLocks == nil {
		s.addressLocks = map[b3.Address]chan struct{}{}
	}
	s.addressLocks[a] = make(chan struct{})
	return nil
}

// unlockAddress unlocks an address.
func (s *shard) unlockAddress(a b3.Address) {
	close(s.addressLocks[a])
	delete(s.addressLocks, a)
}
