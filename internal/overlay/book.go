package overlay

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/oap"
	"micronode/internal/overlay/session"
)

// Contact is a node and where it can be reached.
type Contact = session.Contact

// PeerSource is where nodes to talk to come from besides the configuration:
// the registry's descriptors, what the index found. Peers waits until the list
// is another than the one with the version since, as a flow.Snapshot does.
type PeerSource interface {
	Peers(ctx context.Context, since flow.Version) ([]Contact, flow.Version, error)
}

// book knows whom this node talks to, and who said so.
type book struct {
	told func([]Contact) // set at construction; called without the lock

	turn   sync.Mutex               // one change at a time tells; held while told is called
	mu     sync.Mutex               //lockblock:leaf maps only; told is called after unlock
	from   map[string][]Contact     // by origin: config, added, and one for each source; guarded by mu
	all    map[oap.PeerID]bool      // everybody who was named; guarded by mu
	guests map[oap.PeerID]time.Time // who came with a token, and when it was last seen; guarded by mu
}

// Where contacts come from, besides sources.
const (
	fromConfig = "config"
	fromPeople = "added"
)

func newBook(told func([]Contact)) *book {
	return &book{told: told, from: map[string][]Contact{}, all: map[oap.PeerID]bool{}, guests: map[oap.PeerID]time.Time{}}
}

// knows reports whether somebody named the peer.
func (b *book) knows(id oap.PeerID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all[id]
}

// welcome lets a peer in that nobody named.
func (b *book) welcome(id oap.PeerID, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.guests[id] = now
}

// strangers are the sessions of those who may not be here: they were named when
// they shook hands, and not any more when they were done. A guest that was not
// seen for so long is forgotten: it has left, or its handshake came to nothing.
func (b *book) strangers(sessions []*session.Session, now time.Time, patience time.Duration) (found []*session.Session) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range sessions {
		id := s.Peer()
		if _, guest := b.guests[id]; guest {
			b.guests[id] = now
		} else if !b.all[id] {
			found = append(found, s)
		}
	}
	maps.DeleteFunc(b.guests, func(_ oap.PeerID, seen time.Time) bool { return now.Sub(seen) > patience })
	return found
}

// set replaces what one origin said.
func (b *book) set(origin string, contacts []Contact) {
	b.change(func() { b.from[origin] = contacts })
}

// change changes the lists and tells of the outcome.
func (b *book) change(edit func()) {
	b.turn.Lock()
	defer b.turn.Unlock()
	b.mu.Lock()
	edit()
	whole := b.merge()
	b.mu.Unlock()
	b.told(whole)
}

// merge makes one list of all: a node that several named has all its
// addresses. Guarded by mu.
func (b *book) merge() []Contact {
	merged := map[oap.PeerID]Contact{}
	for _, list := range b.from {
		for _, one := range list {
			have := merged[one.ID]
			have.ID = one.ID
			for _, addr := range one.Addrs {
				if !slices.Contains(have.Addrs, addr) {
					have.Addrs = append(have.Addrs[:len(have.Addrs):len(have.Addrs)], addr)
				}
			}
			merged[one.ID] = have
		}
	}
	clear(b.all)
	var all []Contact
	for id, one := range merged {
		b.all[id] = true
		slices.Sort(one.Addrs)
		all = append(all, one)
	}
	slices.SortFunc(all, func(x, y Contact) int { return x.ID.Compare(y.ID) })
	return all
}

// add takes a contact that a person named, and reports whether it is new.
func (b *book) add(one Contact) (created bool) {
	b.change(func() {
		list := b.from[fromPeople]
		created = !b.all[one.ID]
		i := slices.IndexFunc(list, func(c Contact) bool { return c.ID == one.ID })
		if i < 0 {
			b.from[fromPeople] = append(slices.Clone(list), one)
			return
		}
		list = slices.Clone(list)
		list[i] = Contact{ID: one.ID, Addrs: append(slices.Clone(list[i].Addrs), one.Addrs...)}
		b.from[fromPeople] = list
	})
	return created
}

// remove forgets a contact that a person named. One that comes from elsewhere
// would be back at once, so that is refused with where to take it out.
func (b *book) remove(id oap.PeerID) error {
	const op = "overlay.peers"
	var problem error
	b.change(func() {
		list := b.from[fromPeople]
		i := slices.IndexFunc(list, func(c Contact) bool { return c.ID == id })
		switch {
		case i >= 0:
			b.from[fromPeople] = slices.Delete(slices.Clone(list), i, i+1)
		case b.all[id]:
			problem = &fault.Error{Op: op, Kind: fault.Conflict, Detail: id.String() + " was not added by hand",
				Next: "Take it out of overlay.peers in the configuration and reload, or out of the registry."}
		default:
			problem = &fault.Error{Op: op, Kind: fault.NotFound, Detail: id.String() + " is not a peer of this node",
				Next: "See `micronode peers` for those that are."}
		}
	})
	return problem
}

// count is how many nodes are named.
func (b *book) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.all)
}
