package breaker_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"micronode/fault"
	"micronode/internal/breaker"
)

// model is one breaker as the package comment describes it, without running
// counters: it keeps every result and counts when it must.
type model struct {
	spec        breaker.Spec
	state       string
	since       time.Time // when the state, and the first window in it, began
	lastAllowed time.Time // when a call was last allowed
	results     []bool    // of the window, with
	steps       []int     // the step in which each call began
	probes      int       // under way, or with a result
	good        int       // probes that succeeded
	generation  int       // changes with the state: calls that began before do not count
	opened      int
}

func newModel(spec breaker.Spec, now time.Time) *model {
	return &model{spec: spec, state: breaker.Closed, since: now, lastAllowed: now}
}

func (m *model) step(now time.Time) int { return int(now.Sub(m.since) / (m.spec.Window / 6)) }

func (m *model) become(state string, now time.Time) {
	*m = model{spec: m.spec, state: state, since: now, lastAllowed: m.lastAllowed, generation: m.generation + 1, opened: m.opened}
	if state == breaker.Open {
		m.opened++
	}
}

func (m *model) now(now time.Time) string {
	if m.state == breaker.Open && now.Sub(m.since) > m.spec.Cooldown {
		m.become(breaker.HalfOpen, now)
	}
	return m.state
}

func (m *model) allow(now time.Time) bool {
	switch m.now(now) {
	case breaker.Open:
		return false
	case breaker.HalfOpen:
		if m.probes == m.spec.Probes {
			return false
		}
		m.probes++
	}
	m.lastAllowed = now
	return true
}

// end takes a result: "ok", "bad" or "neutral".
func (m *model) end(result string, asked, now time.Time) {
	switch m.now(now) {
	case breaker.HalfOpen:
		switch result {
		case "neutral":
			m.probes--
		case "bad":
			m.become(breaker.Open, now)
		default:
			if m.good++; m.good == m.spec.Probes {
				m.become(breaker.Closed, now)
			}
		}
	case breaker.Closed:
		if result == "neutral" {
			return
		}
		m.results, m.steps = append(m.results, result == "ok"), append(m.steps, m.step(asked))
		all, bad := 0, 0
		for i, good := range m.results {
			if m.steps[i] > m.step(now)-6 {
				all++
				if !good {
					bad++
				}
			}
		}
		if result == "bad" && all >= m.spec.MinResults && float64(bad) > m.spec.Threshold*float64(all) {
			m.become(breaker.Open, now)
		}
	}
}

// step is one thing that happens.
type step struct {
	what string
	key  string
	pick int
	time time.Duration
}

// pendingCall is a call under way.
type pendingCall struct {
	key   string
	asked time.Time
	of    *model
	life  int
	done  func(error)
}

// runSteps plays moves against a table and the models of its targets.
func runSteps(spec breaker.Spec, moves []step) error {
	table, models, openEvents, opened := breaker.New(spec), map[string]*model{}, 0, 0
	table.OnOpen = func(string) { openEvents++ }
	var out []pendingCall
	for i, mv := range moves {
		now := time.Now()
		m := models[mv.key]
		switch mv.what {
		case "allow":
			if m == nil {
				m = newModel(spec, now)
				models[mv.key] = m
			}
			done, err := table.Allow(mv.key)
			if want := m.allow(now); (err == nil) != want {
				return fmt.Errorf("move %d, %+v: %v; allowed in the model: %t", i, mv, err, want)
			}
			if err == nil {
				out = append(out, pendingCall{mv.key, now, m, m.generation, done})
			} else if left := m.spec.Cooldown - now.Sub(m.since); m.state == breaker.Open && left > 0 && fault.RetryAfterOf(err) != left {
				return fmt.Errorf("move %d: come back in %s, want %s", i, fault.RetryAfterOf(err), left)
			}
		case "ok", "bad", "neutral":
			if len(out) == 0 {
				continue
			}
			q := out[mv.pick%len(out)]
			out[mv.pick%len(out)] = out[len(out)-1]
			out = out[:len(out)-1]
			q.done(map[string]error{"ok": nil, "bad": fault.UpstreamFailed, "neutral": context.Canceled}[mv.what])
			before := q.of.opened
			if q.of.now(now); q.life == q.of.generation {
				q.of.end(mv.what, q.asked, now)
			}
			opened += q.of.opened - before
		case "sleep":
			time.Sleep(mv.time)
		case "roll":
			table.Prune(now)
			for key, m := range models {
				kept := spec.Window
				if m.now(now) != breaker.Closed {
					kept = spec.Cooldown + 10*spec.Window
				}
				if now.Sub(m.lastAllowed) > kept {
					delete(models, key)
				}
			}
		}
		want := map[string]int{}
		for key, m := range models {
			state := m.now(time.Now())
			want[state]++
			if got := table.State(key); got != state {
				return fmt.Errorf("move %d, %+v: %s is %s, in the model %s", i, mv, key, got, state)
			}
		}
		for state, n := range table.Counts() {
			if want[state] != n {
				return fmt.Errorf("move %d, %+v: %d are %s, in the model %d", i, mv, n, state, want[state])
			}
		}
		if openEvents != opened {
			return fmt.Errorf("move %d, %+v: told of %d openings, in the model %d", i, mv, openEvents, opened)
		}
	}
	return nil
}

func TestTableAgainstAModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		spec := breaker.Spec{
			Window: 6 * time.Second, Cooldown: time.Duration(rapid.IntRange(1, 8).Draw(rt, "cooldown")) * time.Second,
			Threshold:  rapid.SampledFrom([]float64{0.25, 0.5, 0.75}).Draw(rt, "threshold"),
			MinResults: rapid.IntRange(1, 5).Draw(rt, "least"), Probes: rapid.IntRange(1, 3).Draw(rt, "probes"), MaxTargets: 100,
		}
		one := rapid.Custom(func(rt *rapid.T) step {
			return step{
				what: rapid.SampledFrom([]string{"allow", "allow", "allow", "bad", "bad", "ok", "neutral", "sleep", "roll"}).Draw(rt, "what"),
				key:  rapid.SampledFrom([]string{"a", "a", "b"}).Draw(rt, "key"),
				pick: rapid.IntRange(0, 3).Draw(rt, "pick"),
				time: rapid.SampledFrom([]time.Duration{1, time.Second / 2, time.Second, 2 * time.Second, 5 * time.Second, 9 * time.Second, 70 * time.Second}).Draw(rt, "time"),
			}
		})
		moves := rapid.SliceOfN(one, 1, 120).Draw(rt, "moves")
		var err error
		synctest.Test(t, func(*testing.T) { err = runSteps(spec, moves) })
		if err != nil {
			rt.Fatal(err)
		}
	})
}
