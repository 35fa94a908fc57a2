package session

import (
	"slices"
	"time"

	"micronode/internal/oap"
)

// PeerState describes a contact, or another peer that has a session with us, for
// people.
type PeerState struct {
	ID      oap.PeerID
	Addr    string
	State   string // dialing, active, busy or backoff
	PQ      bool
	RTT     time.Duration
	Dialed  bool
	Since   time.Time // in this state
	LastErr string    // of the last dial
	Retry   time.Time // when the next dial is due; zero if none is
}

// Peers lists contacts and sessions, sorted by ID. A contact is listed as soon as
// it is set, even before it is dialled.
func (t *Sessions) Peers() []PeerState {
	contacts := t.contacts.Load()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.draining { // no peer is dialled any more
		contacts = nil
	}
	states := map[oap.PeerID]PeerState{}
	for _, one := range contacts {
		if one.ID != t.identity.id { // a node does not dial itself
			states[one.ID] = one.state(t.dialers[one.ID])
		}
	}
	for id, s := range t.byPeer {
		states[id] = s.state()
	}
	list := make([]PeerState, 0, len(states))
	for _, state := range states {
		list = append(list, state)
	}
	slices.SortFunc(list, func(a, b PeerState) int { return a.ID.Compare(b.ID) })
	return list
}

// state returns how far the dialer of a contact is, if it has one yet. The caller
// holds Sessions.mu.
func (c Contact) state(k *dialer) PeerState {
	state := PeerState{ID: c.ID, State: stateDialing}
	if k == nil {
		if len(c.Addrs) > 0 {
			state.Addr = c.Addrs[0]
		}
		return state
	}
	state.Addr, state.State, state.Since, state.Retry = k.addr, k.state, k.since, k.retry
	if state.State == stateActive { // its session has ended, and the dialer has not noticed yet
		state.State = stateBackoff
	}
	if k.lastErr != nil {
		state.LastErr = k.lastErr.Error()
	}
	return state
}

func (s *Session) state() PeerState {
	state := PeerState{ID: s.peer, Addr: s.addr, State: stateActive, PQ: s.pq, RTT: s.RTT(), Dialed: s.dialed, Since: s.since}
	if s.Busy() {
		state.State = stateBusy
	}
	return state
}
