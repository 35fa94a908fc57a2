package overlay

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"micronode/b3"
	"micronode/internal/flow"
	"micronode/internal/netguard"
	"micronode/internal/oap"
	"micronode/internal/overlay/introduce"
	"micronode/internal/overlay/session"
)

// How often introductions are looked at, and sent to one peer; and how many messages
// are read of a peer, which is more than one that keeps to this sends.
const (
	introduceEvery = time.Second
	introducePause = time.Second
	expireEvery    = 10 * time.Second
	introducesRead = rate.Limit(2) // a second
	introduceBurst = 16
)

// introductions makes friends of friends acquainted: what this node and its peers
// say of themselves, and what it hears of others. See ADR 113.
type introductions struct {
	book  *introduce.Book
	dirty atomic.Bool // something is to be sent, or may be

	mu     sync.Mutex               //lockblock:leaf a map only
	limits map[uint64]*rate.Limiter // by session; guarded by mu

	// owned by the task
	sent    map[uint64]sentIntroductions // by session
	own     map[oap.PeerID]ownIntroduction
	expired time.Time
}

// sentIntroductions is what a session was last sent, and when.
type sentIntroductions struct {
	digest b3.Address
	at     time.Time
}

// ownIntroduction is what this node has signed for a peer.
type ownIntroduction struct {
	raw   []byte
	addrs []string
	at    time.Time
}

func newIntroductions(spec introduce.Spec) *introductions {
	return &introductions{book: introduce.New(spec), limits: map[uint64]*rate.Limiter{},
		sent: map[uint64]sentIntroductions{}, own: map[oap.PeerID]ownIntroduction{}}
}

// introduces reports whether nodes are introduced here. They are not in a private
// network: where the operator says so, or where a registry lists who belongs to it.
func (o *Overlay) introduces() bool { return o.config.Exchange && !o.contacts.listed() }

// vouched reports whether the operator has named a peer, so that it may introduce
// and be introduced.
func (o *Overlay) vouched(id oap.PeerID) bool {
	return o.config.Open && !o.contacts.onlyIntroduced(id) || o.contacts.byOperator(id)
}

// runIntroductions sends and forgets introductions until ctx ends.
func (o *Overlay) runIntroductions(ctx context.Context) error {
	for flow.Sleep(ctx, introduceEvery) == nil {
		now := time.Now()
		if now.Sub(o.introductions.expired) >= expireEvery {
			o.introductions.expired = now
			o.expireIntroductions(now)
			o.introductions.dirty.Store(true) // also of what this node itself has signed
		}
		if o.introductions.dirty.Swap(false) && o.introduces() && !o.sendIntroductions(now) {
			o.introductions.dirty.Store(true)
		}
	}
	return nil
}

// expireIntroductions forgets what has ended.
func (o *Overlay) expireIntroductions(now time.Time) {
	connected := map[oap.PeerID]bool{}
	for _, s := range o.sessions.Active() {
		connected[s.Peer()] = true
	}
	if o.introductions.book.Expire(connected, now) {
		o.updateIntroduced()
		o.keeper.changed()
	}
	o.enterIntroduced() // a registry may have come or gone
}

// sendIntroductions tells each peer of itself and of others, if that differs from
// what it was told before. It reports whether all were told that are to be.
func (o *Overlay) sendIntroductions(now time.Time) (all bool) {
	plan := o.introductions.book.Tell(o.vouched, now)
	addrs := o.introducedAddrs()
	active := o.sessions.Active()
	live, peers := map[uint64]bool{}, map[oap.PeerID]bool{}
	all = true
	for _, s := range active {
		live[s.Serial()], peers[s.Peer()] = true, true
		if !o.vouched(s.Peer()) {
			continue
		}
		own, err := o.introduceSelf(s.Peer(), addrs, now)
		if err != nil {
			continue // never: what is signed is made here
		}
		nodes := append([][]byte{own}, plan[s.Peer()]...)
		digest := b3.Of(slices.Concat(nodes...))
		last := o.introductions.sent[s.Serial()]
		switch {
		case last.digest == digest:
		case now.Sub(last.at) < introducePause:
			all = false
		case s.SendControl(session.Outgoing{Message: &oap.Introduce{Nodes: nodes}, Flags: oap.Event}) != nil:
			all = false // its queue is full, or it drains
		default:
			o.introductions.sent[s.Serial()] = sentIntroductions{digest, now}
		}
	}
	for serial := range o.introductions.sent {
		if !live[serial] {
			delete(o.introductions.sent, serial)
		}
	}
	for id := range o.introductions.own {
		if !peers[id] {
			delete(o.introductions.own, id)
		}
	}
	return all
}

// introduceSelf is what this node signs for a peer, so that it may introduce it.
func (o *Overlay) introduceSelf(via oap.PeerID, addrs []string, now time.Time) ([]byte, error) {
	have := o.introductions.own[via]
	if have.raw != nil && slices.Equal(have.addrs, addrs) && now.Sub(have.at) < introduce.RenewAfter {
		return have.raw, nil
	}
	i := oap.Introduction{Key: [32]byte(o.spec.Key[32:]), Via: via, Seq: uint64(now.UnixMilli()), Until: uint64(now.Add(introduce.Life).UnixMilli()), Addrs: addrs}
	raw, err := i.Seal(o.spec.Key)
	if err == nil {
		o.introductions.own[via] = ownIntroduction{raw, addrs, now}
	}
	return raw, err
}

// introducedAddrs are where other nodes reach this one, without names: nobody looks
// one up that a stranger gave.
func (o *Overlay) introducedAddrs() (list []string) {
	for _, one := range o.addrs(false) {
		if at, err := netip.ParseAddrPort(one); err == nil && len(list) < oap.MaxAddrs {
			list = append(list, at.String())
		}
	}
	return list
}

// handleIntroduce reads what a peer says of itself and of others.
func (o *Overlay) handleIntroduce(s *session.Session, m *oap.Introduce) {
	now := time.Now()
	switch {
	case !o.introduces() || !o.vouched(s.Peer()):
		o.countIntroduction(introduce.Unasked)
		return
	case !o.introductions.allows(s.Serial(), now):
		o.countIntroduction(introduce.Flooded)
		return
	}
	if o.introductions.book.Hear(s.Peer(), m.Nodes, policyOf(s.Addr()), now) {
		o.updateIntroduced()
		o.keeper.changed()
		o.introductions.dirty.Store(true)
	}
}

func (o *Overlay) countIntroduction(outcome introduce.Outcome) {
	o.metrics.introductions.WithLabelValues(string(outcome)).Inc()
}

// allows reports whether another message of a session is read.
func (i *introductions) allows(serial uint64, now time.Time) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	limit := i.limits[serial]
	if limit == nil {
		limit = rate.NewLimiter(introducesRead, introduceBurst)
		i.limits[serial] = limit
	}
	return limit.AllowN(now, 1)
}

// closed forgets a session.
func (i *introductions) closed(serial uint64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.limits, serial)
}

// policyOf says which addresses are dialled on the word of a peer: those that are
// as far away as it is itself. A peer on the open network cannot send this node
// behind its own firewall.
func policyOf(addr string) netguard.DialPolicy {
	at, err := netip.ParseAddrPort(addr)
	switch ip := at.Addr().Unmap(); {
	case err != nil:
		return netguard.DialPolicy{}
	case ip.IsLoopback():
		return netguard.DialPolicy{Loopback: true, Private: true}
	default:
		return netguard.DialPolicy{Private: netguard.PolicyFor([]string{ip.String()}).Private}
	}
}

// updateIntroduced makes contacts of the nodes that were introduced.
func (o *Overlay) updateIntroduced() {
	var contacts []Contact
	if o.introduces() {
		for _, one := range o.introductions.book.Introduced() {
			contacts = append(contacts, Contact{ID: one.ID, Addrs: one.Addrs, Introduced: true})
			o.knocks.forget(one.ID) // it may have heard of this node first
		}
	}
	o.contacts.set(fromIntroductions, contacts)
}

// enterIntroduced does the same when that was not so before.
func (o *Overlay) enterIntroduced() {
	if has := len(o.contacts.list(fromIntroductions)) > 0; has != (o.introduces() && len(o.introductions.book.Introduced()) > 0) {
		o.updateIntroduced()
	}
}

// forgetIntroduced forgets a peer that the operator has removed, and reports whether
// it was introduced.
func (o *Overlay) forgetIntroduced(id oap.PeerID) (was bool) {
	was = o.introductions.book.Forget(id)
	o.updateIntroduced()
	o.keeper.changed()
	o.introductions.dirty.Store(true)
	return was
}

// allowIntroduced lets a node be introduced again that was removed.
func (o *Overlay) allowIntroduced(id oap.PeerID) {
	if o.introductions.book.Allow(id) {
		o.keeper.changed()
	}
	o.introductions.dirty.Store(true) // it may be introduced from now on
}

// introducers says who introduced a node, in words.
func (o *Overlay) introducers() map[oap.PeerID]string {
	by := map[oap.PeerID]string{}
	for _, one := range o.introductions.book.Introduced() {
		var ids []string
		for _, id := range one.By {
			ids = append(ids, id.String())
		}
		by[one.ID] = strings.Join(ids, ", ")
	}
	return by
}
