package overlay

import (
	"slices"

	"micronode/internal/oap"
	"micronode/internal/overlay/gossip"
	"micronode/internal/overlay/session"
)

// switchboard is the overlay as its sessions see it: it passes on what they
// bring to the room that it is for. The readers of all sessions call it, and
// none of its methods waits.
type switchboard Overlay

// Opened makes a session known to the rooms.
func (b *switchboard) Opened(s *session.Session) {
	b.gather.Lock()
	peers := append(slices.Clone(b.peers.Load()), gossip.Peer(s))
	b.peers.Store(peers)
	b.gather.Unlock()
	b.streams.Opened(s)
	b.engine.Opened(s)
	b.tell(Event{Type: SessionOpened, Peer: s.Peer(), Addr: s.Addr(), PQ: s.PQ()})
}

// Closed takes a session out again.
func (b *switchboard) Closed(s *session.Session, err error) {
	b.gather.Lock()
	peers := slices.DeleteFunc(slices.Clone(b.peers.Load()), func(p gossip.Peer) bool { return p.Serial() == s.Serial() })
	b.peers.Store(peers)
	b.gather.Unlock()
	b.engine.Closed(s)
	b.streams.Closed(s)
	if b.sessions.Find(s.Peer()) == nil {
		b.book.farewell(s.Peer())
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
	case *oap.Error:
		b.engine.Refused(s, m)
	default:
		return b.streams.Message(s, in)
	}
	return nil
}

func (b *switchboard) tell(event Event) { _ = b.events.Publish(event) } // a closed bus: nobody is left to tell
