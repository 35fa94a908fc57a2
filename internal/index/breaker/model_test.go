package breaker_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"micronode/fault"
	"micronode/internal/index/breaker"
)

// model is one breaker as the package comment tells it, without counters that
// are kept up to date: it remembers every result and counts when it must.
type model struct {
	spec    breaker.Spec
	state   string
	since   time.Time // when the state, and the first window in it, began
	passed  time.Time // when somebody was last let pass
	results []bool    // of the window, with
	steps   []int     // the step in which each was asked for
	probes  int       // out, or back with a result
	good    int       // probes that succeeded
	life    int       // changes with the state: what was asked for before does not count
	opened  int
}

func newModel(spec breaker.Spec, now time.Time) *model {
	return &model{spec: spec, state: breaker.Closed, since: now, passed: now}
}

func (m *model) step(now time.Time) int { return int(now.Sub(m.since) / (m.spec.Window / 6)) }

func (m *model) become(state string, now time.Time) {
	*m = model{spec: m.spec, state: state, since: now, passed: m.passed, life: m.life + 1, opened: m.opened}
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
	m.passed = now
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
		if result == "bad" && all >= m.spec.Least && float64(bad) > m.spec.Threshold*float64(all) {
			m.become(breaker.Open, now)
		}
	}
}

// move is one thing that happens.
type move struct {
	what string
	key  string
	pick int
	time time.Duration
}

// question is one under way.
type question struct {
	key   string
	asked time.Time
	of    *model
	life  int
	done  func(error)
}

// play plays moves against a table and the models of its targets.
func play(spec breaker.Spec, moves []move) error {
	table, models, told, opened := breaker.New(spec), map[string]*model{}, 0, 0
	table.OnOpen = func() { told++ }
	var out []question
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
				out = append(out, question{mv.key, now, m, m.life, done})
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
			q.done(map[string]error{"ok": nil, "bad": fault.Timeout, "neutral": context.Canceled}[mv.what])
			before := q.of.opened
			if q.of.now(now); q.life == q.of.life {
				q.of.end(mv.what, q.asked, now)
			}
			opened += q.of.opened - before
		case "sleep":
			time.Sleep(mv.time)
		case "roll":
			table.Roll(now)
			for key, m := range models {
				kept := spec.Window
				if m.now(now) != breaker.Closed {
					kept = spec.Cooldown + 10*spec.Window
				}
				if now.Sub(m.passed) > kept {
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
		if told != opened {
			return fmt.Errorf("move %d, %+v: told of %d openings, in the model %d", i, mv, told, opened)
		}
	}
	return nil
}

func TestTableAgainstAModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		spec := breaker.Spec{
			Window: 6 * time.Second, Cooldown: time.Duration(rapid.IntRange(1, 8).Draw(rt, "cooldown")) * time.Second,
			Threshold: rapid.SampledFrom([]float64{0.25, 0.5, 0.75}).Draw(rt, "threshold"),
			Least:     rapid.IntRange(1, 5).Draw(rt, "least"), Probes: rapid.IntRange(1, 3).Draw(rt, "probes"), Max: 100,
		}
		one := rapid.Custom(func(rt *rapid.T) move {
			return move{
				what: rapid.SampledFrom([]string{"allow", "allow", "allow", "bad", "bad", "ok", "neutral", "sleep", "roll"}).Draw(rt, "what"),
				key:  rapid.SampledFrom([]string{"a", "a", "b"}).Draw(rt, "key"),
				pick: rapid.IntRange(0, 3).Draw(rt, "pick"),
				time: rapid.SampledFrom([]time.Duration{1, time.Second / 2, time.Second, 2 * time.Second, 5 * time.Second, 9 * time.Second, 70 * time.Second}).Draw(rt, "time"),
			}
		})
		moves := rapid.SliceOfN(one, 1, 120).Draw(rt, "moves")
		var err error
		synctest.Test(t, func(*testing.T) { err = play(spec, moves) })
		if err != nil {
			rt.Fatal(err)
		}
	})
}
