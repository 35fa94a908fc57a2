package hedge_test

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"micronode/fault"
	"micronode/internal/index/hedge"
	"micronode/internal/index/record"
	"micronode/internal/testkit"
)

// merged merges several answers, each of a target of its own.
func merged(t *testing.T, answers ...record.Answer) (merged record.Answer) {
	withWorld(t, func(t *testing.T, w *testWorld) {
		p := w.plan(nil, nil)
		p.Enough = func(record.Answer) bool { return false }
		for i, a := range answers {
			p.Alpha = append(p.Alpha, w.target(fmt.Sprint(i), func(ctx context.Context) (record.Answer, error) {
				return a, wait(ctx, time.Duration(i)*ms)
			}))
		}
		o, err := w.run(p)
		testkit.Equal(t, "error", err, nil)
		merged = o.Answer
	})
	return merged
}

func TestDuplicatesAreMerged(t *testing.T) {
	early, late := time.Unix(1, 0), time.Unix(2, 0)
	addresses := make([]string, 1, 4) // spare capacity that a careless append would overwrite
	addresses[0] = "x:1"
	first := record.Answer{Providers: []record.Provider{{ID: "x", Overlay: addresses, Seen: late}, {ID: "y", Source: record.Cache}}}
	second := record.Answer{Providers: []record.Provider{
		{ID: "x", Overlay: []string{"x:2", "x:1"}, HTTP: []string{"http://x"}, Other: []string{"/x"}, Region: "eu", Seen: early},
		{ID: "y", Seen: early, Region: "us"}, {}, {}}}
	third := record.Answer{Providers: []record.Provider{{ID: "x", Region: "us"}}}

	want := []record.Provider{
		{ID: "x", Overlay: []string{"x:1", "x:2"}, HTTP: []string{"http://x"}, Other: []string{"/x"}, Region: "eu", Seen: late, Source: "of 0"},
		{ID: "y", Region: "us", Seen: early, Source: record.Cache},
		{Source: "of 1"}, {Source: "of 1"},
	}
	if got := merged(t, first, second, third).Providers; !reflect.DeepEqual(got, want) {
		t.Errorf("merged:\n%+v\nwant:\n%+v", got, want)
	}
	if addresses[:2][1] != "" {
		t.Error("a target's own slice was written to")
	}
}

func TestFloodOfProvidersIsBounded(t *testing.T) {
	var flood record.Answer
	for i := range 10_000 {
		flood.Providers = append(flood.Providers, record.Provider{ID: fmt.Sprint(i)})
	}
	for i := range 1000 {
		flood.Providers[0].Overlay = append(flood.Providers[0].Overlay, fmt.Sprint("x:", i))
	}
	got := merged(t, flood, flood)
	testkit.Equal(t, "providers", len(got.Providers), 256)
	testkit.Equal(t, "addresses", len(got.Providers[0].Overlay), 16)
}

func TestNewestNameRecordIsKept(t *testing.T) {
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	name := func(seq uint64) record.Answer {
		n := record.SignName(key, record.Name{Name: "docs", Seq: seq, Issued: time.Unix(1, 0), Expires: time.Unix(2, 0)})
		return record.Answer{Name: &n}
	}
	testkit.Equal(t, "sequence", merged(t, name(2), name(3), record.Answer{}, name(1)).Name.Seq, 3)

	withWorld(t, func(t *testing.T, w *testWorld) { // a name alone is an answer
		o, err := w.run(w.plan(targets{w.target("a", func(context.Context) (record.Answer, error) { return name(1), nil })}, nil))
		testkit.Equal(t, "error", err, nil)
		testkit.Equal(t, "winner", o.Winner, hedge.Alpha)
	})
}

func TestBudgetIsAShareOfLookups(t *testing.T) {
	taken := func(b *hedge.Budget, lookups int) (hedges int) {
		for range lookups {
			b.Earn()
			if b.TryTake() {
				hedges++
			}
		}
		return hedges
	}
	b := hedge.NewBudget(0.2)
	testkit.Equal(t, "a full budget", taken(b, 12), 12) // ten saved, two earned meanwhile
	testkit.Equal(t, "afterwards one in five", taken(b, 1000), 200)
	for range 1000 {
		b.Earn()
	}
	hedges := 0
	for b.TryTake() {
		hedges++
	}
	testkit.Equal(t, "what can be saved", hedges, 10)

	b.Reconfigure(1)
	testkit.Equal(t, "always", taken(b, 100), 100)
	b.Reconfigure(0)
	testkit.Equal(t, "never", taken(b, 100), 0)
	everybody := hedge.NewBudget(1)
	for range 100 {
		testkit.Equal(t, "everybody, at once", everybody.TryTake(), true)
	}
	testkit.Equal(t, "never from the start", taken(hedge.NewBudget(0), 100), 0)
	testkit.Equal(t, "no share below zero", taken(hedge.NewBudget(-1), 100), 0)
	testkit.Equal(t, "a tenth", taken(hedge.NewBudget(0.1), 1000), 10+99) // the first is earned by a full budget
}

func TestBudgetIsSafe(t *testing.T) {
	b := hedge.NewBudget(0.5)
	var mu sync.Mutex
	var all sync.WaitGroup
	hedges := 0
	for range 4 {
		all.Go(func() {
			for range 1000 {
				b.Earn()
				if b.TryTake() {
					mu.Lock()
					hedges++
					mu.Unlock()
				}
			}
		})
	}
	all.Wait()
	if hedges > 2010 {
		t.Errorf("%d hedges of 4000 look-ups at a half", hedges)
	}
}

// answered is an outcome with these response times.
func answered(took ...time.Duration) (o hedge.Outcome) {
	for _, d := range took {
		o.Targets = append(o.Targets, hedge.Report{Wave: hedge.Alpha, Took: d})
	}
	return o
}

func TestDelayIsAboutTheP95(t *testing.T) {
	d := hedge.NewDelay(after, total)
	for i := range 19 {
		d.Learn(answered(time.Duration(i+1)*ms), after)
	}
	testkit.Equal(t, "before there is enough", d.After(), after)
	d.Learn(answered(20*ms), after)
	testkit.Equal(t, "of 1 to 20", d.After(), 19*ms)

	var hundred []time.Duration
	for i := range 256 {
		hundred = append(hundred, time.Duration(i%100+1)*ms)
	}
	slices.Reverse(hundred)
	d.Learn(answered(hundred...), after)
	if got := d.After(); got < 93*ms || got > 97*ms {
		t.Errorf("of 1 to 100: %s", got)
	}
	d.Learn(answered(slices.Repeat([]time.Duration{30 * ms}, 256)...), after)
	testkit.Equal(t, "the old ones are forgotten", d.After(), 30*ms)

	d.Learn(answered(slices.Repeat([]time.Duration{ms}, 256)...), after)
	testkit.Equal(t, "never shorter than", d.After(), 10*ms)
	d.Learn(answered(slices.Repeat([]time.Duration{time.Second}, 256)...), after)
	testkit.Equal(t, "never longer than half the budget", d.After(), total/2)
	d.Reconfigure(after, 400*ms)
	testkit.Equal(t, "with a new budget", d.After(), 200*ms)
	testkit.Equal(t, "an initial delay is clamped too", hedge.NewDelay(time.Hour, total).After(), total/2)
}

func TestWhatADelayLearnsFrom(t *testing.T) {
	report := func(wave hedge.Wave, took time.Duration, err error) hedge.Outcome {
		return hedge.Outcome{Targets: []hedge.Report{{Wave: wave, Took: took, Err: err}}}
	}
	cases := []struct {
		name string
		one  hedge.Outcome
		want time.Duration
	}{
		{"silence that made us hedge", report(hedge.Alpha, 400*ms, fault.Canceled), 400 * ms},
		{"silence until the end", report(hedge.Alpha, 500*ms, fault.Timeout), 500 * ms},
		{"cut off early", report(hedge.Alpha, 20*ms, fault.Canceled), after},
		{"a failure", report(hedge.Alpha, 400*ms, errBroken), after},
		{"a walk", report(hedge.Walk, 400*ms, nil), after},
	}
	for _, c := range cases {
		d := hedge.NewDelay(after, total)
		for range 20 {
			d.Learn(c.one, after)
		}
		testkit.Equal(t, c.name, d.After(), c.want)
	}
}
