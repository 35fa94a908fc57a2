package kad

import (
	"context"
	"time"

	"github.com/ipfs/go-cid"
	dht "github.com/libp2p/go-libp2p-kad-dht"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/routing"

	"micronode/fault"
	"micronode/internal/index/record"
)

const opWalk = "index.dht.walk"

const (
	// linger is how long a walk goes on once it has found something. A key's
	// records lie with many peers, which answer at about the same time; to wait
	// for the last of them would cost more than it brings.
	linger = 25 * time.Millisecond

	// sameNames is how many peers have to show a record of a name before the
	// newest of them is taken without further search.
	sameNames = 3
)

// Walk asks the network for providers or for the newest record of a name. An
// empty answer without an error means that those who should know were asked and
// have nothing. The error is NoRoute if nobody could be asked, and Timeout or
// Canceled if the context ended before anything was found.
func (n *Network) Walk(ctx context.Context, q record.Question) (record.Answer, error) {
	if n.Size() == 0 {
		err := noPeers(opWalk)
		n.counts.add(&walk{}, err)
		return record.Answer{}, err
	}
	walking, cancel := context.WithCancel(ctx)
	defer cancel()
	walking, events := routing.RegisterForQueryEvents(walking)
	w := &walk{events: events, trail: newTrail()}
	var err error
	if q.Kind == record.ByName {
		err = n.walkName(walking, w, keyOf(q))
	} else {
		n.walkProviders(walking, w, q)
	}
	if err == nil {
		err = w.verdict(ctx)
	}
	n.counts.add(w, err)
	return w.answer, err
}

// walk is one walk. It belongs to the goroutine that walks.
type walk struct {
	events <-chan *routing.QueryEvent
	trail  trail
	answer record.Answer
	timer  <-chan time.Time // runs once something was found
}

// found reports whether there is something to return.
func (w *walk) found() bool { return w.answer.Name != nil || len(w.answer.Providers) > 0 }

// verdict tells what it means that the walk has ended with what it has.
func (w *walk) verdict(ctx context.Context) error {
	switch {
	case w.found():
		return nil
	case ctx.Err() != nil:
		return ended(ctx, opWalk, "the walk through the DHT was not over in time")
	case w.trail.answered == 0:
		return fault.New(opWalk, fault.NoRoute, "none of the peers that the DHT knows could be reached")
	default:
		return nil
	}
}

// follow collects what the library finds, and its reports, until there is
// enough, nothing more comes, or the context is over. It is for both kinds of
// questions; take looks at what was found.
func follow[T any](w *walk, found <-chan T, take func(T)) {
	defer w.rest()
	for {
		select {
		case one, more := <-found:
			if !more {
				return
			}
			take(one)
		case event, more := <-w.events:
			if !more {
				return // the context is over
			}
			w.trail.note(event)
		case <-w.timer:
			return
		}
		if w.timer == nil && w.found() && w.trail.answered > 0 { // before anybody has answered, all there is is our own
			w.timer = time.After(linger)
		}
	}
}

// rest takes the reports that have come by now.
func (w *walk) rest() {
	for {
		select {
		case event, more := <-w.events:
			if !more {
				return
			}
			w.trail.note(event)
		default:
			return
		}
	}
}

func (n *Network) walkProviders(ctx context.Context, w *walk, q record.Question) {
	found := n.dht.FindProvidersAsync(ctx, cid.NewCidV1(cid.Raw, multihashOf(q.Address)), mostProviders)
	follow(w, found, func(info peer.AddrInfo) {
		w.answer.Providers = append(w.answer.Providers, n.providers([]*peer.AddrInfo{&info})...)
	})
}

func (n *Network) walkName(ctx context.Context, w *walk, key string) error {
	found, err := n.dht.SearchValue(ctx, key, dht.Quorum(sameNames))
	if err != nil {
		return lost(ctx, opWalk, err)
	}
	follow(w, found, func(raw []byte) {
		if name, err := n.names.read(key, raw); err == nil {
			w.answer.Name = record.Newer(w.answer.Name, name)
		}
	})
	return nil
}

// trail is what is known of the way that a walk took.
type trail struct {
	depth    map[peer.ID]int // how many hops away a peer is
	asked    int
	answered int
	hops     int // of the farthest peer that answered
}

func newTrail() trail { return trail{depth: map[peer.ID]int{}} }

// note follows a report. Peers of our own routing table are one hop away; those
// that a peer names are one farther than it is.
func (t *trail) note(event *routing.QueryEvent) {
	switch event.Type {
	case routing.SendingQuery:
		t.asked++
		if t.depth[event.ID] == 0 {
			t.depth[event.ID] = 1
		}
	case routing.PeerResponse:
		t.answered++
		t.hops = max(t.hops, t.depth[event.ID])
		for _, heard := range event.Responses {
			if t.depth[heard.ID] == 0 {
				t.depth[heard.ID] = t.depth[event.ID] + 1
			}
		}
	}
}
