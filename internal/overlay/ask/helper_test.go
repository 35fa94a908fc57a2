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

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/oap"
	"micronode/internal/overlay/session"
	"micronode/internal/supervise"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// side is a node: its questions, and what it counted.
type side struct {
	*Asks
	t   testing.TB
	inv *flow.Inventory

	mu     sync.Mutex
	counts map[string]int
}

func newSide(t testing.TB, change func(*Spec)) *side {
	t.Helper()
	s := &side{t: t, inv: flow.NewInventory(), counts: map[string]int{}}
	count := func(what string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.counts[what]++
	}
	spec := Spec{Answerers: newGroup(t, 256), Counters: Counters{
		Asked: func(outcome string) { count("asked " + outcome) }, Answered: func(outcome string) { count("rx " + outcome) },
		Unsaid: func() { count("unsaid") }, Stray: func() { count("stray") },
	}}
	change(&spec)
	s.Asks = New(s.inv, spec)
	return s
}

// newGroup is a group of tasks that is waited for at the end of the test.
func newGroup(t testing.TB, most int) *supervise.Group {
	t.Helper()
	sup, err := supervise.New(supervise.Options{Stages: []supervise.Stage{{Name: "all", Drain: time.Second}}, Total: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	group, err := sup.NewGroup(supervise.GroupSpec{Service: service, Kind: "answerer", Stage: "all", Max: most})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		group.Close()
		if err := group.Wait(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return group
}

// counted checks everything that was counted.
func (s *side) counted(want map[string]int) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !maps.Equal(s.counts, want) {
		s.t.Errorf("counted %v, want %v", s.counts, want)
	}
}

// empty checks that nothing is left of any question.
func (s *side) empty() {
	s.t.Helper()
	s.Asks.mu.Lock()
	defer s.Asks.mu.Unlock()
	for serial, d := range s.desks {
		if d != nil && (len(d.waiting) > 0 || d.answering > 0) {
			s.t.Errorf("session %d: %d wait, %d are answered", serial, len(d.waiting), d.answering)
		}
	}
}

var serials atomic.Uint64

// far is a peer as a node sees it. What it is told goes through its encoding,
// to another node if there is one.
type far struct {
	serial uint64
	corr   atomic.Uint64
	frame  int
	to     *side // the other node; nil: what it is told is only kept
	back   *far  // ourselves, as the other sees us

	mu      sync.Mutex
	told    []session.Out
	given   []session.Out
	refusal func() error // of Tell and Give; nil: none
	stalled bool         // nothing is written
}

// lonely is a peer that never says a word, unless the test does it.
func (s *side) lonely() *far {
	f := &far{serial: serials.Add(1), frame: oap.MaxPayload}
	s.Opened(f)
	s.t.Cleanup(func() { s.Closed(f) })
	return f
}

// connect makes two nodes each other's peers: what a asks, b answers.
func connect(a, b *side) (atA, atB *far) {
	atA, atB = a.lonely(), b.lonely()
	atA.to, atA.back, atB.to, atB.back = b, atB, a, atA
	return atA, atB
}

func (f *far) Peer() oap.PeerID { return oap.PeerID{byte(f.serial)} }
func (f *far) Serial() uint64   { return f.serial }
func (f *far) Corr() uint64     { return f.corr.Add(1) }
func (f *far) MaxFrame() int    { return f.frame }

func (f *far) Tell(out session.Out) error { return f.push(&f.told, out) }

func (f *far) Give(which uint64, cost int, out session.Out) error {
	payload, err := oap.Encode(nil, out.Message)
	if err != nil || which != class || cost < len(payload) {
		return fmt.Errorf("class %d, a payload of %d bytes that costs %d, %w", which, len(payload), cost, err)
	}
	return f.push(&f.given, out)
}

func (f *far) push(list *[]session.Out, out session.Out) error {
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
	if err == nil && f.to != nil {
		var m oap.Message
		if m, err = oap.Decode(payload); err == nil {
			f.to.Message(f.back, session.Incoming{Flags: out.Flags, Corr: out.Corr, Message: m})
		}
	}
	if out.Written != nil {
		out.Written(err)
	}
	return nil
}

// write writes what was stalled, from the first answer on.
func (f *far) write(n int) {
	f.mu.Lock()
	some := f.given[:n]
	f.given = f.given[n:]
	f.mu.Unlock()
	for _, out := range some {
		out.Written(nil)
	}
}

// set changes how the peer behaves.
func (f *far) set(stalled bool, refusal func() error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stalled, f.refusal = stalled, refusal
}

// answers is what the peer was given, by corr: nil for an answer, or its error.
func (f *far) answers() map[uint64]*oap.Error {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := map[uint64]*oap.Error{}
	for _, out := range f.given {
		problem, _ := out.Message.(*oap.Error)
		all[out.Corr] = problem
	}
	return all
}

// asks is a question of the peer.
func (s *side) asks(f *far, corr uint64) {
	s.Message(f, session.Incoming{Flags: oap.Req, Corr: corr, Message: &oap.Find{Obj: "x", Most: 3}})
}

func kind(t testing.TB, what string, err error, want fault.Kind) {
	t.Helper()
	if fault.KindOf(err) != want {
		t.Errorf("%s: %v (%s), want %s", what, err, fault.KindOf(err), want)
	}
}
