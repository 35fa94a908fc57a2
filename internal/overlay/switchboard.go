package overlay

import (
	"micronode/internal/oap"
	"micronode/internal/overlay/gossip"
	"micronode/internal/overlay/session"
)

// switchboard is the overlay as its sessions see it: it passes on what they
// bring to the room that it is for. The readers of all sessions call it. Only
// Arrived may wait, for the peers that get the letters, and not for long.
type switchboard Overlay

// Opened makes a session known to the rooms.
func (b *switchboard) Opened(s *session.Session) {
	b.streams.Opened(s)
	b.asks.Opened(s)
	b.engine.Opened(s)
	b.tell(Event{Type: SessionOpened, Peer: s.Peer(), Addr: s.Addr(), PQ: s.PQ()})
}

// Closed takes a session out again.
func (b *switchboard) Closed(s *session.Session, err error) {
	b.engine.Closed(s)
	b.streams.Closed(s)
	b.asks.Closed(s)
	if oap.ReasonOf(err) == oap.BadSig {
		b.tell(Event{Type: AuthFailure, Peer: s.Peer(), Addr: s.Addr(), PQ: s.PQ(), Detail: err.Error()})
	}
	event := Event{Type: SessionClosed, Peer: s.Peer(), Addr: s.Addr(), PQ: s.PQ()}
	if err != nil {
		event.Detail = err.Error()
	}
	b.tell(event)
}

// Arrived hands letters to the gossip engine.
func (b *switchboard) Arrived(s *session.Session, letters []session.Arrival) {
	b.engine.Arrived(s, letters)
}

// Message hands everything else to whom it concerns.
func (b *switchboard) Message(s *session.Session, in session.Incoming) error {
	switch m := in.Message.(type) {
	case *oap.Have:
		b.engine.Have(s, m.IDs)
	case *oap.Want:
		b.engine.Want(s, m.IDs)
	case *oap.Find, *oap.Found:
		b.asks.Message(s, in)
	case *oap.Error:
		return b.refused(s, in, m)
	default:
		return b.streams.Message(s, in)
	}
	return nil
}

// refused hands an error of the peer to whoever sent what it is about. Letters
// are no requests, so what answers none is about them.
func (b *switchboard) refused(s *session.Session, in session.Incoming, m *oap.Error) error {
	switch {
	case in.Flags&oap.Resp == 0:
		b.engine.Refused(s, m)
	case b.streams.Owns(in.Corr):
		return b.streams.Message(s, in)
	default:
		b.asks.Message(s, in)
	}
	return nil
}

func (b *switchboard) tell(event Event) { _ = b.events.Publish(event) } // a closed bus: nobody is left to tell

// crowd is a list of sessions, and the same as gossip sees them. It is read-only.
type crowd struct {
	sessions []*session.Session
	peers    []gossip.Peer
}

// peers is the active sessions. As long as these stay the same, so does the
// list.
func (o *Overlay) peers() []gossip.Peer {
	sessions := o.sessions.Active()
	last := o.crowd.Load()
	if last != nil && len(last.sessions) == len(sessions) && (len(sessions) == 0 || &last.sessions[0] == &sessions[0]) {
		return last.peers
	}
	now := &crowd{sessions: sessions, peers: make([]gossip.Peer, len(sessions))}
	for i, s := range sessions {
		now.peers[i] = s
	}
	o.crowd.Store(now)
	return now.peers
}
