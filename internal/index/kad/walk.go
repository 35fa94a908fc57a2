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
	// linger is how long a walk continues once it has found something. A key's
	// records are stored by many peers, which answer at about the same time;
	// waiting for the last of them would cost more than it brings.
	linger = 25 * time.Millisecond

	// nameQuorum is how many peers must return a record of a name before the
	// newest of them is accepted without further search.
	nameQuorum = 3
)

// Walk queries the network for providers or for the newest record of a name. An
// empty answer without an error means that the responsible peers were asked and
// have nothing. The error is NoRoute if no peer could be asked, and Timeout or
// Canceled if the context ended before anything was found.
func (n *Network) Walk(ctx context.Context, q record.Question) (record.Answer, error) {
	if n.Size() == 0 {
		err := noPeersError(opWalk)
		n.counts.add(&walkState{}, err)
		return record.Answer{}, err
	}
	walking, cancel := context.WithCancel(ctx)
	defer cancel()
	walking, events := routing.RegisterForQueryEvents(walking)
	w := &walkState{events: events, trace: newWalkTrace()}
	var err error
	if q.Kind == record.ByName {
		err = n.walkName(walking, w, keyOf(q))
	} else {
		n.walkProviders(walking, w, q)
	}
	if err == nil {
		err = w.finalError(ctx)
	}
	n.counts.add(w, err)
	return w.answer, err
}

// walkState is one walk. It belongs to the goroutine that walks.
type walkState struct {
	events <-chan *routing.QueryEvent
	trace  walkTrace
	answer record.Answer
	timer  <-chan time.Time // set once something was found
}

// found reports whether there is something to return.
func (w *walkState) found() bool { return w.answer.Name != nil || len(w.answer.Providers) > 0 }

// finalError is the error of a walk that has ended, or nil.
func (w *walkState) finalError(ctx context.Context) error {
	switch {
	case w.found():
		return nil
	case ctx.Err() != nil:
		return contextError(ctx, opWalk, "the walk through the DHT was not over in time")
	case w.trace.answered == 0:
		return fault.New(opWalk, fault.NoRoute, "none of the peers that the DHT knows could be reached")
	default:
		return nil
	}
}

// collect collects the library's results and query events until there is
// enough, nothing more comes, or the context ends. It is for both kinds of
// questions; take handles a result.
func collect[T any](w *walkState, found <-chan T, take func(T)) {
	defer w.drainEvents()
	for {
		select {
		case one, more := <-found:
			if !more {
				return
			}
			take(one)
		case event, more := <-w.events:
			if !more {
				return // the context has ended
			}
			w.trace.onEvent(event)
		case <-w.timer:
			return
		}
		if w.timer == nil && w.found() && w.trace.answered > 0 { // before the first reply, all results are our own
			w.timer = time.After(linger)
		}
	}
}

// drainEvents handles the events that have arrived by now.
func (w *walkState) drainEvents() {
	for {
		select {
		case event, more := <-w.events:
			if !more {
				return
			}
			w.trace.onEvent(event)
		default:
			return
		}
	}
}

func (n *Network) walkProviders(ctx context.Context, w *walkState, q record.Question) {
	found := n.dht.FindProvidersAsync(ctx, cid.NewCidV1(cid.Raw, multihashOf(q.Address)), maxProviders)
	collect(w, found, func(info peer.AddrInfo) {
		w.answer.Providers = append(w.answer.Providers, n.parseProviders([]*peer.AddrInfo{&info})...)
	})
}

func (n *Network) walkName(ctx context.Context, w *walkState, key string) error {
	found, err := n.dht.SearchValue(ctx, key, dht.Quorum(nameQuorum))
	if err != nil {
		return walkError(ctx, opWalk, err)
	}
	collect(w, found, func(raw []byte) {
		if name, err := n.validator.validate(key, raw); err == nil {
			w.answer.Name = record.Newer(w.answer.Name, name)
		}
	})
	return nil
}

// walkTrace records the path of a walk.
type walkTrace struct {
	depth    map[peer.ID]int // distance of a peer in hops
	asked    int
	answered int
	hops     int // of the farthest peer that answered
}

func newWalkTrace() walkTrace { return walkTrace{depth: map[peer.ID]int{}} }

// onEvent handles an event. Peers of our own routing table are one hop away;
// those that a peer names are one farther than it is.
func (t *walkTrace) onEvent(event *routing.QueryEvent) {
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
