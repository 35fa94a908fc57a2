package overlay

import (
	"micronode/internal/oap"
	"micronode/internal/overlay/gossip"
	"micronode/internal/overlay/session"
)

// sessionHandler is the overlay as its sessions see it: it passes what they
// receive to the engine, the streams or the queries. The readers of all
// sessions call it. Only Gossip may wait, for the peers that get the messages,
// and not for long.
type sessionHandler Overlay

// Opened registers a session with the sub-packages.
func (h *sessionHandler) Opened(s *session.Session) {
	h.streams.Opened(s)
	h.queries.Opened(s)
	h.engine.Opened(s)
	h.introductions.dirty.Store(true)
	h.emit(Event{Type: SessionOpened, Peer: s.Peer(), Addr: s.Addr(), PQ: s.PQ()})
}

// Closed removes a session again.
func (h *sessionHandler) Closed(s *session.Session, err error) {
	h.engine.Closed(s)
	h.streams.Closed(s)
	h.queries.Closed(s)
	h.introductions.closed(s.Serial())
	if oap.ReasonOf(err) == oap.BadSig {
		h.emit(Event{Type: AuthFailure, Peer: s.Peer(), Addr: s.Addr(), PQ: s.PQ(), Detail: err.Error()})
	}
	event := Event{Type: SessionClosed, Peer: s.Peer(), Addr: s.Addr(), PQ: s.PQ()}
	if err != nil {
		event.Detail = err.Error()
	}
	h.emit(event)
}

// Gossip passes messages to the gossip engine.
func (h *sessionHandler) Gossip(s *session.Session, list []session.IncomingGossip) {
	h.engine.HandleGossip(s, list)
}

// Message dispatches everything else.
func (h *sessionHandler) Message(s *session.Session, in session.Incoming) error {
	switch m := in.Message.(type) {
	case *oap.Have:
		h.engine.HandleHave(s, m.IDs)
	case *oap.Want:
		h.engine.HandleWant(s, m.IDs)
	case *oap.Find, *oap.Found:
		h.queries.Message(s, in)
	case *oap.Introduce:
		(*Overlay)(h).handleIntroduce(s, m)
	case *oap.Error:
		return h.handleError(s, in, m)
	default:
		return h.streams.Message(s, in)
	}
	return nil
}

// handleError passes an error of the peer to the sender of what it is about.
// Gossip messages are not requests, so an error that is no response is about
// them.
func (h *sessionHandler) handleError(s *session.Session, in session.Incoming, m *oap.Error) error {
	switch {
	case in.Flags&oap.Resp == 0:
		h.engine.HandleRefusal(s, m)
	case h.streams.Owns(in.Corr):
		return h.streams.Message(s, in)
	default:
		h.queries.Message(s, in)
	}
	return nil
}

func (h *sessionHandler) emit(event Event) { _ = h.events.Publish(event) } // a closed bus has no readers left

// peerList is a list of sessions, and the same as gossip.Peer. It is read-only.
type peerList struct {
	sessions []*session.Session
	peers    []gossip.Peer
}

// peers returns the active sessions. As long as these stay the same, so does
// the list.
func (o *Overlay) peers() []gossip.Peer {
	sessions := o.sessions.Active()
	last := o.peerList.Load()
	if last != nil && len(last.sessions) == len(sessions) && (len(sessions) == 0 || &last.sessions[0] == &sessions[0]) {
		return last.peers
	}
	now := &peerList{sessions: sessions, peers: make([]gossip.Peer, len(sessions))}
	for i, s := range sessions {
		now.peers[i] = s
	}
	o.peerList.Store(now)
	return now.peers
}
