package overlay

import (
	"net"
	"slices"
	"sync"
	"time"

	"micronode/client"
	"micronode/fault"
	"micronode/internal/oap"
	"micronode/internal/overlay/session"
)

// The bounds of the list of knocks: how many are kept, how many from one host,
// for how long, and how often one is reported. A stranger can draw as many IDs
// as it wants, but has few addresses.
const (
	maxKnocks        = 64
	maxKnocksPerHost = 4
	knockLife        = time.Hour
	reportsPerMinute = 20              // of all knocks together
	reportAgain      = 5 * time.Minute // of the same one
)

// knockList remembers the strangers that dialled this node and were refused, so
// that the operator can accept one.
type knockList struct {
	mu      sync.Mutex
	list    []knock   // in no order; guarded by mu
	minute  time.Time // when the minute began in which reports are counted; guarded by mu
	reports int       // in that minute; guarded by mu
}

// knock is a stranger that was refused.
type knock struct {
	id          oap.PeerID
	addr        string // the last one
	first, last time.Time
	reported    map[bool]time.Time // when it was last reported, with a token and without
	count       int
}

func newKnockList() *knockList { return &knockList{} }

// add records a knock, and reports whether it is worth a line in the log.
func (l *knockList) add(peer session.Candidate, now time.Time) (report bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expire(now)
	i := slices.IndexFunc(l.list, func(k knock) bool { return k.id == peer.ID })
	if i < 0 {
		l.makeRoom(hostOf(peer.Addr))
		i, l.list = len(l.list), append(l.list, knock{id: peer.ID, first: now, reported: map[bool]time.Time{}})
	}
	k := &l.list[i]
	k.addr, k.last = peer.Addr, now
	k.count++
	if now.Sub(l.minute) >= time.Minute {
		l.minute, l.reports = now, 0
	}
	withToken := peer.Token != ""
	if now.Sub(k.reported[withToken]) < reportAgain || l.reports >= reportsPerMinute {
		return false
	}
	k.reported[withToken] = now
	l.reports++
	return true
}

// makeRoom removes the oldest knock of a host that has its share, or else the
// oldest of all if the list is full. Guarded by mu.
func (l *knockList) makeRoom(host string) {
	oldest := func(of func(knock) bool) (at, count int) {
		at = -1
		for i, k := range l.list {
			if !of(k) {
				continue
			}
			if count++; at < 0 || k.last.Before(l.list[at].last) {
				at = i
			}
		}
		return at, count
	}
	at, count := oldest(func(k knock) bool { return hostOf(k.addr) == host })
	if count < maxKnocksPerHost {
		if at, count = oldest(func(knock) bool { return true }); count < maxKnocks {
			return
		}
	}
	l.list = slices.Delete(l.list, at, at+1)
}

func (l *knockList) expire(now time.Time) {
	l.list = slices.DeleteFunc(l.list, func(k knock) bool { return now.Sub(k.last) > knockLife })
}

// forget removes a knock, and reports whether there was one.
func (l *knockList) forget(id oap.PeerID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := len(l.list)
	l.list = slices.DeleteFunc(l.list, func(k knock) bool { return k.id == id })
	return len(l.list) < before
}

// contains reports whether a stranger has knocked.
func (l *knockList) contains(id oap.PeerID, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expire(now)
	return slices.ContainsFunc(l.list, func(k knock) bool { return k.id == id })
}

// all lists the knocks, the newest first.
func (l *knockList) all(now time.Time) []client.Knock {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expire(now)
	list := make([]client.Knock, 0, len(l.list))
	for _, k := range l.list {
		list = append(list, client.Knock{ID: k.id.String(), Addr: k.addr, First: k.first.UTC(), Last: k.last.UTC(), Count: k.count,
			Accept: "micronode peers accept " + k.id.String()})
	}
	slices.SortFunc(list, func(a, b client.Knock) int { return b.Last.Compare(a.Last) })
	return list
}

func hostOf(addr string) string {
	if host, _, err := net.SplitHostPort(addr); err == nil {
		return host
	}
	return addr
}

// Knocks lists the strangers that were refused lately, the newest first.
func (o *Overlay) Knocks() []client.Knock { return o.knocks.all(time.Now()) }

// Accept makes a stranger that has knocked, or is nearby, a peer of this node. The
// first dials again by itself, so that no address of it is needed; the second is
// dialled.
func (o *Overlay) Accept(id oap.PeerID) (created bool, err error) {
	if id == o.ID() {
		return false, &fault.Error{Op: "overlay.accept", Kind: fault.Malformed, Detail: "that is this node itself", Next: "Give the ID of another node: `micronode peers` lists those that knocked."}
	}
	if created, err = o.AddPeer(Contact{ID: id, Addrs: o.addrsNearby(id)}); err == nil {
		o.knocks.forget(id)
	}
	return created, err
}
