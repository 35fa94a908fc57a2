package hedge_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"micronode/fault"
	"micronode/internal/index/hedge"
	"micronode/internal/index/record"
)

// The rules once more, as formulas instead of as a loop. The time of a reply
// depends only on when its target was first asked, so all its replies can be
// computed; the start of each wave is a minimum and a maximum over those; and
// the winner is found by reading all replies in order of time.
//
// No two events may happen at the same moment, or their order would be
// undefined. So everything is in whole units, and each attempt adds a power of
// two of nanoseconds of its own: the moments of two different chains of events
// never coincide. The budget and the delays end at odd fractions of a unit.

const (
	unit  = time.Second
	never = time.Duration(math.MaxInt64)
	pause = unit / 4
)

// behaviour is what a target does when it is asked.
type behaviour struct {
	what string // "answer", "break", "pass", "silent"
	when time.Duration
	ids  []string
}

// scriptedTarget is the script of one target: what it does each time it is
// asked.
type scriptedTarget struct {
	key  string
	wave hedge.Wave
	open bool // its breaker is open
	acts []behaviour
}

type schedule struct {
	parts    []scriptedTarget
	after    time.Duration
	budget   time.Duration
	quorum   int
	mayHedge bool
}

// drawSchedule makes a schedule from choices between zero and a number.
func drawSchedule(upTo func(n int) int) schedule {
	s := schedule{
		after: time.Duration(upTo(4)) * unit, budget: time.Duration(upTo(12))*unit + unit/2,
		quorum: 1 + upTo(2), mayHedge: upTo(3) > 0,
	}
	attempt := 0
	for _, wave := range []hedge.Wave{hedge.Alpha, hedge.Beta, hedge.Walk} {
		for range upTo(map[hedge.Wave]int{hedge.Alpha: 3, hedge.Beta: 2, hedge.Walk: 1}[wave]) {
			p := scriptedTarget{key: fmt.Sprint(wave, len(s.parts)), wave: wave, open: upTo(5) == 0}
			for range hedge.Tries {
				a := behaviour{what: []string{"answer", "break", "pass", "silent"}[upTo(3)],
					when: time.Duration(upTo(5))*unit + time.Duration(1<<attempt)}
				for range upTo(2) {
					a.ids = append(a.ids, fmt.Sprint("p", upTo(3)))
				}
				p.acts = append(p.acts, a)
				attempt++
			}
			s.parts = append(s.parts, p)
		}
	}
	return s
}

// scriptedReply is a reply of a target.
type scriptedReply struct {
	part    *scriptedTarget
	act     behaviour
	asked   time.Duration
	at      time.Duration
	isRetry bool
	willTry bool
}

// replies is all replies of a target if it is not cancelled.
func (s *schedule) replies(p *scriptedTarget, start time.Duration) (words []scriptedReply) {
	for try, a := range p.acts {
		w := scriptedReply{part: p, act: a, asked: start, at: start + a.when, isRetry: try > 0}
		if a.what == "silent" {
			w.at = never
		}
		w.willTry = a.what == "pass" && try < hedge.Tries-1 && w.at+pause < s.budget
		words = append(words, w)
		if !w.willTry {
			break
		}
		start = w.at + pause
	}
	return words
}

// result is the observable result of a look-up.
type result struct {
	winner                                        hedge.Wave
	kind                                          fault.Kind
	fired, conclusive                             bool
	end                                           time.Duration
	asked, found                                  string
	answered, failed, canceled, retries, refusals int
}

// expect is the model.
func (s *schedule) expect() result {
	start := map[hedge.Wave]time.Duration{}
	words := []scriptedReply{}
	size := map[hedge.Wave]int{}
	// heard is when every target of a wave has replied.
	heard := func(wave hedge.Wave) (last time.Duration) {
		last = start[wave]
		for i := range s.parts {
			if p := &s.parts[i]; p.wave == wave && !p.open {
				size[wave]++
				life := s.replies(p, start[wave])
				words = append(words, life...)
				last = max(last, life[0].at)
			}
		}
		return last
	}

	alphaHeard := heard(hedge.Alpha)
	hedged := alphaHeard > s.after
	betaHeard := never
	switch {
	case hedged && !s.mayHedge:
		betaHeard = s.spare(alphaHeard, start, size, &words)
	default:
		start[hedge.Beta] = min(alphaHeard, s.after)
		if !hedged {
			start[hedge.Beta] = alphaHeard
		}
		betaHeard = heard(hedge.Beta)
	}
	for i := range s.parts {
		if p := &s.parts[i]; p.wave == hedge.Beta && (s.mayHedge || !hedged) {
			start[hedge.Wave(p.key)] = start[hedge.Beta]
		}
	}
	switch {
	case size[hedge.Beta] == 0 && size[hedge.Alpha] == 0:
		start[hedge.Walk] = 0
	case size[hedge.Beta] == 0:
		start[hedge.Walk] = start[hedge.Beta]
	default:
		start[hedge.Walk] = min(start[hedge.Beta]+s.after, max(alphaHeard, betaHeard))
	}
	heard(hedge.Walk)
	return s.evaluate(words, start, hedged)
}

// spare is β without a budget: one target after the other, each when the one
// before it has been silent for long enough, and all that are left once every
// target that was asked has replied. The start of the wave is then that of its
// last target.
func (s *schedule) spare(heard time.Duration, start map[hedge.Wave]time.Duration, size map[hedge.Wave]int, words *[]scriptedReply) (betaHeard time.Duration) {
	next := s.after
	start[hedge.Beta] = next
	for i := range s.parts {
		p := &s.parts[i]
		if p.wave != hedge.Beta {
			continue
		}
		at := min(next, heard)
		start[hedge.Wave(p.key)] = at
		if p.open {
			continue
		}
		size[hedge.Beta]++
		life := s.replies(p, at)
		*words = append(*words, life...)
		start[hedge.Beta], betaHeard = at, max(betaHeard, life[0].at)
		if at < heard { // it is the spare one: the next waits for it
			next, heard = at+s.after, max(heard, life[0].at)
		}
	}
	return betaHeard
}

// evaluate reads all replies until the answer is enough.
func (s *schedule) evaluate(words []scriptedReply, start map[hedge.Wave]time.Duration, hedged bool) result {
	slices.SortFunc(words, func(a, b scriptedReply) int { return cmp.Compare(a.at, b.at) })
	r := result{winner: hedge.None, end: 0}
	found := map[string]bool{}
	won := false
	for _, w := range words {
		if won || w.at > s.budget {
			break
		}
		r.end = w.at
		if w.act.what == "answer" {
			for _, id := range w.act.ids {
				found[id] = true
			}
			if won = len(found) >= s.quorum; won {
				r.winner = w.part.wave
			}
		}
	}
	late := !won && len(words) > 0 && words[len(words)-1].at > s.budget
	if late {
		r.end, r.kind = s.budget, fault.Timeout
	}

	state := map[string]string{}
	for _, w := range words {
		if w.asked >= r.end && !(w.asked == 0 && !won && r.end == 0) {
			continue
		}
		if w.isRetry {
			r.retries++
		}
		switch {
		case w.at > r.end && won:
			state[w.part.key] = "canceled"
		case w.at > r.end || w.act.what != "answer":
			state[w.part.key] = "failed"
		default:
			state[w.part.key] = "answered"
		}
	}
	for _, how := range state {
		switch how {
		case "canceled":
			r.canceled++
		case "failed":
			r.failed++
		default:
			r.answered++
		}
	}
	for _, p := range s.parts {
		began, known := start[hedge.Wave(p.key)]
		if !known {
			began = start[p.wave]
		}
		begun := began < r.end || !won && !late
		if p.open && begun {
			r.refusals++
		}
		if !p.open && begun && hedged && p.wave != hedge.Alpha {
			r.fired = true
		}
	}
	r.asked = strings.Join(slices.Sorted(maps.Keys(state)), " ")
	r.found = strings.Join(slices.Sorted(maps.Keys(found)), " ")
	r.conclusive = len(state) > 0 && r.answered == len(state) && r.refusals == 0
	switch {
	case won || late || r.found != "" || r.conclusive:
	case r.failed > 0:
		r.kind = fault.UpstreamFailed
	case r.refusals > 0:
		r.kind = fault.BreakerOpen
	default:
		r.kind = fault.NoRoute
	}
	return r
}

// runReal runs the implementation.
func (s *schedule) runReal(t *testing.T) (r result, complaints []string) {
	synctest.Test(t, func(t *testing.T) {
		w := newTestWorld(t)
		asked := map[string]bool{}
		var mu sync.Mutex
		tries := map[string]int{}
		p := hedge.Plan{After: s.after, Breakers: w, Enough: atLeast(s.quorum),
			RetryDelay: func() time.Duration { return pause }, MayHedge: func() bool { return s.mayHedge }}
		for _, part := range s.parts {
			w.open[part.key] = part.open
			target := hedge.Target{Key: part.key, Ask: func(ctx context.Context, _ record.Question) (record.Answer, error) {
				mu.Lock()
				a := part.acts[tries[part.key]]
				tries[part.key]++
				asked[part.key] = true
				mu.Unlock()
				when := a.when
				if a.what == "silent" {
					when = never
				}
				if err := wait(ctx, when); err != nil {
					return record.Answer{}, err
				}
				switch a.what {
				case "pass":
					return record.Answer{}, errPasses
				case "break":
					return record.Answer{}, errBroken
				}
				return answerOf(a.ids...), nil
			}}
			switch part.wave {
			case hedge.Alpha:
				p.Alpha = append(p.Alpha, target)
			case hedge.Beta:
				p.Beta = append(p.Beta, target)
			default:
				p.Walk = &target
			}
		}
		ctx, cancel := context.WithTimeout(context.Background(), s.budget)
		defer cancel()
		o, err := hedge.Run(ctx, w, p)
		r = result{winner: o.Winner, kind: fault.KindOf(err), fired: o.Fired, conclusive: o.Conclusive, end: o.Took,
			answered: o.Answered, failed: o.Failed, canceled: o.Canceled, retries: o.Retries, refusals: o.Refused}
		r.found = strings.Join(slices.Sorted(slices.Values(strings.Fields(ids(o.Answer)))), " ")
		w.tasks.Wait()
		r.asked = strings.Join(slices.Sorted(maps.Keys(asked)), " ")
		if time.Since(w.began) != o.Took {
			complaints = append(complaints, "racers outlived the look-up")
		}
		if w.outstanding != 0 {
			complaints = append(complaints, "a breaker got no result")
		}
		for key, words := range w.breakerResults {
			neutral := strings.Count(strings.Join(words, " "), "Canceled")
			if len(words) != tries[key] || neutral > 1 || neutral == 1 && words[len(words)-1] != "Canceled" {
				complaints = append(complaints, fmt.Sprintf("%s was asked %d times, its breaker got %v", key, tries[key], words))
			}
		}
	})
	return r, complaints
}

func (s *schedule) differs(t *testing.T) string {
	got, complaints := s.runReal(t)
	if want := s.expect(); got != want {
		complaints = append(complaints, fmt.Sprintf("\ngot  %+v\nwant %+v\nof   %+v", got, want, *s))
	}
	return strings.Join(complaints, "\n")
}

func TestRulesAgainstAModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := drawSchedule(func(n int) int { return rapid.IntRange(0, n).Draw(rt, "") })
		if complaint := s.differs(t); complaint != "" {
			rt.Fatal(complaint)
		}
	})
}

// FuzzSchedule does the same with choices from bytes, which a fuzzer can steer.
func FuzzSchedule(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{1, 5, 0, 3, 2, 1, 3, 0, 0, 1, 2, 2, 1, 1, 0, 3})
	f.Add([]byte("the quick brown fox jumps over the lazy dog, and then does it once more"))
	f.Fuzz(func(t *testing.T, data []byte) {
		s := drawSchedule(func(n int) int {
			if len(data) == 0 {
				return 0
			}
			choice := int(data[0]) % (n + 1)
			data = data[1:]
			return choice
		})
		if complaint := s.differs(t); complaint != "" {
			t.Fatal(complaint)
		}
	})
}
