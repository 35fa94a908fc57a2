package overlay

import (
	"context"
	"crypto/tls"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/oap"
	"micronode/internal/testkit"
)

// answeringNode is a node that answers with its own name.
func answeringNode(t *testing.T, name string) *testNode {
	t.Helper()
	return startNode(t, func(s *Spec) {
		s.Answer = func(_ context.Context, q Question) Found {
			return Found{Record: []byte(q.Obj), Providers: []FoundProvider{
				{ID: name, Overlay: []string{"192.0.2.1:9500"}, HTTP: []string{}, Region: "eu", Age: time.Minute}}}
		}
	})
}

// connectOneWay makes one node dial another. Unlike connectNodes it makes one
// connection, and so none that is closed as a duplicate while a question is
// under way.
func connectOneWay(t *testing.T, a, b *testNode) {
	t.Helper()
	if _, err := b.AddPeer(Contact{ID: a.ID(), Addrs: []string{unusedAddr}}); err != nil {
		t.Fatal(err)
	}
	addContact(t, a, b)
	a.waitSession(b)
	b.waitSession(a)
}

func shortContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func TestThreeNodesAskEachOther(t *testing.T) {
	a, b, c := startNode(t, func(*Spec) {}), answeringNode(t, "b"), answeringNode(t, "c")
	if len(a.ConnectedPeers()) != 0 {
		t.Error("neighbours before there are any")
	}
	connectOneWay(t, a, b)
	connectOneWay(t, a, c)
	for name, other := range map[string]*testNode{"b": b, "c": c} {
		got, err := a.Ask(shortContext(t), other.ID(), Question{Obj: "name:docs@" + name, Most: 5})
		want := Found{Record: []byte("name:docs@" + name), Providers: []FoundProvider{
			{ID: name, Overlay: []string{"192.0.2.1:9500"}, HTTP: []string{}, Region: "eu", Age: time.Minute}}}
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s answers %+v, %v", name, got, err)
		}
	}
	if got, err := b.Ask(shortContext(t), a.ID(), Question{Obj: "x", Most: 5}); err != nil || got.Record != nil || got.Providers != nil {
		t.Errorf("one who knows nobody answers %+v, %v", got, err)
	}
	_, err := b.Ask(shortContext(t), c.ID(), Question{Obj: "x"})
	if fault.KindOf(err) != fault.NoRoute {
		t.Errorf("without a session: %v", err)
	}
	seen := map[oap.PeerID]ConnectedPeer{}
	for _, n := range a.ConnectedPeers() {
		seen[n.ID] = n
	}
	if len(seen) != 2 || seen[b.ID()].Addr == "" || seen[c.ID()].Addr == "" {
		t.Errorf("neighbours %+v", seen)
	}
}

// rawSession is a session that the test plays: it reads frames and sends
// arbitrary ones.
type rawSession struct {
	t      *testing.T
	id     oap.PeerID
	conn   *tls.Conn
	frames *oap.Reader
}

// addRawSession gives a node a peer that the test plays.
func addRawSession(t *testing.T, of *testNode) *rawSession {
	t.Helper()
	s := newRawPeer(t)
	if _, err := of.AddPeer(Contact{ID: s.id, Addrs: []string{unusedAddr}}); err != nil {
		t.Fatal(err)
	}
	conn := s.dial(of.Addr().String())
	testkit.WaitFor(of.t, "the stranger has a session", func() bool { return of.sessions.Find(s.id) != nil })
	testkit.Must(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	return &rawSession{t: t, id: s.id, conn: conn, frames: oap.NewReader(conn, oap.Codec{Max: oap.MaxPayload})}
}

// send sends messages, in one go.
func (r *rawSession) send(flags oap.Flags, corr uint64, messages ...oap.Message) {
	r.t.Helper()
	var out []byte
	for i, m := range messages {
		var err error
		if out, err = (oap.Codec{Max: oap.MaxPayload}).AppendMessage(out, flags, corr+uint64(i), m); err != nil {
			r.t.Fatal(err)
		}
	}
	if _, err := r.conn.Write(out); err != nil {
		r.t.Fatal(err)
	}
}

// await waits for the next message of a kind.
func (r *rawSession) await(kind string) (oap.Message, uint64) {
	r.t.Helper()
	for {
		frame, err := r.frames.Next()
		if err != nil {
			r.t.Fatalf("waiting for %s: %v", kind, err)
		}
		m, err := oap.Decode(frame.Payload)
		testkit.Must(r.t, err)
		if oap.KindOf(m) == kind {
			return m, frame.Corr
		}
	}
}

// askAsync asks in the background.
func (n *testNode) askAsync(ctx context.Context, peer oap.PeerID) <-chan error {
	result := make(chan error, 1)
	go func() {
		_, err := n.Ask(ctx, peer, Question{Obj: "x", Most: 1})
		result <- err
	}()
	return result
}

// Peers answer late, twice, with an error, or not at all. The session
// continues.
func TestPeersThatAnswerBadly(t *testing.T) {
	a := startNode(t, func(*Spec) {})
	r := addRawSession(t, a)
	r.send(oap.Resp, 1<<40, &oap.Found{}, &oap.Error{Code: oap.Malformed, Msg: "what?"}) // without a question

	result := a.askAsync(shortContext(t), r.id)
	_, corr := r.await("find")
	r.send(oap.Resp, corr, &oap.Error{Code: oap.Malformed, Msg: "unknown kind find"})
	if err := <-result; fault.KindOf(err) != fault.Malformed {
		t.Errorf("a peer that does not know the kind: %v", err)
	}

	ctx, leave := context.WithCancel(t.Context())
	result = a.askAsync(ctx, r.id)
	_, corr = r.await("find")
	leave()
	if err := <-result; fault.KindOf(err) != fault.Canceled {
		t.Errorf("the caller left: %v", err)
	}
	r.send(oap.Resp, corr, &oap.Found{}) // too late

	result = a.askAsync(shortContext(t), r.id)
	_, corr = r.await("find")
	r.send(oap.Resp, corr, &oap.Found{})
	r.send(oap.Resp, corr, &oap.Found{}) // twice
	if err := <-result; err != nil {
		t.Error(err)
	}

	testkit.WaitFor(t, "all strays were counted", func() bool { return counterSum(t, a, "overlay_answers_stray_total", service) == 4 })

	result = a.askAsync(shortContext(t), r.id)
	r.await("find")
	testkit.Must(t, r.conn.Close())
	if err := <-result; fault.KindOf(err) != fault.Transient {
		t.Errorf("the session ended: %v", err)
	}
}

// counterSum adds up the series of a counter that have a label, or all.
func counterSum(t *testing.T, m *testNode, name, label string) (total float64) {
	t.Helper()
	families, err := m.metrics.Gatherer().Gather()
	testkit.Must(t, err)
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, series := range family.GetMetric() {
			for _, pair := range series.GetLabel() {
				if pair.GetValue() == label {
					total += series.GetCounter().GetValue()
				}
			}
		}
	}
	return total
}

// A peer that asks without end gets Busy for what is too much. Others are
// answered, messages pass, and it is answered itself when it slows down.
func TestAFloodOfQuestions(t *testing.T) {
	var answers atomic.Int64
	release := make(chan struct{})
	a := startNode(t, func(s *Spec) {
		s.Answer = func(_ context.Context, q Question) Found {
			if q.Obj == "slow" {
				<-release
			}
			answers.Add(1)
			return Found{Record: []byte("r")}
		}
	})
	rest := sync.OnceFunc(func() { close(release) })
	t.Cleanup(rest)
	polite := startNode(t, func(*Spec) {})
	connectOneWay(t, a, polite)
	r := addRawSession(t, a)
	flood := make([]oap.Message, 2000)
	for i := range flood {
		flood[i] = &oap.Find{Obj: "slow", Most: 1}
	}
	r.send(oap.Req, 1, flood...)
	problem, corr := r.await("error")
	if e := problem.(*oap.Error); e.Code != oap.Busy || corr <= 64 || corr > 2000 {
		t.Errorf("question %d: %+v", corr, e)
	}
	sub := polite.subscribe("news")
	for i := range 20 {
		if _, err := polite.Ask(shortContext(t), a.ID(), Question{Obj: "x", Most: 1}); err != nil {
			t.Errorf("a polite peer: %v", err)
		}
		a.mustPublish("news", fmt.Sprint(i))
		receive(t, sub)
	}
	if n := answers.Load(); n != 20 {
		t.Errorf("%d answers were made", n)
	}
	r.await("gossip") // in spite of its own flood
	rest()
	testkit.WaitFor(t, "the whole flood was dealt with", func() bool { return counterSum(t, a, "overlay_questions_total", "rx") == 20+2000 })
	for range int(answers.Load()) - 20 {
		r.await("found")
	}
	r.send(oap.Req, 5000, &oap.Find{Obj: "x", Most: 1})
	if _, corr := r.await("found"); corr != 5000 {
		t.Errorf("it heard of question %d", corr)
	}
}

// A sender may answer a start with an error. The fetch fails at once, and not
// when its patience ends.
func TestAStartThatIsRefusedByAnError(t *testing.T) {
	a := startNode(t, func(*Spec) {})
	r := addRawSession(t, a)
	address := b3.Of([]byte("x"))
	result := make(chan error, 1)
	go func() {
		_, _, err := a.Fetch(shortContext(t), address, &r.id)
		result <- err
	}()
	_, corr := r.await("start")
	r.send(oap.Resp, corr, &oap.Error{Code: oap.Unauth, Msg: "not for you"})
	if err := <-result; fault.KindOf(err) != fault.Forbidden {
		t.Errorf("the fetch ended with %v", err)
	}
	if end, _ := r.await("end"); end.(*oap.End).Status != "Canceled" {
		t.Errorf("the giver heard %+v", end)
	}
}
