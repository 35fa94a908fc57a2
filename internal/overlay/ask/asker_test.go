package ask

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/oap"
	"micronode/internal/overlay/session"
	"micronode/internal/testkit"
)

// fullAnswer is an answer with everything in it.
var fullAnswer = Found{Record: []byte("signed"), Providers: []Provider{
	{ID: "one", Overlay: []string{"192.0.2.1:9500"}, HTTP: []string{"http://192.0.2.1:8080"}, Region: "eu", Age: 90 * time.Second},
	{ID: "two", Overlay: []string{}, HTTP: []string{}},
}}

func TestAQuestionIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newTestNode(t, func(*Spec) {})
		var asked Question
		b := newTestNode(t, func(s *Spec) {
			s.Answer = func(_ context.Context, q Question) Found { asked = q; return fullAnswer }
		})
		peer, _ := connect(a, b)
		got, err := a.Ask(t.Context(), peer, Question{Obj: "name:docs", Most: 20})
		if err != nil || !reflect.DeepEqual(got, fullAnswer) || asked != (Question{"name:docs", 20}) {
			t.Errorf("%+v, %v; asked %+v", got, err, asked)
		}
		got, err = a.Ask(t.Context(), peer, Question{Obj: "x", Most: math.MaxInt})
		if err != nil || len(got.Providers) != 2 || asked.Most != oap.MaxProviders {
			t.Errorf("as many as there are: %+v, %v; asked %+v", got, err, asked)
		}
		got, err = a.Ask(t.Context(), peer, Question{Obj: "x", Most: -1})
		if err != nil || len(got.Providers) != 0 || len(got.Record) == 0 || asked.Most != 0 {
			t.Errorf("the record alone: %+v, %v; asked %+v", got, err, asked)
		}
		synctest.Wait()
		a.wantCounts(map[string]int{"asked answered": 3})
		b.wantCounts(map[string]int{"rx answered": 3})
		a.checkEmpty()
		b.checkEmpty()
	})
}

func TestANodeThatKnowsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newTestNode(t, func(*Spec) {}), newTestNode(t, func(*Spec) {})
		peer, _ := connect(a, b)
		got, err := a.Ask(t.Context(), peer, Question{Obj: "x", Most: 1})
		if err != nil || got.Providers != nil || got.Record != nil {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

// Nothing but the caller's own deadline ends the wait for a silent peer.
func TestASilentPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newTestNode(t, func(*Spec) {})
		peer := a.addPeer()
		for _, wait := range []time.Duration{time.Millisecond, 1200 * time.Millisecond, time.Hour} {
			ctx, cancel := context.WithTimeout(t.Context(), wait)
			began := time.Now()
			_, err := a.Ask(ctx, peer, Question{Obj: "x"})
			cancel()
			testkit.WantKind(t, err, fault.Timeout, wait.String())
			if took := time.Since(began); took != wait {
				t.Errorf("waited %s instead of %s", took, wait)
			}
		}
		a.wantCounts(map[string]int{"asked left": 3})
		a.checkEmpty()
		// The answers come when no caller waits any more.
		for _, out := range peer.control {
			a.Message(peer, session.Incoming{Flags: oap.Resp, Corr: out.Corr, Message: &oap.Found{}})
		}
		a.wantCounts(map[string]int{"asked left": 3, "stray": 3})

		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		_, err := a.Ask(ctx, peer, Question{Obj: "x"})
		testkit.WantKind(t, err, fault.Canceled, "the caller leaves")
		_, err = a.Ask(ctx, peer, Question{Obj: "x"})
		testkit.WantKind(t, err, fault.Canceled, "the caller has left")
		if len(peer.control) != 4 {
			t.Errorf("the peer was asked %d times", len(peer.control))
		}
	})
}

// An unsolicited or repeated answer is counted and changes nothing.
func TestStrayAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newTestNode(t, func(*Spec) {})
		peer, other := a.addPeer(), a.addPeer()
		results := make(chan error, 1)
		go func() {
			got, err := a.Ask(t.Context(), peer, Question{Obj: "x", Most: 1})
			if len(got.Providers) != 1 || got.Providers[0].ID != "right" {
				err = errors.Join(err, errors.New("it took another answer"))
			}
			results <- err
		}()
		synctest.Wait()
		say := func(f *fakePeer, corr uint64, id string) {
			a.Message(f, session.Incoming{Flags: oap.Resp, Corr: corr, Message: &oap.Found{Providers: []oap.Provider{{ID: id}, {ID: "one too many"}}}})
		}
		corr := peer.control[0].Corr
		say(peer, corr+1, "never asked for")
		say(other, corr, "of another peer")
		say(&fakePeer{serial: 1 << 40}, corr, "of nobody")
		say(peer, corr, "right")
		say(peer, corr, "twice")
		a.Message(peer, session.Incoming{Flags: oap.Resp, Corr: corr, Message: &oap.Error{Code: oap.Busy}})
		if err := <-results; err != nil {
			t.Error(err)
		}
		a.wantCounts(map[string]int{"asked answered": 1, "stray": 5})
	})
}

func TestSixtyFourAreUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newTestNode(t, func(*Spec) {})
		peer, other := a.addPeer(), a.addPeer()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		results := make(chan error, PerPeer+1)
		one := func() {
			_, err := a.Ask(ctx, peer, Question{Obj: "x"})
			results <- err
		}
		for range PerPeer {
			go one()
		}
		synctest.Wait()
		_, err := a.Ask(ctx, peer, Question{Obj: "x"})
		testkit.WantKind(t, err, fault.Busy, "one too many")
		if len(peer.control) != PerPeer {
			t.Errorf("the peer was asked %d times", len(peer.control))
		}
		short, done := context.WithTimeout(ctx, time.Second)
		defer done()
		_, err = a.Ask(short, other, Question{Obj: "x"})
		testkit.WantKind(t, err, fault.Timeout, "another peer")
		a.Message(peer, session.Incoming{Flags: oap.Resp, Corr: peer.control[7].Corr, Message: &oap.Found{}})
		if err := <-results; err != nil {
			t.Error(err)
		}
		go one()
		synctest.Wait()
		if len(peer.control) != PerPeer+1 {
			t.Error("an answer made no room for another question")
		}
		cancel()
		for range PerPeer {
			testkit.WantKind(t, <-results, fault.Canceled, "left")
		}
		a.wantCounts(map[string]int{"asked answered": 1, "asked busy": 1, "asked left": PerPeer + 1})
		a.checkEmpty()
	})
}

// An error of a peer has the kind of its code.
func TestRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newTestNode(t, func(*Spec) {})
		peer := a.addPeer()
		for code, want := range map[oap.Code]fault.Kind{
			oap.Busy: fault.Busy, oap.NotReady: fault.NotReady, oap.QuotaExceeded: fault.QuotaExceeded,
			oap.Malformed: fault.Malformed, oap.Unauth: fault.Unauthorized, "Later": fault.Transient,
		} {
			results := make(chan error, 1)
			go func() {
				_, err := a.Ask(t.Context(), peer, Question{Obj: "x"})
				results <- err
			}()
			synctest.Wait()
			corr := peer.control[len(peer.control)-1].Corr
			a.Message(peer, session.Incoming{Flags: oap.Resp, Corr: corr, Message: &oap.Error{Code: code, Msg: "words"}})
			testkit.WantKind(t, <-results, want, string(code))
		}
		a.wantCounts(map[string]int{"asked refused": 6})
	})
}

func TestTheSessionEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newTestNode(t, func(*Spec) {})
		peer := a.addPeer()
		results := make(chan error, 2)
		for range 2 {
			go func() {
				_, err := a.Ask(t.Context(), peer, Question{Obj: "x"})
				results <- err
			}()
		}
		synctest.Wait()
		a.Closed(peer)
		testkit.WantKind(t, <-results, fault.Transient, "while it waits")
		testkit.WantKind(t, <-results, fault.Transient, "while it waits")
		_, err := a.Ask(t.Context(), peer, Question{Obj: "x"})
		testkit.WantKind(t, err, fault.Transient, "afterwards")
		a.receiveFind(peer, 1) // a question that was on its way
		a.wantCounts(map[string]int{"asked lost": 3})
		if len(a.bySession) != 0 {
			t.Errorf("%d sessions are remembered", len(a.bySession))
		}
	})
}

// A session may reject a question, at once or when its turn comes.
func TestAQuestionThatIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newTestNode(t, func(*Spec) {})
		peer := a.addPeer()
		for _, c := range []struct {
			refusal error
			want    fault.Kind
		}{
			{fault.New("fake", fault.Busy, "full"), fault.Busy},
			{fault.New("fake", fault.NotReady, "draining"), fault.NotReady},
			{flow.ErrClosed, fault.Transient},
		} {
			peer.set(false, func() error { return c.refusal })
			_, err := a.Ask(t.Context(), peer, Question{Obj: "x"})
			testkit.WantKind(t, err, c.want, fmt.Sprint("at once: ", c.refusal))

			peer.set(true, nil)
			results := make(chan error, 1)
			go func() {
				_, err := a.Ask(t.Context(), peer, Question{Obj: "x"})
				results <- err
			}()
			synctest.Wait()
			peer.control[len(peer.control)-1].Written(c.refusal)
			testkit.WantKind(t, <-results, c.want, fmt.Sprint("later: ", c.refusal))
		}
		peer.set(false, nil)
		_, err := a.Ask(t.Context(), peer, Question{Obj: ""})
		testkit.WantKind(t, err, fault.Malformed, "a question without words")
		a.wantCounts(map[string]int{"asked lost": 7})
		a.checkEmpty()

		// The session ends in the moment in which it rejects.
		peer.set(false, func() error { a.Closed(peer); return flow.ErrClosed })
		_, err = a.Ask(t.Context(), peer, Question{Obj: "x"})
		testkit.WantKind(t, err, fault.Transient, "refused and closed")
	})
}

func TestADrainingNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newTestNode(t, func(*Spec) {})
		peer := a.addPeer()
		a.Drain()
		_, err := a.Ask(t.Context(), peer, Question{Obj: "x"})
		testkit.WantKind(t, err, fault.NotReady, "asked")
		a.receiveFind(peer, 5)
		if got := peer.answers()[5]; got == nil || got.Code != oap.NotReady {
			t.Errorf("answered %+v", got)
		}
		a.Message(peer, session.Incoming{Message: &oap.Ping{}}) // of another package
	})
}

// An answer and the end of the caller's context may come at the same moment.
func TestAnAnswerInTheLastMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newTestNode(t, func(*Spec) {})
		peer := a.addPeer()
		for range 100 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			time.AfterFunc(time.Second, func() {
				peer.mu.Lock()
				corr := peer.control[len(peer.control)-1].Corr
				peer.mu.Unlock()
				a.Message(peer, session.Incoming{Flags: oap.Resp, Corr: corr, Message: &oap.Found{}})
			})
			if _, err := a.Ask(ctx, peer, Question{Obj: "x"}); err != nil {
				testkit.WantKind(t, err, fault.Timeout, "too late")
			}
			cancel()
			synctest.Wait()
		}
		a.checkEmpty()
		if n := a.counts["asked answered"] + a.counts["asked left"]; n != 100 || a.counts["stray"] != a.counts["asked left"] {
			t.Errorf("counted %v", a.counts)
		}
	})
}
