package session

import (
	"slices"
	"time"

	"micronode/internal/oap"
)

// PeerState is a contact, or somebody who has a session with us, for people.
type PeerState struct {
	ID      oap.PeerID
	Addr    string
	State   string // dialing, active, busy or backoff
	PQ      bool
	RTT     time.Duration
	Dialed  bool
	Since   time.Time // in this state
	LastErr string    // of the last call
	Retry   time.Time // when the next call is due; zero if none is
}

// Peers lists contacts and sessions, sorted by ID.
func (t *Sessions) Peers() []PeerState {
	t.mu.Lock()
	defer t.mu.Unlock()
	states := map[oap.PeerID]PeerState{}
	for id, k := range t.keepers {
		state := PeerState{ID: id, Addr: k.addr, State: k.state, Since: k.since, Retry: k.retry}
		if state.State == active { // its session is over, and it has not noticed
			state.State = backoff
		}
		if k.last != nil {
			state.LastErr = k.last.Error()
		}
		states[id] = state
	}
	for id, s := range t.table {
		states[id] = s.state()
	}
	list := make([]PeerState, 0, len(states))
	for _, state := range states {
		list = append(list, state)
	}
	slices.SortFunc(list, func(a, b PeerState) int { return a.ID.Compare(b.ID) })
	return list
}

func (s *Session) state() PeerState {
	state := PeerState{ID: s.peer, Addr: s.addr, State: active, PQ: s.pq, RTT: s.RTT(), Dialed: s.dialed, Since: s.since}
	if s.Busy() {
		state.State = busy
	}
	return state
}
