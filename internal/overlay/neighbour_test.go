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
)

// knowing is a member that answers with its own name.
func knowing(t *testing.T, name string) *member {
	t.Helper()
	return join(t, func(s *Spec) {
		s.Answer = func(_ context.Context, q Question) Found {
			return Found{Record: []byte(q.Obj), Providers: []FoundProvider{
				{ID: name, Overlay: []string{"192.0.2.1:9500"}, HTTP: []string{}, Region: "eu", Age: time.Minute}}}
		}
	})
}

// befriend makes one member dial another. Unlike meet it makes one connection,
// and so none that is closed as a duplicate while somebody asks.
func befriend(t *testing.T, a, b *member) {
	t.Helper()
	if _, err := b.AddPeer(Contact{ID: a.ID(), Addrs: []string{nobody}}); err != nil {
		t.Fatal(err)
	}
	link(t, a, b)
	a.sees(b)
	b.sees(a)
}

func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func TestThreeNodesAskEachOther(t *testing.T) {
	a, b, c := join(t, func(*Spec) {}), knowing(t, "b"), knowing(t, "c")
	if len(a.Neighbours()) != 0 {
		t.Error("neighbours before there are any")
	}
	befriend(t, a, b)
	befriend(t, a, c)
	for name, other := range map[string]*member{"b": b, "c": c} {
		got, err := a.Ask(soon(t), other.ID(), Question{Obj: "name:docs@" + name, Most: 5})
		want := Found{Record: []byte("name:docs@" + name), Providers: []FoundProvider{
			{ID: name, Overlay: []string{"192.0.2.1:9500"}, HTTP: []string{}, Region: "eu", Age: time.Minute}}}
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s answers %+v, %v", name, got, err)
		}
	}
	if got, err := b.Ask(soon(t), a.ID(), Question{Obj: "x", Most: 5}); err != nil || got.Record != nil || got.Providers != nil {
		t.Errorf("one who knows nobody answers %+v, %v", got, err)
	}
	_, err := b.Ask(soon(t), c.ID(), Question{Obj: "x"})
	if fault.KindOf(err) != fault.NoRoute {
		t.Errorf("without a session: %v", err)
	}
	seen := map[oap.PeerID]Neighbour{}
	for _, n := range a.Neighbours() {
		seen[n.ID] = n
	}
	if len(seen) != 2 || seen[b.ID()].Addr == "" || seen[c.ID()].Addr == "" {
		t.Errorf("neighbours %+v", seen)
	}
}

// tongue is a stranger with a session: it hears frames and says what it likes.
type tongue struct {
	t      *testing.T
	id     oap.PeerID
	conn   *tls.Conn
	frames *oap.Reader
}

// rude gives a member a peer that the test plays.
func rude(t *testing.T, of *member) *tongue {
	t.Helper()
	s := newStranger(t)
	if _, err := of.AddPeer(Contact{ID: s.id, Addrs: []string{nobody}}); err != nil {
		t.Fatal(err)
	}
	conn := s.dial(of.Addr().String())
	of.until("the stranger has a session", func() bool { return of.sessions.Find(s.id) != nil })
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	return &tongue{t: t, id: s.id, conn: conn, frames: oap.NewReader(conn, oap.Codec{Max: oap.MaxPayload})}
}

// say sends messages, in one go.
func (r *tongue) say(flags oap.Flags, corr uint64, messages ...oap.Message) {
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

// hears waits for the next message of a kind.
func (r *tongue) hears(kind string) (oap.Message, uint64) {
	r.t.Helper()
	for {
		frame, err := r.frames.Next()
		if err != nil {
			r.t.Fatalf("waiting for %s: %v", kind, err)
		}
		m, err := oap.Decode(frame.Payload)
		if err != nil {
			r.t.Fatal(err)
		}
		if oap.KindOf(m) == kind {
			return m, frame.Corr
		}
	}
}

// wonder asks in the background.
func (m *member) wonder(ctx context.Context, peer oap.PeerID) <-chan error {
	result := make(chan error, 1)
	go func() {
		_, err := m.Ask(ctx, peer, Question{Obj: "x", Most: 1})
		result <- err
	}()
	return result
}

// Peers answer late, twice, with an error, or not at all. The session goes on.
func TestPeersThatAnswerBadly(t *testing.T) {
	a := join(t, func(*Spec) {})
	r := rude(t, a)
	r.say(oap.Resp, 1<<40, &oap.Found{}, &oap.Error{Code: oap.Malformed, Msg: "what?"}) // nobody asked

	result := a.wonder(soon(t), r.id)
	_, corr := r.hears("find")
	r.say(oap.Resp, corr, &oap.Error{Code: oap.Malformed, Msg: "unknown kind find"})
	if err := <-result; fault.KindOf(err) != fault.Malformed {
		t.Errorf("a peer that does not know the kind: %v", err)
	}

	ctx, leave := context.WithCancel(t.Context())
	result = a.wonder(ctx, r.id)
	_, corr = r.hears("find")
	leave()
	if err := <-result; fault.KindOf(err) != fault.Canceled {
		t.Errorf("the caller left: %v", err)
	}
	r.say(oap.Resp, corr, &oap.Found{}) // too late

	result = a.wonder(soon(t), r.id)
	_, corr = r.hears("find")
	r.say(oap.Resp, corr, &oap.Found{})
	r.say(oap.Resp, corr, &oap.Found{}) // twice
	if err := <-result; err != nil {
		t.Error(err)
	}

	a.until("all strays were counted", func() bool { return sum(t, a, "overlay_answers_stray_total", service) == 4 })

	result = a.wonder(soon(t), r.id)
	r.hears("find")
	if err := r.conn.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-result; fault.KindOf(err) != fault.Transient {
		t.Errorf("the session ended: %v", err)
	}
}

// sum adds up the series of a counter that have a label, or all.
func sum(t *testing.T, m *member, name, label string) (total float64) {
	t.Helper()
	families, err := m.metrics.Gatherer().Gather()
	if err != nil {
		t.Fatal(err)
	}
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
// answered, letters pass, and it is answered itself when it comes to rest.
func TestAFloodOfQuestions(t *testing.T) {
	var answers atomic.Int64
	release := make(chan struct{})
	a := join(t, func(s *Spec) {
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
	polite := join(t, func(*Spec) {})
	befriend(t, a, polite)
	r := rude(t, a)
	flood := make([]oap.Message, 2000)
	for i := range flood {
		flood[i] = &oap.Find{Obj: "slow", Most: 1}
	}
	r.say(oap.Req, 1, flood...)
	problem, corr := r.hears("error")
	if e := problem.(*oap.Error); e.Code != oap.Busy || corr <= 64 || corr > 2000 {
		t.Errorf("question %d: %+v", corr, e)
	}
	ear := polite.hear("news")
	for i := range 20 {
		if _, err := polite.Ask(soon(t), a.ID(), Question{Obj: "x", Most: 1}); err != nil {
			t.Errorf("a polite peer: %v", err)
		}
		a.say("news", fmt.Sprint(i))
		heard(t, ear)
	}
	if n := answers.Load(); n != 20 {
		t.Errorf("%d answers were made", n)
	}
	r.hears("gossip") // in spite of its own flood
	rest()
	a.until("the whole flood was dealt with", func() bool { return sum(t, a, "overlay_questions_total", "rx") == 20+2000 })
	for range int(answers.Load()) - 20 {
		r.hears("found")
	}
	r.say(oap.Req, 5000, &oap.Find{Obj: "x", Most: 1})
	if _, corr := r.hears("found"); corr != 5000 {
		t.Errorf("it heard of question %d", corr)
	}
}

// A giver may answer a start with an error. Whoever fetches hears of it at once,
// and not when its patience ends.
func TestAStartThatIsRefusedByAnError(t *testing.T) {
	a := join(t, func(*Spec) {})
	r := rude(t, a)
	address := b3.Of([]byte("x"))
	result := make(chan error, 1)
	go func() {
		_, _, err := a.Fetch(soon(t), address, &r.id)
		result <- err
	}()
	_, corr := r.hears("start")
	r.say(oap.Resp, corr, &oap.Error{Code: oap.Unauth, Msg: "not for you"})
	if err := <-result; fault.KindOf(err) != fault.Forbidden {
		t.Errorf("the fetch ended with %v", err)
	}
	if end, _ := r.hears("end"); end.(*oap.End).Status != "Canceled" {
		t.Errorf("the giver heard %+v", end)
	}
}
