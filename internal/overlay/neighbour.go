package overlay

import (
	"context"
	"time"

	"micronode/fault"
	"micronode/internal/oap"
	"micronode/internal/overlay/ask"
)

// Question is what a peer is asked: who has an object, or what a name means.
type Question = ask.Question

// Found is what a peer knows; nothing in it is proved. FoundProvider is a node
// that is said to have the object.
type (
	Found         = ask.Found
	FoundProvider = ask.Provider
)

// Ask asks a peer what it knows, and waits for the answer until ctx ends: Timeout
// or Canceled. It is NoRoute without a session with the peer, Busy when 64
// questions are under way to it, Transient when the session ends meanwhile; what
// the peer itself refuses has the kind of its code.
func (o *Overlay) Ask(ctx context.Context, peer oap.PeerID, q Question) (Found, error) {
	s := o.sessions.Find(peer)
	if s == nil {
		return Found{}, &fault.Error{Op: "overlay.ask", Kind: fault.NoRoute, Detail: "there is no session with " + peer.String(),
			Next: "See `micronode peers` for those that are connected."}
	}
	return o.asks.Ask(ctx, s, q)
}

// Neighbour is a peer that can be asked right now.
type Neighbour struct {
	ID   oap.PeerID
	Addr string        // at the other end of the session, which need not be where it listens
	RTT  time.Duration // of the last ping or of the handshake; 0 if none was measured
}

// Neighbours lists the peers with an active session, in no order. It takes no
// lock while the sessions stay the same.
func (o *Overlay) Neighbours() []Neighbour {
	active := o.sessions.Active()
	list := make([]Neighbour, len(active))
	for i, s := range active {
		list[i] = Neighbour{ID: s.Peer(), Addr: s.Addr(), RTT: s.RTT()}
	}
	return list
}
