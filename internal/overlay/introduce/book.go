package introduce

import (
	"cmp"
	"net/netip"
	"slices"
	"sync"
	"time"

	"micronode/internal/netguard"
	"micronode/internal/oap"
)

// The bounds of the book, beside MaxNeighbours.
const (
	MaxIntroduced = 64   // to this node, by all introducers together
	maxMembers    = 4096 // whom this node introduces
	maxRefused    = 1024 // whom its operator does not want
)

// How long things last.
const (
	Life        = 24 * time.Hour     // what a node signs
	RenewAfter  = 6 * time.Hour      // then it signs anew
	grace       = time.Minute        // an introducer that was restarted has to hear of its members first
	forgetAfter = 7 * 24 * time.Hour // an introduced node that was not seen
)

// Outcome is what became of what a peer said of a node.
type Outcome string

// The outcomes.
const (
	Enrolled  Outcome = "enrolled"  // a peer lets this node introduce it
	Taken     Outcome = "taken"     // a node was introduced
	Renewed   Outcome = "renewed"   // it was before
	Withdrawn Outcome = "withdrawn" // its introducers do not introduce it any more
	Forgotten Outcome = "forgotten" // it was not seen for a week
	Forged    Outcome = "forged"    // no introduction, or not signed by who it names
	Expired   Outcome = "expired"   // ended, or signed for longer than it may be
	Foreign   Outcome = "foreign"   // meant for another introducer
	Refused   Outcome = "refused"   // the operator has removed it
	Full      Outcome = "full"      // there is no room for it
	Unasked   Outcome = "unasked"   // from a peer that the operator has not named, or in a private network
	Flooded   Outcome = "flooded"   // more messages than are read of a peer
)

// Outcomes lists all of them.
func Outcomes() []Outcome {
	return []Outcome{Enrolled, Taken, Renewed, Withdrawn, Forgotten, Forged, Expired, Foreign, Refused, Full, Unasked, Flooded}
}

// Spec is what a book is made of.
type Spec struct {
	Self  oap.PeerID
	Skew  time.Duration // by how much clocks may differ
	Count func(Outcome)
}

// Book is whom this node may introduce, and who was introduced to it.
type Book struct {
	spec Spec

	mu         sync.Mutex                 //lockblock:leaf maps only
	members    map[oap.PeerID]*member     // guarded by mu
	introduced map[oap.PeerID]*introduced // guarded by mu
	refused    []oap.PeerID               // the oldest first; guarded by mu
}

// member is a peer that wants to be introduced.
type member struct {
	raw   []byte // what it has signed
	seq   uint64
	until time.Time
}

// introduced is a node that was introduced to this one.
type introduced struct {
	addrs []string
	seq   uint64
	seen  time.Time
	by    map[oap.PeerID]time.Time // its introducers, each with since when it does not introduce it any more; zero: it does
}

// Node is a node that was introduced, as it is shown and kept.
type Node struct {
	ID    oap.PeerID   `json:"id"`
	Addrs []string     `json:"addrs"`
	By    []oap.PeerID `json:"by"`
}

// New makes an empty book.
func New(spec Spec) *Book {
	return &Book{spec: spec, members: map[oap.PeerID]*member{}, introduced: map[oap.PeerID]*introduced{}}
}

// Hear enters what a peer, whom the operator has named, says of itself and of
// others, and reports whether who was introduced, or may be, has changed. Addresses
// that the policy refuses are dropped: a node without any may still dial this one.
func (b *Book) Hear(from oap.PeerID, nodes [][]byte, policy netguard.DialPolicy, now time.Time) (changed bool) {
	var outcomes []Outcome
	defer func() { b.count(outcomes) }() // without the lock
	b.mu.Lock()
	defer b.mu.Unlock()
	named := map[oap.PeerID]bool{}
	for _, raw := range nodes {
		i, id, err := oap.OpenIntroduction(raw)
		outcome, differs := Outcome(""), false
		switch {
		case err != nil:
			outcome = Forged
		case i.CheckTime(now, b.spec.Skew) != nil:
			outcome = Expired
		case id == b.spec.Self:
			continue
		case id == from && i.Via == b.spec.Self:
			outcome, differs = b.enrol(id, &i, raw)
		case id == from || i.Via != from:
			outcome = Foreign
		case len(named) >= MaxNeighbours:
			outcome = Full
		default:
			named[id] = true
			outcome, differs = b.meet(from, id, &i, dialable(i.Addrs, policy), now)
		}
		outcomes, changed = append(outcomes, outcome), changed || differs
	}
	for id, one := range b.introduced {
		if since, by := one.by[from]; by && !named[id] && since.IsZero() {
			one.by[from] = now
		}
	}
	return changed
}

func (b *Book) count(outcomes []Outcome) {
	for _, one := range outcomes {
		b.spec.Count(one)
	}
}

// enrol enters a peer that wants to be introduced. Guarded by mu.
func (b *Book) enrol(id oap.PeerID, i *oap.Introduction, raw []byte) (Outcome, bool) {
	have := b.members[id]
	switch {
	case have == nil && len(b.members) >= maxMembers:
		return Full, false
	case have != nil && i.Seq <= have.seq:
		return Renewed, false
	}
	b.members[id] = &member{raw: slices.Clone(raw), seq: i.Seq, until: time.UnixMilli(int64(i.Until))} // its time was checked
	return Enrolled, true
}

// meet enters a node that a peer introduces. Guarded by mu.
func (b *Book) meet(from, id oap.PeerID, i *oap.Introduction, addrs []string, now time.Time) (Outcome, bool) {
	if slices.Contains(b.refused, id) {
		return Refused, false
	}
	one := b.introduced[id]
	if one == nil {
		if len(b.introduced) >= MaxIntroduced {
			return Full, false
		}
		b.introduced[id] = &introduced{addrs: addrs, seq: i.Seq, seen: now, by: map[oap.PeerID]time.Time{from: {}}}
		return Taken, true
	}
	_, known := one.by[from]
	one.by[from] = time.Time{}
	differs := !known
	if i.Seq > one.seq {
		differs = differs || !slices.Equal(one.addrs, addrs)
		one.seq, one.addrs = i.Seq, addrs
	}
	return Renewed, differs
}

// dialable are the addresses that may be dialled. A name is not: to look it up, a
// host would be asked that the operator has not named.
func dialable(addrs []string, policy netguard.DialPolicy) (list []string) {
	for _, text := range addrs {
		at, err := netip.ParseAddrPort(text)
		if err == nil && at.Port() != 0 && at.Addr().Zone() == "" && policy.Check(at.Addr()) == nil && !slices.Contains(list, at.String()) {
			list = append(list, at.String())
		}
	}
	return list
}

// Tell says which introductions each member is to get, of all members that the
// operator has named.
func (b *Book) Tell(vouched func(oap.PeerID) bool, now time.Time) map[oap.PeerID][][]byte {
	b.mu.Lock()
	var ids []oap.PeerID
	raw := map[oap.PeerID][]byte{}
	for id, one := range b.members {
		if now.Before(one.until) {
			ids, raw[id] = append(ids, id), one.raw
		}
	}
	b.mu.Unlock()
	ids = slices.DeleteFunc(ids, func(id oap.PeerID) bool { return !vouched(id) })
	slices.SortFunc(ids, func(a, b oap.PeerID) int { return a.Compare(b) })
	plan := make(map[oap.PeerID][][]byte, len(ids))
	for id, told := range neighbours(ids) {
		for _, other := range told {
			plan[id] = append(plan[id], raw[other])
		}
	}
	return plan
}

// Expire forgets what has ended, and reports whether who was introduced has
// changed. What an introducer takes back counts only while it is connected.
func (b *Book) Expire(connected map[oap.PeerID]bool, now time.Time) (changed bool) {
	var outcomes []Outcome
	defer func() { b.count(outcomes) }() // without the lock
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, one := range b.members {
		if !now.Before(one.until) {
			delete(b.members, id)
		}
	}
	for id, one := range b.introduced {
		if connected[id] {
			one.seen = now
		}
		for by, since := range one.by {
			switch {
			case since.IsZero():
			case !connected[by]:
				one.by[by] = now // it has not had the time to hear of its members again
			case now.Sub(since) >= grace:
				delete(one.by, by)
				changed = true
			}
		}
		switch {
		case len(one.by) == 0:
			outcomes = append(outcomes, Withdrawn)
		case now.Sub(one.seen) > forgetAfter:
			outcomes = append(outcomes, Forgotten)
		default:
			continue
		}
		delete(b.introduced, id)
		changed = true
	}
	return changed
}

// Forget ends what depends on a peer that the operator has removed: it is not
// introduced any more, and whom it has introduced are not any more either. And
// nobody can introduce it again, until Allow.
func (b *Book) Forget(id oap.PeerID) (was bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	was = b.introduced[id] != nil
	delete(b.members, id)
	delete(b.introduced, id)
	for other, one := range b.introduced {
		if delete(one.by, id); len(one.by) == 0 {
			delete(b.introduced, other)
		}
	}
	if !slices.Contains(b.refused, id) {
		b.refused = append(b.refused, id)
		b.refused = b.refused[max(0, len(b.refused)-maxRefused):]
	}
	return was
}

// Allow says that the operator wants a node that was removed, and reports whether
// it was.
func (b *Book) Allow(id oap.PeerID) (was bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.Index(b.refused, id)
	if i >= 0 {
		b.refused = slices.Delete(b.refused, i, i+1)
	}
	return i >= 0
}

// Introduced lists the nodes that were introduced to this one, by ID.
func (b *Book) Introduced() []Node {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := make([]Node, 0, len(b.introduced))
	for id, one := range b.introduced {
		node := Node{ID: id, Addrs: slices.Clone(one.addrs)}
		for by := range one.by {
			node.By = append(node.By, by)
		}
		slices.SortFunc(node.By, func(a, b oap.PeerID) int { return a.Compare(b) })
		list = append(list, node)
	}
	slices.SortFunc(list, func(a, b Node) int { return cmp.Compare(a.ID.Compare(b.ID), 0) })
	return list
}

// Refused lists whom the operator has removed, the oldest first.
func (b *Book) Refused() []oap.PeerID {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.refused)
}

// Restore enters what was kept.
func (b *Book) Restore(nodes []Node, refused []oap.PeerID, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, one := range nodes[:min(len(nodes), MaxIntroduced)] {
		by := map[oap.PeerID]time.Time{}
		for _, id := range one.By {
			by[id] = time.Time{}
		}
		if len(by) > 0 {
			b.introduced[one.ID] = &introduced{addrs: one.Addrs, seen: now, by: by}
		}
	}
	b.refused = append(b.refused, refused[max(0, len(refused)-maxRefused):]...)
}
