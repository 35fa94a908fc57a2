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
)

// all is an answer with everything in it.
var all = Found{Record: []byte("signed"), Providers: []Provider{
	{ID: "one", Overlay: []string{"192.0.2.1:9500"}, HTTP: []string{"http://192.0.2.1:8080"}, Region: "eu", Age: 90 * time.Second},
	{ID: "two", Overlay: []string{}, HTTP: []string{}},
}}

func TestAQuestionIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newSide(t, func(*Spec) {})
		var asked Question
		b := newSide(t, func(s *Spec) {
			s.Answer = func(_ context.Context, q Question) Found { asked = q; return all }
		})
		peer, _ := connect(a, b)
		got, err := a.Ask(t.Context(), peer, Question{Obj: "name:docs", Most: 20})
		if err != nil || !reflect.DeepEqual(got, all) || asked != (Question{"name:docs", 20}) {
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
		a.counted(map[string]int{"asked answered": 3})
		b.counted(map[string]int{"rx answered": 3})
		a.empty()
		b.empty()
	})
}

func TestANodeThatKnowsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newSide(t, func(*Spec) {}), newSide(t, func(*Spec) {})
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
		a := newSide(t, func(*Spec) {})
		peer := a.lonely()
		for _, wait := range []time.Duration{time.Millisecond, 1200 * time.Millisecond, time.Hour} {
			ctx, cancel := context.WithTimeout(t.Context(), wait)
			began := time.Now()
			_, err := a.Ask(ctx, peer, Question{Obj: "x"})
			cancel()
			kind(t, wait.String(), err, fault.Timeout)
			if took := time.Since(began); took != wait {
				t.Errorf("waited %s instead of %s", took, wait)
			}
		}
		a.counted(map[string]int{"asked left": 3})
		a.empty()
		// The answers come when nobody waits any more.
		for _, out := range peer.told {
			a.Message(peer, session.Incoming{Flags: oap.Resp, Corr: out.Corr, Message: &oap.Found{}})
		}
		a.counted(map[string]int{"asked left": 3, "stray": 3})

		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		_, err := a.Ask(ctx, peer, Question{Obj: "x"})
		kind(t, "the caller leaves", err, fault.Canceled)
		_, err = a.Ask(ctx, peer, Question{Obj: "x"})
		kind(t, "the caller has left", err, fault.Canceled)
		if len(peer.told) != 4 {
			t.Errorf("the peer was asked %d times", len(peer.told))
		}
	})
}

// An answer that nobody asked for, or that comes twice, is counted and changes
// nothing.
func TestStrayAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newSide(t, func(*Spec) {})
		peer, other := a.lonely(), a.lonely()
		results := make(chan error, 1)
		go func() {
			got, err := a.Ask(t.Context(), peer, Question{Obj: "x", Most: 1})
			if len(got.Providers) != 1 || got.Providers[0].ID != "right" {
				err = errors.Join(err, errors.New("it took another answer"))
			}
			results <- err
		}()
		synctest.Wait()
		say := func(f *far, corr uint64, id string) {
			a.Message(f, session.Incoming{Flags: oap.Resp, Corr: corr, Message: &oap.Found{Providers: []oap.Provider{{ID: id}, {ID: "one too many"}}}})
		}
		corr := peer.told[0].Corr
		say(peer, corr+1, "never asked for")
		say(other, corr, "of another peer")
		say(&far{serial: 1 << 40}, corr, "of nobody")
		say(peer, corr, "right")
		say(peer, corr, "twice")
		a.Message(peer, session.Incoming{Flags: oap.Resp, Corr: corr, Message: &oap.Error{Code: oap.Busy}})
		if err := <-results; err != nil {
			t.Error(err)
		}
		a.counted(map[string]int{"asked answered": 1, "stray": 5})
	})
}

func TestSixtyFourAreUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newSide(t, func(*Spec) {})
		peer, other := a.lonely(), a.lonely()
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
		kind(t, "one too many", err, fault.Busy)
		if len(peer.told) != PerPeer {
			t.Errorf("the peer was asked %d times", len(peer.told))
		}
		short, done := context.WithTimeout(ctx, time.Second)
		defer done()
		_, err = a.Ask(short, other, Question{Obj: "x"})
		kind(t, "another peer", err, fault.Timeout)
		a.Message(peer, session.Incoming{Flags: oap.Resp, Corr: peer.told[7].Corr, Message: &oap.Found{}})
		if err := <-results; err != nil {
			t.Error(err)
		}
		go one()
		synctest.Wait()
		if len(peer.told) != PerPeer+1 {
			t.Error("an answer made no room for another question")
		}
		cancel()
		for range PerPeer {
			kind(t, "left", <-results, fault.Canceled)
		}
		a.counted(map[string]int{"asked answered": 1, "asked busy": 1, "asked left": PerPeer + 1})
		a.empty()
	})
}

// What a peer refuses has the kind of its code.
func TestRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newSide(t, func(*Spec) {})
		peer := a.lonely()
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
			corr := peer.told[len(peer.told)-1].Corr
			a.Message(peer, session.Incoming{Flags: oap.Resp, Corr: corr, Message: &oap.Error{Code: code, Msg: "words"}})
			kind(t, string(code), <-results, want)
		}
		a.counted(map[string]int{"asked refused": 6})
	})
}

func TestTheSessionEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newSide(t, func(*Spec) {})
		peer := a.lonely()
		results := make(chan error, 2)
		for range 2 {
			go func() {
				_, err := a.Ask(t.Context(), peer, Question{Obj: "x"})
				results <- err
			}()
		}
		synctest.Wait()
		a.Closed(peer)
		kind(t, "while it waits", <-results, fault.Transient)
		kind(t, "while it waits", <-results, fault.Transient)
		_, err := a.Ask(t.Context(), peer, Question{Obj: "x"})
		kind(t, "afterwards", err, fault.Transient)
		a.asks(peer, 1) // a question that was on its way
		a.counted(map[string]int{"asked lost": 3})
		if len(a.desks) != 0 {
			t.Errorf("%d sessions are remembered", len(a.desks))
		}
	})
}

// A session need not take a question, now or when its turn comes.
func TestAQuestionThatIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newSide(t, func(*Spec) {})
		peer := a.lonely()
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
			kind(t, fmt.Sprint("at once: ", c.refusal), err, c.want)

			peer.set(true, nil)
			results := make(chan error, 1)
			go func() {
				_, err := a.Ask(t.Context(), peer, Question{Obj: "x"})
				results <- err
			}()
			synctest.Wait()
			peer.told[len(peer.told)-1].Written(c.refusal)
			kind(t, fmt.Sprint("later: ", c.refusal), <-results, c.want)
		}
		peer.set(false, nil)
		_, err := a.Ask(t.Context(), peer, Question{Obj: ""})
		kind(t, "a question without words", err, fault.Malformed)
		a.counted(map[string]int{"asked lost": 7})
		a.empty()

		// The session ends in the moment in which it refuses.
		peer.set(false, func() error { a.Closed(peer); return flow.ErrClosed })
		_, err = a.Ask(t.Context(), peer, Question{Obj: "x"})
		kind(t, "refused and closed", err, fault.Transient)
	})
}

func TestADrainingNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newSide(t, func(*Spec) {})
		peer := a.lonely()
		a.Drain()
		_, err := a.Ask(t.Context(), peer, Question{Obj: "x"})
		kind(t, "asked", err, fault.NotReady)
		a.asks(peer, 5)
		if got := peer.answers()[5]; got == nil || got.Code != oap.NotReady {
			t.Errorf("answered %+v", got)
		}
		a.Message(peer, session.Incoming{Message: &oap.Ping{}}) // another room's
	})
}

// An answer and the end of the caller's patience may come at the same moment.
func TestAnAnswerInTheLastMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newSide(t, func(*Spec) {})
		peer := a.lonely()
		for range 100 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			time.AfterFunc(time.Second, func() {
				peer.mu.Lock()
				corr := peer.told[len(peer.told)-1].Corr
				peer.mu.Unlock()
				a.Message(peer, session.Incoming{Flags: oap.Resp, Corr: corr, Message: &oap.Found{}})
			})
			if _, err := a.Ask(ctx, peer, Question{Obj: "x"}); err != nil {
				kind(t, "too late", err, fault.Timeout)
			}
			cancel()
			synctest.Wait()
		}
		a.empty()
		if n := a.counts["asked answered"] + a.counts["asked left"]; n != 100 || a.counts["stray"] != a.counts["asked left"] {
			t.Errorf("counted %v", a.counts)
		}
	})
}
