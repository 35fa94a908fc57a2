package hedge_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"micronode/fault"
	"micronode/internal/index/hedge"
	"micronode/internal/index/record"
	"micronode/internal/supervise"
	"micronode/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	ms    = time.Millisecond
	after = 150 * ms
	total = 1200 * ms
)

// testWorld is the environment of a look-up: it records which targets were
// asked when, and the results that breakers received. Make it in a bubble of
// synctest.
type testWorld struct {
	t        testing.TB
	began    time.Time
	cancel   context.CancelCauseFunc // of all tasks
	ctx      context.Context
	tasks    sync.WaitGroup
	maxTasks int // concurrent tasks; 0: any number

	mu             sync.Mutex
	running        int
	asked          []string            // "key@time", in order
	breakerResults map[string][]string // results of a breaker: kinds, "ok"
	open           map[string]bool     // keys whose breaker is open
	outstanding    int                 // allowed, and without a result yet
}

func newTestWorld(t testing.TB) *testWorld {
	w := &testWorld{t: t, began: time.Now(), breakerResults: map[string][]string{}, open: map[string]bool{}}
	w.ctx, w.cancel = context.WithCancelCause(context.Background())
	t.Cleanup(func() { w.cancel(nil); w.tasks.Wait() })
	return w
}

// Go makes testWorld a TaskGroup, which catches panics as a group does.
func (w *testWorld) Go(task func(context.Context) error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.maxTasks > 0 && w.running == w.maxTasks {
		return fault.New("test", fault.Busy, "no free racer")
	}
	w.running++
	w.tasks.Go(func() {
		defer func() {
			_ = recover()
			w.mu.Lock()
			w.running--
			w.mu.Unlock()
		}()
		_ = task(w.ctx)
	})
	return nil
}

// Allow makes it a table of breakers.
func (w *testWorld) Allow(key string) (func(error), error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open[key] {
		return nil, &fault.Error{Kind: fault.BreakerOpen, RetryAfter: time.Duration(len(key)) * time.Second}
	}
	w.outstanding++
	return func(err error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		word := "ok"
		if err != nil {
			word = fault.KindOf(err).Code()
		}
		w.outstanding--
		w.breakerResults[key] = append(w.breakerResults[key], word)
	}, nil
}

// target records that it is asked, and then calls ask.
func (w *testWorld) target(key string, ask func(ctx context.Context) (record.Answer, error)) hedge.Target {
	return hedge.Target{Key: key, Source: record.Source("of " + key), Ask: func(ctx context.Context, _ record.Question) (record.Answer, error) {
		w.mu.Lock()
		w.asked = append(w.asked, fmt.Sprintf("%s@%s", key, time.Since(w.began)))
		w.mu.Unlock()
		return ask(ctx)
	}}
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// says answers after a while with the providers of these IDs.
func (w *testWorld) says(key string, d time.Duration, ids ...string) hedge.Target {
	return w.target(key, func(ctx context.Context) (record.Answer, error) {
		return answerOf(ids...), wait(ctx, d)
	})
}

func answerOf(ids ...string) (a record.Answer) {
	for _, id := range ids {
		a.Providers = append(a.Providers, record.Provider{ID: id})
	}
	return a
}

func (w *testWorld) fails(key string, d time.Duration, err error) hedge.Target {
	return w.target(key, func(ctx context.Context) (record.Answer, error) {
		return record.Answer{}, errors.Join(wait(ctx, d), err)
	})
}

// silent is silent until it is cancelled.
func (w *testWorld) silent(key string) hedge.Target {
	return w.target(key, func(ctx context.Context) (record.Answer, error) {
		<-ctx.Done()
		return record.Answer{}, ctx.Err()
	})
}

// plan is a plan with the usual times.
func (w *testWorld) plan(alpha, beta []hedge.Target) hedge.Plan {
	return hedge.Plan{Alpha: alpha, Beta: beta, After: after, Breakers: w, RetryDelay: func() time.Duration { return 60 * ms }}
}

// run runs it under the usual budget.
func (w *testWorld) run(p hedge.Plan) (hedge.Outcome, error) {
	ctx, cancel := context.WithTimeout(context.Background(), total)
	defer cancel()
	o, err := hedge.Run(ctx, w, p)
	if o.Asked != o.Answered+o.Failed+o.Canceled || o.Asked != len(o.Targets) {
		w.t.Errorf("%d were asked, but %d answered, %d failed, %d were called off, and there are %d reports", o.Asked, o.Answered, o.Failed, o.Canceled, len(o.Targets))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.outstanding != 0 {
		w.t.Errorf("%d breakers got no result", w.outstanding)
	}
	return o, err
}

// questions is which targets were asked when, sorted.
func (w *testWorld) questions() string {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(slices.Sorted(slices.Values(w.asked)), " ")
}

// breakers is the results that the breakers received.
func (w *testWorld) breakers() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []string
	for _, key := range slices.Sorted(maps.Keys(w.breakerResults)) {
		all = append(all, key+":"+strings.Join(w.breakerResults[key], ","))
	}
	return strings.Join(all, " ")
}

func ids(a record.Answer) string {
	var all []string
	for _, p := range a.Providers {
		all = append(all, p.ID)
	}
	return strings.Join(all, " ")
}

type targets = []hedge.Target

// withWorld runs a test with a world of its own in fake time.
func withWorld(t *testing.T, test func(t *testing.T, w *testWorld)) {
	synctest.Test(t, func(t *testing.T) { test(t, newTestWorld(t)) })
}

var (
	errBroken  = fault.New("test", fault.UpstreamFailed, "broken")
	errPasses  = fault.New("test", fault.Transient, "passes")
	errNoRoute = fault.New("test", fault.NoRoute, "no way there")
)

func TestAlphaAnswers(t *testing.T) {
	withWorld(t, func(t *testing.T, w *testWorld) {
		o, err := w.run(w.plan(targets{w.says("a", 40*ms, "x"), w.silent("b"), w.says("c", 90*ms, "y")}, targets{w.silent("d")}))
		testkit.Equal(t, "error", err, nil)
		testkit.Equal(t, "found", ids(o.Answer), "x")
		testkit.Equal(t, "winner", o.Winner, hedge.Alpha)
		testkit.Equal(t, "source", o.Source, "of a")
		testkit.Equal(t, "fired", o.Fired, false)
		testkit.Equal(t, "took", o.Took, 40*ms)
		testkit.Equal(t, "called off", o.Canceled, 2)
		testkit.Equal(t, "asked", w.questions(), "a@0s b@0s c@0s")
		testkit.Equal(t, "breakers", w.breakers(), "a:ok b:Canceled c:Canceled")
	})
}

func TestSilentAlphaIsHedged(t *testing.T) {
	withWorld(t, func(t *testing.T, w *testWorld) {
		o, err := w.run(w.plan(targets{w.silent("a"), w.silent("b")}, targets{w.says("c", 30*ms, "x"), w.silent("d")}))
		testkit.Equal(t, "error", err, nil)
		testkit.Equal(t, "winner", o.Winner, hedge.Beta)
		testkit.Equal(t, "source", o.Source, "of c")
		testkit.Equal(t, "fired", o.Fired, true)
		testkit.Equal(t, "took", o.Took, after+30*ms)
		testkit.Equal(t, "asked", w.questions(), "a@0s b@0s c@150ms d@150ms")
		testkit.Equal(t, "breakers", w.breakers(), "a:Canceled b:Canceled c:ok d:Canceled")
		w.tasks.Wait() // they were cancelled: otherwise the bubble would be stuck here
		testkit.Equal(t, "time after the last racer", time.Since(w.began), after+30*ms)
		for _, r := range o.Targets {
			if want := map[string]time.Duration{"a": 180 * ms, "b": 180 * ms, "c": 30 * ms, "d": 30 * ms}[r.Key]; r.Took != want {
				t.Errorf("%s took %s, want %s", r.Key, r.Took, want)
			}
		}
	})
}

// A composite target is asked whatever a breaker of its key says, and reports to
// none: the targets that it stands for have breakers of their own.
func TestCompositeTargetHasNoBreaker(t *testing.T) {
	withWorld(t, func(t *testing.T, w *testWorld) {
		w.open["rest"] = true
		rest := w.says("rest", 10*ms, "x")
		rest.Composite = true
		p := w.plan(targets{w.says("a", 5*ms)}, nil)
		p.Walk = &rest
		o, err := w.run(p)
		testkit.Equal(t, "error", err, nil)
		testkit.Equal(t, "found", ids(o.Answer), "x")
		testkit.Equal(t, "refused", o.Refused, 0)
		testkit.Equal(t, "breakers", w.breakers(), "a:ok")
	})
}

func TestFailedAlphaIsFollowedAtOnce(t *testing.T) {
	for _, err := range []error{errBroken, errPasses} {
		withWorld(t, func(t *testing.T, w *testWorld) {
			o, runErr := w.run(w.plan(targets{w.fails("a", 10*ms, err), w.fails("b", 20*ms, err), w.says("c", 15*ms)}, targets{w.says("d", 5*ms, "x")}))
			testkit.Equal(t, "error", runErr, nil)
			testkit.Equal(t, "winner", o.Winner, hedge.Beta)
			testkit.Equal(t, "fired", o.Fired, false)
			testkit.Equal(t, "took", o.Took, 25*ms)
			testkit.Equal(t, "asked", w.questions(), "a@0s b@0s c@0s d@20ms")
			testkit.Equal(t, "failed", o.Failed, 2)
		})
	}
}

func TestAllSilentIsTimeoutAtTheBudget(t *testing.T) {
	withWorld(t, func(t *testing.T, w *testWorld) {
		p := w.plan(targets{w.silent("a"), w.silent("b")}, targets{w.silent("c")})
		walk := w.silent("walk")
		p.Walk = &walk
		o, err := w.run(p)
		testkit.Equal(t, "kind", fault.KindOf(err), fault.Timeout)
		testkit.Equal(t, "took", o.Took, total)
		testkit.Equal(t, "time", time.Since(w.began), total)
		testkit.Equal(t, "winner", o.Winner, hedge.None)
		testkit.Equal(t, "failed", o.Failed, 4)
		testkit.Equal(t, "conclusive", o.Conclusive, false)
		testkit.Equal(t, "asked", w.questions(), "a@0s b@0s c@150ms walk@300ms")
		testkit.Equal(t, "breakers", w.breakers(), "a:Timeout b:Timeout c:Timeout walk:Timeout")
	})
}

// A target that was asked with hardly any time left is not charged with
// silence.
func TestALateLookUpBlamesNobody(t *testing.T) {
	withWorld(t, func(t *testing.T, w *testWorld) {
		p := w.plan(targets{w.silent("a")}, targets{w.silent("b")})
		p.After, p.MinSilence = 300*ms, total-200*ms
		o, err := w.run(p)
		testkit.Equal(t, "kind", fault.KindOf(err), fault.Timeout)
		testkit.Equal(t, "failed", o.Failed, 2)
		testkit.Equal(t, "breakers", w.breakers(), "a:Timeout b:Canceled")
	})
}

// Others were faster, and a target that had been silent for very long before
// they answered is charged with that; one that may just be slower is not.
func TestLongSilenceCountsAlthoughOthersAnswered(t *testing.T) {
	for answered, want := range map[time.Duration]string{300 * ms: "a:Canceled b:ok", 700 * ms: "a:Canceled b:ok", 760 * ms: "a:Timeout b:ok"} {
		withWorld(t, func(t *testing.T, w *testWorld) {
			p := w.plan(targets{w.silent("a")}, targets{w.says("b", answered-after, "x")})
			p.MinSilence = 750 * ms
			o, err := w.run(p)
			testkit.Equal(t, "error", err, nil)
			testkit.Equal(t, "canceled", o.Canceled, 1)
			testkit.Equal(t, "breakers", w.breakers(), want)
		})
	}
}

func TestWhatWasFoundBeforeTheTimeoutIsThere(t *testing.T) {
	withWorld(t, func(t *testing.T, w *testWorld) {
		p := w.plan(targets{w.says("a", 10*ms, "x"), w.silent("b")}, nil)
		p.Enough = atLeast(2)
		o, err := w.run(p)
		testkit.Equal(t, "kind", fault.KindOf(err), fault.Timeout)
		testkit.Equal(t, "found", ids(o.Answer), "x")
		testkit.Equal(t, "source", o.Source, "of a")
		testkit.Equal(t, "winner", o.Winner, hedge.None)
	})
}

// atLeast is a quorum of providers.
func atLeast(n int) func(record.Answer) bool {
	return func(a record.Answer) bool { return len(a.Providers) >= n }
}

func TestTargetsAreAskedOnce(t *testing.T) {
	withWorld(t, func(t *testing.T, w *testWorld) {
		a, walk := w.fails("a", ms, errBroken), w.says("b", ms, "x")
		p := w.plan(targets{a, w.fails("b", ms, errBroken), a}, targets{a, w.fails("c", ms, errBroken), w.silent("b")})
		p.Walk = &walk
		o, err := w.run(p)
		testkit.Equal(t, "kind", fault.KindOf(err), fault.UpstreamFailed)
		testkit.Equal(t, "asked", w.questions(), "a@0s b@0s c@1ms")
		testkit.Equal(t, "count", o.Asked, 3)
	})
}

func TestUsedUpHedgeBudget(t *testing.T) {
	withWorld(t, func(t *testing.T, w *testWorld) {
		times := 0
		p := w.plan(targets{w.fails("a", 100*ms, errBroken)}, targets{w.says("b", 10*ms, "x")})
		p.MayHedge = func() bool { times++; return false }
		o, err := w.run(p)
		testkit.Equal(t, "error", err, nil)
		testkit.Equal(t, "fired", o.Fired, false)
		testkit.Equal(t, "asked for the budget", times, 0)
		testkit.Equal(t, "asked", w.questions(), "a@0s b@100ms")
	})
	withWorld(t, func(t *testing.T, w *testWorld) {
		p := w.plan(targets{w.fails("a", ms, errBroken)}, targets{w.says("b", 10*ms, "x")})
		p.MayHedge = func() bool { t.Error("failing over is not hedging"); return false }
		_, _ = w.run(p)
	})
}

// Without a budget, silence is answered by one target at a time: β is delayed,
// not forbidden. It used to end the look-up with 504 although β knew the answer.
func TestBetaIsDelayedAndNotForbidden(t *testing.T) {
	withWorld(t, func(t *testing.T, w *testWorld) {
		times := 0
		p := w.plan(targets{w.silent("a")}, targets{w.says("b", 10*ms, "x"), w.says("c", ms, "y")})
		p.MayHedge = func() bool { times++; return false }
		o, err := w.run(p)
		testkit.Equal(t, "error", err, nil)
		testkit.Equal(t, "found", ids(o.Answer), "x")
		testkit.Equal(t, "fired", o.Fired, true)
		testkit.Equal(t, "winner", o.Winner, hedge.Beta)
		testkit.Equal(t, "asked for the budget", times, 1)
		testkit.Equal(t, "asked", w.questions(), "a@0s b@150ms")
	})
	withWorld(t, func(t *testing.T, w *testWorld) {
		w.open["b"] = true // a spare target is one that may be asked
		walk := w.says("walk", 10*ms, "x")
		p := w.plan(targets{w.silent("a")}, targets{w.silent("b"), w.silent("c"), w.silent("d")})
		p.MayHedge, p.Walk = func() bool { return false }, &walk
		o, err := w.run(p)
		testkit.Equal(t, "error", err, nil)
		testkit.Equal(t, "winner", o.Winner, hedge.Walk)
		testkit.Equal(t, "refused", o.Refused, 1)
		testkit.Equal(t, "asked", w.questions(), "a@0s c@150ms d@300ms walk@450ms")
	})
	withWorld(t, func(t *testing.T, w *testWorld) { // once all that were asked have failed, the rest of β need not wait
		p := w.plan(targets{w.fails("a", 200*ms, errBroken)}, targets{w.fails("b", 10*ms, errBroken), w.silent("c"), w.says("d", ms, "x")})
		p.MayHedge = func() bool { return false }
		_, err := w.run(p)
		testkit.Equal(t, "error", err, nil)
		testkit.Equal(t, "asked", w.questions(), "a@0s b@150ms c@200ms d@200ms")
	})
}

func TestWhenTheWalkStarts(t *testing.T) {
	walks := []struct {
		name   string
		asked  string
		denied bool
		fired  bool
		alpha  func(w *testWorld) targets
		beta   func(w *testWorld) targets
	}{
		{name: "β silent too", asked: "a@0s b@150ms walk@300ms", fired: true,
			alpha: func(w *testWorld) targets { return targets{w.silent("a")} }, beta: func(w *testWorld) targets { return targets{w.silent("b")} }},
		{name: "β failed, α silent", asked: "a@0s b@150ms walk@300ms", fired: true,
			alpha: func(w *testWorld) targets { return targets{w.silent("a")} }, beta: func(w *testWorld) targets { return targets{w.fails("b", ms, errBroken)} }},
		{name: "α failed, β silent", asked: "a@0s b@10ms walk@160ms",
			alpha: func(w *testWorld) targets { return targets{w.fails("a", 10*ms, errBroken)} }, beta: func(w *testWorld) targets { return targets{w.silent("b")} }},
		{name: "both failed", asked: "a@0s b@10ms walk@15ms",
			alpha: func(w *testWorld) targets { return targets{w.fails("a", 10*ms, errBroken)} }, beta: func(w *testWorld) targets { return targets{w.fails("b", 5*ms, errBroken)} }},
		{name: "both know nothing", asked: "a@0s b@10ms walk@15ms",
			alpha: func(w *testWorld) targets { return targets{w.says("a", 10*ms)} }, beta: func(w *testWorld) targets { return targets{w.says("b", 5*ms)} }},
		{name: "no β", asked: "a@0s walk@150ms", fired: true,
			alpha: func(w *testWorld) targets { return targets{w.silent("a")} }, beta: func(w *testWorld) targets { return nil }},
		{name: "no β, no budget", asked: "a@0s walk@150ms", denied: true, fired: true,
			alpha: func(w *testWorld) targets { return targets{w.fails("a", 400*ms, errBroken)} }, beta: func(w *testWorld) targets { return nil }},
		{name: "β refused", asked: "a@0s walk@150ms", fired: true,
			alpha: func(w *testWorld) targets { return targets{w.silent("a")} }, beta: func(w *testWorld) targets { return targets{w.silent("open")} }},
		{name: "nobody else", asked: "walk@0s",
			alpha: func(w *testWorld) targets { return nil }, beta: func(w *testWorld) targets { return nil }},
	}
	for _, c := range walks {
		t.Run(c.name, func(t *testing.T) {
			withWorld(t, func(t *testing.T, w *testWorld) {
				w.open["open"] = true
				walk, times := w.says("walk", 20*ms, "x"), 0
				p := w.plan(c.alpha(w), c.beta(w))
				p.Walk = &walk
				p.MayHedge = func() bool { times++; return !c.denied }
				o, err := w.run(p)
				testkit.Equal(t, "error", err, nil)
				testkit.Equal(t, "winner", o.Winner, hedge.Walk)
				testkit.Equal(t, "fired", o.Fired, c.fired)
				testkit.Equal(t, "asked", w.questions(), c.asked)
				if times > 1 {
					t.Errorf("one look-up paid for %d hedges", times)
				}
			})
		})
	}
}

func TestPanicIsTheTargetsOwn(t *testing.T) {
	withWorld(t, func(t *testing.T, w *testWorld) {
		panics := w.target("a", func(context.Context) (record.Answer, error) { panic("boom") })
		o, err := w.run(w.plan(targets{panics}, targets{w.says("b", ms, "x")}))
		testkit.Equal(t, "error", err, nil)
		testkit.Equal(t, "winner", o.Winner, hedge.Beta)
		testkit.Equal(t, "took", o.Took, ms)
		testkit.Equal(t, "breakers", w.breakers(), "a:Internal b:ok")
	})
}

// A target that ignores its context only occupies its own task; and its late
// answer changes nothing. The race detector watches.
func TestDeafTargetAndLateAnswer(t *testing.T) {
	withWorld(t, func(t *testing.T, w *testWorld) {
		deaf := w.target("deaf", func(context.Context) (record.Answer, error) {
			time.Sleep(time.Hour)
			return answerOf("late"), nil
		})
		o, err := w.run(w.plan(targets{deaf}, targets{w.says("b", ms, "x")}))
		testkit.Equal(t, "error", err, nil)
		testkit.Equal(t, "took", o.Took, after+ms)
		w.tasks.Wait()
		testkit.Equal(t, "the racer's time", time.Since(w.began), time.Hour)
		testkit.Equal(t, "found", ids(o.Answer), "x")
		testkit.Equal(t, "answered", o.Answered, 1)
		testkit.Equal(t, "breakers", w.breakers(), "b:ok deaf:Canceled")
	})
	withWorld(t, func(t *testing.T, w *testWorld) {
		deaf := w.target("deaf", func(context.Context) (record.Answer, error) {
			time.Sleep(total + ms)
			return answerOf("late"), nil
		})
		o, err := w.run(w.plan(targets{deaf}, nil))
		testkit.Equal(t, "kind", fault.KindOf(err), fault.Timeout)
		testkit.Equal(t, "took", o.Took, total)
		w.tasks.Wait()
		testkit.Equal(t, "found", ids(o.Answer), "")
		testkit.Equal(t, "breakers", w.breakers(), "deaf:Timeout")
	})
}

func TestQuorumCountsProvidersNotAnswers(t *testing.T) {
	withWorld(t, func(t *testing.T, w *testWorld) {
		p := w.plan(targets{w.says("a", 10*ms, "x"), w.says("b", 20*ms, "x"), w.says("c", 30*ms, "y", "x")}, nil)
		p.Enough = atLeast(2)
		o, err := w.run(p)
		testkit.Equal(t, "error", err, nil)
		testkit.Equal(t, "found", ids(o.Answer), "x y")
		testkit.Equal(t, "took", o.Took, 30*ms)
		testkit.Equal(t, "source", o.Source, "of c")
	})
	withWorld(t, func(t *testing.T, w *testWorld) {
		p := w.plan(targets{w.says("a", 10*ms, "x"), w.says("b", 20*ms, "x")}, nil)
		p.Enough = atLeast(2)
		o, err := w.run(p)
		testkit.Equal(t, "error", err, nil)
		testkit.Equal(t, "found", ids(o.Answer), "x")
		testkit.Equal(t, "winner", o.Winner, hedge.None)
		testkit.Equal(t, "source", o.Source, "of a")
		testkit.Equal(t, "conclusive", o.Conclusive, true)
	})
}

func TestUnusableProvidersAreNotEnough(t *testing.T) {
	withWorld(t, func(t *testing.T, w *testWorld) {
		at := func(key string, d time.Duration, addr ...string) hedge.Target {
			return w.target(key, func(ctx context.Context) (record.Answer, error) {
				return record.Answer{Providers: []record.Provider{{ID: "of " + key, HTTP: addr}}}, wait(ctx, d)
			})
		}
		p := w.plan(targets{at("a", 10*ms), at("b", 20*ms, "http://b"), at("c", 30*ms, "http://c")}, nil)
		p.Enough = func(a record.Answer) bool {
			usable := 0
			for _, p := range a.Providers {
				if len(p.HTTP) > 0 {
					usable++
				}
			}
			return usable >= 2
		}
		o, err := w.run(p)
		testkit.Equal(t, "error", err, nil)
		testkit.Equal(t, "took", o.Took, 30*ms)
		testkit.Equal(t, "found", ids(o.Answer), "of a of b of c")
	})
}

func TestRetries(t *testing.T) {
	cases := []struct {
		name  string
		err   error
		asked string
	}{
		{"transient", errPasses, "a@0s a@130ms a@65ms"},
		{"no route", errNoRoute, "a@0s a@130ms a@65ms"},
		{"broken", errBroken, "a@0s"},
		{"busy", fault.Busy, "a@0s"},
		{"its own time-out", context.DeadlineExceeded, "a@0s"},
		{"no kind", errors.New("odd"), "a@0s"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			withWorld(t, func(t *testing.T, w *testWorld) {
				o, err := w.run(w.plan(targets{w.fails("a", 5*ms, c.err)}, nil))
				testkit.Equal(t, "kind", fault.KindOf(err), fault.UpstreamFailed)
				testkit.Equal(t, "asked", w.questions(), c.asked)
				testkit.Equal(t, "retries", o.Retries, strings.Count(c.asked, "@")-1)
				testkit.Equal(t, "failed", o.Failed, 1)
			})
		})
	}
}

func TestRetryIsSentAfterBetaHasStarted(t *testing.T) {
	withWorld(t, func(t *testing.T, w *testWorld) {
		times := 0
		recovers := w.target("a", func(ctx context.Context) (record.Answer, error) {
			if times++; times == 1 {
				return record.Answer{}, errPasses
			}
			return answerOf("x"), nil
		})
		o, err := w.run(w.plan(targets{recovers}, targets{w.silent("b")}))
		testkit.Equal(t, "error", err, nil)
		testkit.Equal(t, "winner", o.Winner, hedge.Alpha)
		testkit.Equal(t, "asked", w.questions(), "a@0s a@60ms b@0s")
		testkit.Equal(t, "breakers", w.breakers(), "a:Transient,ok b:Canceled")
	})
}

func TestPauseIsJittered(t *testing.T) {
	withWorld(t, func(t *testing.T, w *testWorld) {
		pauses := map[time.Duration]bool{}
		for range 20 {
			var last time.Time
			p := w.plan(targets{w.target("a", func(context.Context) (record.Answer, error) {
				if !last.IsZero() {
					pauses[time.Since(last)] = true
				}
				last = time.Now()
				return record.Answer{}, errPasses
			})}, nil)
			p.RetryDelay = nil
			_, _ = w.run(p)
		}
		for pause := range pauses {
			if pause < 50*ms || pause > 100*ms {
				t.Errorf("a pause of %s", pause)
			}
		}
		if len(pauses) < 30 {
			t.Errorf("60 retries had only %d different pauses", len(pauses))
		}
	})
}

func TestNoRetryWhileTheBreakerIsOpen(t *testing.T) {
	withWorld(t, func(t *testing.T, w *testWorld) {
		trips := w.target("a", func(context.Context) (record.Answer, error) {
			w.mu.Lock()
			w.open["a"] = true
			w.mu.Unlock()
			return record.Answer{}, errPasses
		})
		o, err := w.run(w.plan(targets{trips}, nil))
		testkit.Equal(t, "kind", fault.KindOf(err), fault.UpstreamFailed)
		testkit.Equal(t, "asked", w.questions(), "a@0s")
		testkit.Equal(t, "retries", o.Retries, 0)
		testkit.Equal(t, "refused", o.Refused, 0)
	})
}

func TestNoRetryBeyondTheBudget(t *testing.T) {
	withWorld(t, func(t *testing.T, w *testWorld) {
		o, err := w.run(w.plan(targets{w.fails("a", total-60*ms, errPasses)}, nil))
		testkit.Equal(t, "kind", fault.KindOf(err), fault.UpstreamFailed)
		testkit.Equal(t, "took", o.Took, total-60*ms)
	})
	withWorld(t, func(t *testing.T, w *testWorld) { // it starts within the budget, and ends after it
		o, err := w.run(w.plan(targets{w.fails("a", total-70*ms, errPasses)}, nil))
		testkit.Equal(t, "kind", fault.KindOf(err), fault.Timeout)
		testkit.Equal(t, "took", o.Took, total)
		testkit.Equal(t, "retries", o.Retries, 1)
	})
}

func TestVerdicts(t *testing.T) {
	withWorld(t, func(t *testing.T, w *testWorld) {
		o, err := w.run(w.plan(nil, nil))
		testkit.Equal(t, "nobody to ask", fault.KindOf(err), fault.NoRoute)
		testkit.Equal(t, "winner", o.Winner, hedge.None)
		testkit.Equal(t, "conclusive", o.Conclusive, false)

		w.open["aa"], w.open["b"] = true, true
		o, err = w.run(w.plan(targets{w.silent("aa")}, targets{w.silent("b")}))
		testkit.Equal(t, "all refused", fault.KindOf(err), fault.BreakerOpen)
		testkit.Equal(t, "come back", fault.RetryAfterOf(err), time.Second)
		testkit.Equal(t, "refused", o.Refused, 2)
		testkit.Equal(t, "asked", o.Asked, 0)

		o, err = w.run(w.plan(targets{w.says("c", ms), w.silent("aa")}, targets{w.says("d", ms)}))
		testkit.Equal(t, "one was left out", fault.KindOf(err), fault.BreakerOpen)
		testkit.Equal(t, "come back", fault.RetryAfterOf(err) > 0, true)
		testkit.Equal(t, "conclusive", o.Conclusive, false)
		testkit.Equal(t, "answered", o.Answered, 2)

		o, err = w.run(w.plan(targets{w.says("c", ms)}, targets{w.says("d", ms)}))
		testkit.Equal(t, "nobody has it", err, nil)
		testkit.Equal(t, "conclusive", o.Conclusive, true)
		testkit.Equal(t, "answered", o.Answered, 2)
		testkit.Equal(t, "source", o.Source, "")

		partial := w.plan(targets{w.says("c", ms)}, nil)
		partial.Partial = true
		o, err = w.run(partial)
		testkit.Equal(t, "there are others", fault.KindOf(err), fault.NotReady)
		testkit.Equal(t, "conclusive", o.Conclusive, false)
		_, err = w.run(hedge.Plan{Partial: true})
		testkit.Equal(t, "there are only others", fault.KindOf(err), fault.NotReady)

		o, err = w.run(w.plan(targets{w.says("c", ms), w.fails("e", ms, errBroken)}, targets{w.says("d", ms)}))
		testkit.Equal(t, "one failed", fault.KindOf(err), fault.UpstreamFailed)
		testkit.Equal(t, "conclusive", o.Conclusive, false)

		_, err = w.run(w.plan(targets{w.fails("e", ms, errBroken)}, nil))
		testkit.Equal(t, "all failed", fault.KindOf(err), fault.UpstreamFailed)
		testkit.Equal(t, "cause", errors.Is(err, errBroken), true)
	})
}

func TestNoFreeRacer(t *testing.T) {
	withWorld(t, func(t *testing.T, w *testWorld) {
		w.maxTasks = 1
		o, err := w.run(w.plan(targets{w.says("a", ms), w.says("b", ms, "x")}, nil))
		testkit.Equal(t, "one had none", fault.KindOf(err), fault.Busy)
		testkit.Equal(t, "asked", o.Asked, 1)
		testkit.Equal(t, "refused", o.Refused, 1)
		testkit.Equal(t, "conclusive", o.Conclusive, false)
		testkit.Equal(t, "breakers", w.breakers(), "a:ok b:Canceled")

		release := make(chan struct{})
		_ = w.Go(func(context.Context) error { <-release; return nil })
		_, err = w.run(w.plan(targets{w.says("a", ms, "x")}, targets{w.says("b", ms, "x")}))
		testkit.Equal(t, "kind", fault.KindOf(err), fault.Busy)
		close(release)
	})
}

func TestCallerLeaves(t *testing.T) {
	withWorld(t, func(t *testing.T, w *testWorld) {
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(70*ms, cancel)
		o, err := hedge.Run(ctx, w, w.plan(targets{w.silent("a")}, targets{w.silent("b")}))
		testkit.Equal(t, "kind", fault.KindOf(err), fault.Canceled)
		testkit.Equal(t, "took", o.Took, 70*ms)
		testkit.Equal(t, "called off", o.Canceled, 1)
		testkit.Equal(t, "breakers", w.breakers(), "a:Canceled")

		o, err = hedge.Run(ctx, w, w.plan(targets{w.silent("c")}, nil))
		testkit.Equal(t, "kind", fault.KindOf(err), fault.Canceled)
		testkit.Equal(t, "asked by one who had left", o.Asked, 0)
	})
}

func TestGroupIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var panics []supervise.Event
		sup, err := supervise.New(supervise.Options{DrainTimeout: time.Second,
			Stages:  []supervise.Stage{{Name: "work", DrainTimeout: time.Second}},
			OnEvent: func(e supervise.Event) { panics = append(panics, e) }})
		testkit.Must(t, err)
		group, err := sup.NewGroup(supervise.GroupSpec{Service: "index", Kind: "racer", Stage: "work", Max: 8})
		testkit.Must(t, err)
		w := newTestWorld(t)
		bad := w.target("bad", func(context.Context) (record.Answer, error) { panic("boom") })
		if o, err := hedge.Run(t.Context(), group, w.plan(targets{bad}, targets{w.says("b", ms, "x")})); err != nil || o.Winner != hedge.Beta {
			t.Errorf("with a real group: %+v, %v", o, err)
		}
		synctest.Wait()
		if len(panics) != 1 {
			t.Errorf("the group reported %d panics, want 1", len(panics))
		}

		time.AfterFunc(70*ms, group.Close)
		o, err := hedge.Run(t.Context(), group, w.plan(targets{w.silent("a")}, targets{w.silent("c")}))
		testkit.Equal(t, "kind", fault.KindOf(err), fault.Canceled)
		testkit.Equal(t, "cause", errors.Is(err, supervise.ErrClosed), true)
		testkit.Equal(t, "took", o.Took, 70*ms)
		_, err = hedge.Run(t.Context(), group, w.plan(targets{w.silent("a")}, targets{w.silent("c")}))
		testkit.Equal(t, "kind once it is closed", fault.KindOf(err), fault.Canceled)
		if err := group.Wait(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
