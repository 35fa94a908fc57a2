package session

import (
	"errors"
	"slices"
	"time"

	"micronode/fault"
	"micronode/internal/oap"
)

// PeerState describes a contact, or another peer that has a session with us, for
// people.
type PeerState struct {
	ID      oap.PeerID `json:"id"`
	Addr    string     `json:"addr"`
	State   string     `json:"state"`                 // dialing, active, busy or backoff
	PQ      bool       `json:"pq"`                    // the key exchange is post-quantum
	RTT     float64    `json:"rtt_ms"`                // in milliseconds; 0 if none was measured
	Dialed  bool       `json:"dialed"`                // by this node, not by the peer
	Since   time.Time  `json:"since,omitzero"`        // in this state
	LastErr string     `json:"last_error,omitempty"`  // of the last dial
	Next    string     `json:"next,omitempty"`        // what to do about it
	RetryIn int64      `json:"retry_in_ms,omitempty"` // milliseconds until the next dial is due; 0 if none is

	IntroducedBy string `json:"introduced_by,omitempty"` // the IDs of the peers that introduced it, with commas between them
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
			states[one.ID] = one.state(t.dialers[one.ID], t.identity.id)
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

// PeerOf returns the state of a contact, also before it is set.
func (t *Sessions) PeerOf(contact Contact) PeerState {
	list := t.Peers()
	if i := slices.IndexFunc(list, func(p PeerState) bool { return p.ID == contact.ID }); i >= 0 {
		return list[i]
	}
	return contact.state(nil, t.identity.id)
}

// state returns how far the dialer of a contact is, if it has one yet. The caller
// holds Sessions.mu.
func (c Contact) state(d *dialer, self oap.PeerID) PeerState {
	state := PeerState{ID: c.ID, State: stateDialing}
	switch {
	case len(c.Addrs) == 0:
		state.State, state.LastErr = stateBackoff, "it is known, but not where it is: it connects to this node when it runs"
		return state
	case d == nil:
		state.Addr = c.Addrs[0]
		return state
	}
	state.Addr, state.State, state.Since = d.addr, d.state, d.since.UTC()
	if !d.retry.IsZero() {
		state.RetryIn = max(0, time.Until(d.retry).Milliseconds())
	}
	if state.State == stateActive { // its session has ended, and the dialer has not noticed yet
		state.State = stateBackoff
	}
	if d.lastErr != nil {
		state.LastErr, state.Next = d.lastErr.Error(), nextStep(d.lastErr, self)
	}
	return state
}

func (s *Session) state() PeerState {
	state := PeerState{ID: s.peer, Addr: s.addr, State: stateActive, PQ: s.pq, RTT: float64(s.RTT()) / float64(time.Millisecond), Dialed: s.dialed, Since: s.since.UTC()}
	if s.Busy() {
		state.State = stateBusy
	}
	return state
}

// nextStep is what to do about a dial that failed. A peer that does not know this
// node is told about it there, by a command that can be copied from here.
func nextStep(err error, self oap.PeerID) string {
	if IsRefusal(err) {
		return "On the other node, type: micronode peers accept " + self.String()
	}
	return fault.NextOf(err)
}

// IsRefusal reports whether a peer, having proved its key, does not let this node
// in.
func IsRefusal(err error) bool {
	_, refused := errors.AsType[peerError](err)
	return refused && oap.CodeOf(err) == oap.Unauth
}

// DialError returns why the last dial of a contact failed; nil if there was none,
// or if there is a session.
func (t *Sessions) DialError(peer oap.PeerID) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if d := t.dialers[peer]; d != nil {
		return d.lastErr
	}
	return nil
}

// Redial dials a contact now, instead of when its backoff ends.
func (t *Sessions) Redial(peer oap.PeerID) {
	if d := t.dialerOf(peer); d != nil {
		t.removeDialer(d)
	}
	t.contacts.Store(t.contacts.Load()) // wakes RunDialers
}
