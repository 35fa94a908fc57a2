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

// Contact is a node and its addresses.
type Contact = session.Contact

// PeerSource is where contacts come from besides the configuration: the
// registry's descriptors, what the index found. Peers waits until the list
// differs from the one with the version since, as a flow.Snapshot does.
type PeerSource interface {
	Peers(ctx context.Context, since flow.Version) ([]Contact, flow.Version, error)
}

// contactBook knows the contacts of this node, and their sources.
type contactBook struct {
	onChange func([]Contact) // set at construction; called without the lock

	notifyMu sync.Mutex            // serialises changes; held while onChange is called
	mu       sync.Mutex            //lockblock:leaf maps only; onChange is called after unlock
	bySource map[string][]Contact  // by source: config, added, and one for each PeerSource; guarded by mu
	named    map[oap.PeerID]bool   // all peers that a source names; guarded by mu
	guests   map[oap.PeerID]*guest // peers admitted by a token; guarded by mu
	tokens   map[oap.PeerID]string // what is shown to peers that this node joined; guarded by mu
	invited  map[oap.PeerID]bool   // of the added peers, those that came by an invitation; guarded by mu
}

// guest is an unnamed peer that showed a token.
type guest struct {
	token     string
	lastSeen  time.Time // when it last had a session, or was admitted
	checkedAt time.Time // when its token was last found valid
}

// The sources of contacts, besides each PeerSource.
const (
	fromConfig        = "config"
	fromOperator      = "added"
	fromIntroductions = "introductions" // friends of friends
	fromShares        = "shares"        // nodes that share something with this one, until they refuse it
)

func newContactBook(onChange func([]Contact)) *contactBook {
	return &contactBook{onChange: onChange, bySource: map[string][]Contact{}, named: map[oap.PeerID]bool{}, guests: map[oap.PeerID]*guest{},
		tokens: map[oap.PeerID]string{}, invited: map[oap.PeerID]bool{}}
}

// token is what is shown to a peer that this node joined, or empty.
func (b *contactBook) token(id oap.PeerID) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.tokens[id]
}

// addJoined adds a node that this one joins, with the token to show there: for
// good, or for a share. It returns what undoes that.
func (b *contactBook) addJoined(source string, one Contact, token string) (undo func()) {
	b.mu.Lock()
	before, had := b.tokens[one.ID]
	b.tokens[one.ID] = token
	b.mu.Unlock()
	list := b.list(source)
	b.addTo(source, one)
	return func() {
		b.update(func() {
			b.bySource[source] = list
			if delete(b.tokens, one.ID); had {
				b.tokens[one.ID] = before
			}
		})
	}
}

// list is the contacts of a source. It is never changed.
func (b *contactBook) list(source string) []Contact {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.bySource[source]
}

// removeShare removes a node that does not share with this one any more.
func (b *contactBook) removeShare(id oap.PeerID) {
	b.update(func() {
		list := b.bySource[fromShares]
		if i := slices.IndexFunc(list, func(c Contact) bool { return c.ID == id }); i >= 0 {
			b.bySource[fromShares] = slices.Delete(slices.Clone(list), i, i+1)
		}
		if !slices.ContainsFunc(b.bySource[fromOperator], func(c Contact) bool { return c.ID == id }) {
			delete(b.tokens, id)
		}
	})
}

// addInvited adds a peer that has used an invitation. It dials this node, so that
// no address of it is needed.
func (b *contactBook) addInvited(id oap.PeerID) {
	b.mu.Lock()
	b.invited[id] = true
	b.mu.Unlock()
	b.add(Contact{ID: id})
}

// hasInvited reports whether peers came by invitations and were not removed since.
func (b *contactBook) hasInvited() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.invited) > 0
}

// contains reports whether a source names the peer.
func (b *contactBook) contains(id oap.PeerID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.named[id]
}

// addGuest admits an unnamed peer, as long as its token is valid.
func (b *contactBook) addGuest(id oap.PeerID, token string, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.guests[id] = &guest{token: token, lastSeen: now, checkedAt: now}
}

// guestSession is a session that lasts as long as a token.
type guestSession struct {
	*session.Session
	token string
}

// guestsToRecheck returns the sessions whose tokens were not checked for every.
// A peer that was named meanwhile needs none.
func (b *contactBook) guestsToRecheck(sessions []*session.Session, now time.Time, every time.Duration) (due []guestSession) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.guests) == 0 {
		return nil
	}
	for _, s := range sessions {
		id := s.Peer()
		if g := b.guests[id]; g != nil && !b.named[id] && now.Sub(g.checkedAt) >= every {
			g.checkedAt = now
			due = append(due, guestSession{s, g.token})
		}
	}
	return due
}

// removeGuest forgets a guest whose token is not valid any more, unless it has
// another one by now.
func (b *contactBook) removeGuest(id oap.PeerID, token string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if g := b.guests[id]; g != nil && g.token == token {
		delete(b.guests, id)
	}
}

// unauthorized returns the sessions of peers that are neither named nor guests:
// they were removed during their handshake. A guest that was not seen for
// patience is forgotten: it has left, or its handshake failed.
func (b *contactBook) unauthorized(sessions []*session.Session, now time.Time, patience time.Duration) (found []*session.Session) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range sessions {
		id := s.Peer()
		if g := b.guests[id]; g != nil {
			g.lastSeen = now
		} else if !b.named[id] {
			found = append(found, s)
		}
	}
	maps.DeleteFunc(b.guests, func(_ oap.PeerID, g *guest) bool { return now.Sub(g.lastSeen) > patience })
	return found
}

// set replaces the contacts of one source.
func (b *contactBook) set(source string, contacts []Contact) {
	b.update(func() { b.bySource[source] = contacts })
}

// update changes the lists and calls onChange with the result.
func (b *contactBook) update(edit func()) {
	b.notifyMu.Lock()
	defer b.notifyMu.Unlock()
	b.mu.Lock()
	edit()
	whole := b.merge()
	b.mu.Unlock()
	b.onChange(whole)
}

// merge makes one list of all: a node with several sources has all its
// addresses. Guarded by mu.
func (b *contactBook) merge() []Contact {
	merged := map[oap.PeerID]Contact{}
	for _, source := range slices.Sorted(maps.Keys(b.bySource)) {
		for _, one := range b.bySource[source] {
			have, twice := merged[one.ID]
			have.ID, have.Introduced = one.ID, one.Introduced && (have.Introduced || !twice)
			for _, addr := range one.Addrs {
				if !slices.Contains(have.Addrs, addr) {
					have.Addrs = append(have.Addrs[:len(have.Addrs):len(have.Addrs)], addr)
				}
			}
			merged[one.ID] = have
		}
	}
	clear(b.named)
	var all []Contact
	for id, one := range merged {
		b.named[id] = true
		all = append(all, one)
	}
	slices.SortFunc(all, func(x, y Contact) int { return x.ID.Compare(y.ID) })
	return all
}

// add adds a contact for the operator, and reports whether it is new.
func (b *contactBook) add(one Contact) (created bool) { return b.addTo(fromOperator, one) }

// byOperator reports whether the operator has named a peer.
func (b *contactBook) byOperator(id oap.PeerID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	is := func(c Contact) bool { return c.ID == id }
	return slices.ContainsFunc(b.bySource[fromConfig], is) || slices.ContainsFunc(b.bySource[fromOperator], is)
}

// onlyIntroduced reports whether a peer is known by introductions alone.
func (b *contactBook) onlyIntroduced(id oap.PeerID) bool {
	is := func(c Contact) bool { return c.ID == id }
	b.mu.Lock()
	defer b.mu.Unlock()
	for source, list := range b.bySource {
		if source != fromIntroductions && slices.ContainsFunc(list, is) {
			return false
		}
	}
	return slices.ContainsFunc(b.bySource[fromIntroductions], is)
}

// listed reports whether another source than this node and its operator names
// peers: a registry.
func (b *contactBook) listed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for source, list := range b.bySource {
		if len(list) > 0 && !slices.Contains([]string{fromConfig, fromOperator, fromShares, fromIntroductions}, source) {
			return true
		}
	}
	return false
}

// joinedElsewhere reports whether this node has joined one on another machine by an
// invitation.
func (b *contactBook) joinedElsewhere() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.ContainsFunc(b.bySource[fromOperator], func(c Contact) bool {
		return b.tokens[c.ID] != "" && slices.ContainsFunc(c.Addrs, func(addr string) bool { return !loopback(addr) })
	})
}

// addTo adds a contact to a source, and reports whether no source names it yet.
func (b *contactBook) addTo(source string, one Contact) (created bool) {
	b.update(func() {
		list := b.bySource[source]
		created = !b.named[one.ID]
		i := slices.IndexFunc(list, func(c Contact) bool { return c.ID == one.ID })
		if i < 0 {
			b.bySource[source] = append(slices.Clone(list), one)
			return
		}
		list = slices.Clone(list)
		list[i] = Contact{ID: one.ID, Addrs: slices.Clone(list[i].Addrs)}
		for _, addr := range one.Addrs {
			if !slices.Contains(list[i].Addrs, addr) {
				list[i].Addrs = append(list[i].Addrs, addr)
			}
		}
		b.bySource[source] = list
	})
	return created
}

// remove removes a contact that the operator added. One from another source
// would be back at once, so that is refused, with the place to remove it from.
func (b *contactBook) remove(id oap.PeerID) error {
	const op = "overlay.peers"
	var problem error
	b.update(func() {
		removed := false
		for _, source := range []string{fromOperator, fromShares} {
			list := b.bySource[source]
			if i := slices.IndexFunc(list, func(c Contact) bool { return c.ID == id }); i >= 0 {
				b.bySource[source], removed = slices.Delete(slices.Clone(list), i, i+1), true
			}
		}
		switch {
		case removed:
			delete(b.tokens, id)
			delete(b.invited, id)
		case b.named[id]:
			problem = &fault.Error{Op: op, Kind: fault.Conflict, Detail: id.String() + " was not added with `micronode peers add`",
				Next: "Remove it from overlay.peers in the configuration and reload, or from the registry."}
		default:
			problem = &fault.Error{Op: op, Kind: fault.NotFound, Detail: id.String() + " is not a peer of this node",
				Next: "See `micronode peers` for those that are."}
		}
	})
	return problem
}

// count returns how many nodes are named.
func (b *contactBook) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.named)
}
