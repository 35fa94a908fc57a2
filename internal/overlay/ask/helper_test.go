package ask

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"micronode/internal/flow"
	"micronode/internal/oap"
	"micronode/internal/overlay/session"
	"micronode/internal/supervise"
	"micronode/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testNode is a node: its questions, and what it counted.
type testNode struct {
	*Queries
	t   testing.TB
	inv *flow.Inventory

	mu     sync.Mutex
	counts map[string]int
}

func newTestNode(t testing.TB, change func(*Spec)) *testNode {
	t.Helper()
	s := &testNode{t: t, inv: flow.NewInventory(), counts: map[string]int{}}
	count := func(what string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.counts[what]++
	}
	spec := Spec{Answerers: newGroup(t, 256), Counters: Counters{
		Asked: func(outcome string) { count("asked " + outcome) }, Answered: func(outcome string) { count("rx " + outcome) },
		Unsent: func() { count("unsaid") }, Stray: func() { count("stray") },
	}}
	change(&spec)
	s.Queries = New(s.inv, spec)
	return s
}

// newGroup is a group of tasks that the end of the test waits for.
func newGroup(t testing.TB, most int) *supervise.Group {
	t.Helper()
	sup, err := supervise.New(supervise.Options{Stages: []supervise.Stage{{Name: "all", DrainTimeout: time.Second}}, DrainTimeout: 2 * time.Second})
	testkit.Must(t, err)
	group, err := sup.NewGroup(supervise.GroupSpec{Service: service, Kind: "answerer", Stage: "all", Max: most})
	testkit.Must(t, err)
	t.Cleanup(func() {
		group.Close()
		if err := group.Wait(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return group
}

// wantCounts checks everything that was counted.
func (n *testNode) wantCounts(want map[string]int) {
	n.t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	if !maps.Equal(n.counts, want) {
		n.t.Errorf("counted %v, want %v", n.counts, want)
	}
}

// checkEmpty checks that nothing is left of any question.
func (n *testNode) checkEmpty() {
	n.t.Helper()
	n.Queries.mu.Lock()
	defer n.Queries.mu.Unlock()
	for serial, d := range n.bySession {
		if d != nil && (len(d.pending) > 0 || d.answering > 0) {
			n.t.Errorf("session %d: %d wait, %d are answered", serial, len(d.pending), d.answering)
		}
	}
}

var serials atomic.Uint64

// fakePeer is a peer as a node sees it. What it is sent goes through its
// encoding, to another node if there is one.
type fakePeer struct {
	serial uint64
	corr   atomic.Uint64
	frame  int
	remote *testNode // the other node; nil: what it is sent is only kept
	back   *fakePeer // ourselves, as the other sees us

	mu      sync.Mutex
	control []session.Outgoing
	bulk    []session.Outgoing
	refusal func() error // of SendControl and SendBulk; nil: none
	stalled bool         // nothing is written
}

// addPeer adds a peer that sends only what the test sends.
func (n *testNode) addPeer() *fakePeer {
	f := &fakePeer{serial: serials.Add(1), frame: oap.MaxPayload}
	n.Opened(f)
	n.t.Cleanup(func() { n.Closed(f) })
	return f
}

// connect makes two nodes each other's peers: what a asks, b answers.
func connect(a, b *testNode) (atA, atB *fakePeer) {
	atA, atB = a.addPeer(), b.addPeer()
	atA.remote, atA.back, atB.remote, atB.back = b, atB, a, atA
	return atA, atB
}

func (f *fakePeer) Peer() oap.PeerID { return oap.PeerID{byte(f.serial)} }
func (f *fakePeer) Serial() uint64   { return f.serial }
func (f *fakePeer) Corr() uint64     { return f.corr.Add(1) }
func (f *fakePeer) MaxFrame() int    { return f.frame }

func (f *fakePeer) SendControl(out session.Outgoing) error { return f.push(&f.control, out) }

func (f *fakePeer) SendBulk(which uint64, cost int, out session.Outgoing) error {
	payload, err := oap.Encode(nil, out.Message)
	if err != nil || which != answerClass || cost < len(payload) {
		return fmt.Errorf("class %d, a payload of %d bytes that costs %d, %w", which, len(payload), cost, err)
	}
	return f.push(&f.bulk, out)
}

func (f *fakePeer) push(list *[]session.Outgoing, out session.Outgoing) error {
	f.mu.Lock()
	if f.refusal != nil {
		if err := f.refusal(); err != nil {
			f.mu.Unlock()
			return err
		}
	}
	*list = append(*list, out)
	stalled := f.stalled
	f.mu.Unlock()
	if stalled {
		return nil
	}
	payload, err := oap.Encode(nil, out.Message)
	if err == nil && f.remote != nil {
		var m oap.Message
		if m, err = oap.Decode(payload); err == nil {
			f.remote.Message(f.back, session.Incoming{Flags: out.Flags, Corr: out.Corr, Message: m})
		}
	}
	if out.Written != nil {
		out.Written(err)
	}
	return nil
}

// write writes what was stalled, from the first answer on.
func (f *fakePeer) write(n int) {
	f.mu.Lock()
	some := f.bulk[:n]
	f.bulk = f.bulk[n:]
	f.mu.Unlock()
	for _, out := range some {
		out.Written(nil)
	}
}

// set changes how the peer behaves.
func (f *fakePeer) set(stalled bool, refusal func() error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stalled, f.refusal = stalled, refusal
}

// answers returns what the peer was sent, by corr: nil for an answer, or its
// error.
func (f *fakePeer) answers() map[uint64]*oap.Error {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := map[uint64]*oap.Error{}
	for _, out := range f.bulk {
		problem, _ := out.Message.(*oap.Error)
		all[out.Corr] = problem
	}
	return all
}

// receiveFind brings a question of the peer.
func (n *testNode) receiveFind(f *fakePeer, corr uint64) {
	n.Message(f, session.Incoming{Flags: oap.Req, Corr: corr, Message: &oap.Find{Obj: "x", Most: 3}})
}
