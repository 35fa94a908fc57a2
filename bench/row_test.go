package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"micronode/bench/testbed"
)

// fakeSide is a side that returns the samples one after the other and records
// each turn.
func fakeSide(name string, turns *[]string, samples ...Sample) Side {
	return Side{name, func(context.Context, *testbed.Testbed) (Measure, error) {
		*turns = append(*turns, "start "+name)
		return func(context.Context) (Sample, error) {
			*turns = append(*turns, name)
			sample := samples[0]
			samples = samples[1:]
			return sample, nil
		}, nil
	}}
}

func values(of ...float64) (samples []Sample) {
	for _, v := range of {
		samples = append(samples, Sample{Value: v})
	}
	return samples
}

// Both sides are started before the first turn, and the turns alternate.
func TestTurnsAlternate(t *testing.T) {
	var turns []string
	row := Row{Name: "row", Rounds: 3, Bar: 2, Ours: fakeSide("ours", &turns, values(10, 40, 20)...), Peer: fakeSide("peer", &turns, values(5, 4, 10)...)}
	result, err := measure(t.Context(), row)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"start ours", "start peer", "ours", "peer", "ours", "peer", "ours", "peer"}
	if !slices.Equal(turns, want) {
		t.Errorf("turns %v, want %v", turns, want)
	}
	if result.Ratio != 4 || result.Low != 2 || result.High != 10 || !result.Held {
		t.Errorf("ratio %v from %v to %v, held %v", result.Ratio, result.Low, result.High, result.Held)
	}
	if result.Load == "" {
		t.Error("the load of the machine is missing")
	}
}

func TestTheBar(t *testing.T) {
	for name, c := range map[string]struct {
		row  Row
		held bool
	}{
		"a rate above":       {Row{Bar: 1.9}, true},
		"a rate below":       {Row{Bar: 2.1}, false},
		"a cost below":       {Row{Bar: 2.1, Lower: true}, true},
		"a cost above":       {Row{Bar: 1.9, Lower: true}, false},
		"for information":    {Row{}, true},
		"information, lower": {Row{Lower: true}, true},
	} {
		var turns []string
		c.row.Rounds, c.row.Ours, c.row.Peer = 1, fakeSide("ours", &turns, values(10)...), fakeSide("peer", &turns, values(5)...)
		result, err := c.row.Run(t.Context(), nil)
		if err != nil || result.Held != c.held {
			t.Errorf("%s: held %v, %v", name, result.Held, err)
		}
	}
}

// Without a peer the bar is for the figure itself.
func TestAFigureAlone(t *testing.T) {
	var turns []string
	for bar, held := range map[float64]bool{300: true, 299: false} {
		row := Row{Name: "alone", Unit: "ms", Lower: true, Bar: bar, Aim: 80, Rounds: 3, Ours: fakeSide("ours", &turns, values(310, 300, 20)...)}
		result, err := row.Run(t.Context(), nil)
		if err != nil || result.Held != held || result.Peer != nil {
			t.Errorf("bar %v: %+v, %v", bar, result, err)
		}
		if says := result.verdict(); !strings.Contains(says, "aim ≤ 80 not reached") || strings.Contains(says, "ratio") {
			t.Errorf("says %q", says)
		}
	}
}

func TestAnAxis(t *testing.T) {
	var turns []string
	ours := map[int]Side{1: fakeSide("ours", &turns, values(100, 200)...), 100: fakeSide("ours", &turns, values(25, 50)...)}
	peer := map[int]Side{1: fakeSide("peer", &turns, values(10, 20)...), 100: fakeSide("peer", &turns, values(10, 20)...)}
	axis := Axis{
		Name: "axis", Unit: "/s", Of: "objects", Sizes: []int{1, 100}, Bar: 0.95, Rounds: 2,
		Ours: func(size int) Side { return ours[size] }, Peer: func(size int) Side { return peer[size] },
	}
	result, err := axis.Run(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(turns[4:], []string{"ours", "peer", "ours", "peer", "ours", "peer", "ours", "peer"}) {
		t.Errorf("turns %v", turns)
	}
	// A quarter at a hundredfold is a half at tenfold; the peer is flat.
	if got := result.Ours.Values; !near(got[0], 0.5) || !near(got[1], 0.5) || !near(result.Ratio, 0.5) || result.Held {
		t.Errorf("slopes %v, ratio %v, held %v", got, result.Ratio, result.Held)
	}
	if len(result.Points) != 2 || result.Points[1].Size != 100 || median(result.Points[1].Peer.Values) != 15 {
		t.Errorf("points %+v", result.Points)
	}
}

// An axis without a peer is judged by its own slope.
func TestAnAxisAlone(t *testing.T) {
	for _, c := range []struct {
		at100 float64
		held  bool
	}{{99, true}, {50, false}} {
		var turns []string
		axis := Axis{Name: "axis", Of: "objects", Sizes: []int{1, 100}, Bar: 0.95, Rounds: 1, Ours: func(size int) Side {
			return fakeSide("ours", &turns, values(map[int]float64{1: 100, 100: c.at100}[size])...)
		}}
		result, err := axis.Run(t.Context(), nil)
		if err != nil || result.Held != c.held || result.Peer != nil {
			t.Errorf("%v at 100: held %v, %v", c.at100, result.Held, err)
		}
	}
}

// Rounds in which one point is an outlier do not tilt the axis.
func TestAnAxisWithLuck(t *testing.T) {
	var turns []string
	sides := map[int]Side{1: fakeSide("ours", &turns, values(100, 100, 160)...), 100: fakeSide("ours", &turns, values(40, 100, 100)...)}
	axis := Axis{Name: "axis", Of: "objects", Sizes: []int{1, 100}, Bar: 0.95, Rounds: 3, Ours: func(size int) Side { return sides[size] }}
	result, err := axis.Run(t.Context(), nil)
	if err != nil || !near(result.Ours.Figure, 1) || !result.Held {
		t.Errorf("slope %v, held %v, %v", result.Ours.Figure, result.Held, err)
	}
}

func near(a, b float64) bool { return a/b > 0.999 && a/b < 1.001 }

func TestFailuresAreNamed(t *testing.T) {
	broken := errors.New("broken")
	var turns []string
	starts := Side{"no start", func(context.Context, *testbed.Testbed) (Measure, error) { return nil, broken }}
	turn := Side{"no turn", func(context.Context, *testbed.Testbed) (Measure, error) {
		return func(context.Context) (Sample, error) { return Sample{}, broken }, nil
	}}
	for _, side := range []Side{starts, turn} {
		works := []Benchmark{
			Row{Name: "a row", Rounds: 1, Ours: fakeSide("ours", &turns, values(1)...), Peer: side},
			Axis{Name: "an axis", Rounds: 1, Sizes: []int{1}, Ours: func(int) Side { return side }},
		}
		for _, work := range works {
			err := run(t.Context(), options{}, []Benchmark{work}, &bytes.Buffer{})
			if !errors.Is(err, broken) || !strings.Contains(err.Error(), work.Title()+": "+side.Name) {
				t.Errorf("said %v", err)
			}
		}
	}
}

// A measurement that ignores the context is followed by no other.
func TestCancelIsHeardBetweenTurns(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var turns []string
	deaf := Side{"deaf", func(context.Context, *testbed.Testbed) (Measure, error) {
		return func(context.Context) (Sample, error) { cancel(); return Sample{}, nil }, nil
	}}
	_, err := Row{Rounds: 3, Ours: deaf, Peer: fakeSide("peer", &turns)}.Run(ctx, nil)
	if !errors.Is(err, context.Canceled) || !slices.Equal(turns, []string{"start peer"}) {
		t.Errorf("%v after turns %v", err, turns)
	}
}

const golden = `object GET
  ours                 31,250 /s   p50 0.50 ms  p99 2.00 ms   server 12.5 µs each
  peer                  5,000 /s   all processes 20.0 µs each
  ratio 6.25 (6.25 to 6.25): held, bar ≥ 5, aim ≥ 8 not reached; others took 0 % of the machine, load 0 0 0

idle memory
  ours                   20.9 MB
  BELOW the bar ≤ 20; others took 25 % of the machine, load 0 0 0

growth
  1 objects              ours                  1.000 /s
  1 objects              peer                  2.000 /s
  100,000 objects        ours                  1.000 /s
  ours                  1.000 × per tenfold objects
  peer                  0.500 × per tenfold objects
  ratio 2.00 (2.00 to 2.00): for information; others took 0 % of the machine, load 0 0 0

`

func TestWhatIsPrinted(t *testing.T) {
	ours := &Series{Name: "ours"}
	ours.add(Sample{Value: 31250, P50: 500 * time.Microsecond, P99: 2 * time.Millisecond, CPU: 12500})
	one := func(name string, v float64) *Series {
		s := &Series{Name: name}
		s.add(Sample{Value: v})
		return s
	}
	peer := &Series{Name: "peer", CPUOf: allProcesses}
	peer.add(Sample{Value: 5000, CPU: 20 * time.Microsecond})
	results := []Result{
		Result{Name: "object GET", Unit: "/s", Bar: 5, Aim: 8, Ours: ours, Peer: peer, Load: "0 0 0"}.withVerdict(),
		Result{Name: "idle memory", Unit: "MB", Lower: true, Bar: 20, Ours: one("ours", 20.94), Others: 0.25, Load: "0 0 0"}.withVerdict(),
		Result{Name: "growth", Unit: "× per tenfold objects", Ours: one("ours", 1), Peer: one("peer", 0.5), Load: "0 0 0", Points: []Point{
			{Size: 1, Of: "objects", Unit: "/s", Ours: one("ours", 1), Peer: one("peer", 2)},
			{Size: 100_000, Of: "objects", Unit: "/s", Ours: one("ours", 1)},
		}}.withVerdict(),
	}
	var out bytes.Buffer
	for _, result := range results {
		result.print(&out)
	}
	if out.String() != golden {
		t.Errorf("printed:\n%s\nwant:\n%s", out.String(), golden)
	}
}

func TestFigures(t *testing.T) {
	for value, want := range map[float64]string{1234567: "1,234,567", 999.94: "999.9", 9.5: "9.500", -4321: "-4,321", 1000: "1,000"} {
		if got := formatFigure(value); got != want {
			t.Errorf("%v is printed %s, want %s", value, got, want)
		}
	}
	if got := formatFigure(median(nil)); got != "none" {
		t.Errorf("nothing is printed %s", got)
	}
}

// -check fails under a bar and names the rows; without it, nothing fails. The
// file is written in both cases.
func TestCheckOutAndOnly(t *testing.T) {
	works := func() []Benchmark {
		var turns []string
		return []Benchmark{
			Row{Name: "good row", Rounds: 1, Bar: 1, Ours: fakeSide("ours", &turns, values(2)...), Peer: fakeSide("peer", &turns, values(1)...)},
			Row{Name: "bad row", Rounds: 1, Bar: 3, Ours: fakeSide("ours", &turns, values(2)...), Peer: fakeSide("peer", &turns, values(1)...)},
		}
	}
	for name, c := range map[string]struct {
		options options
		says    string
		rows    int
	}{
		"plain":       {options{}, "", 2},
		"check":       {options{check: true}, "below the bar: bad row", 2},
		"only good":   {options{check: true, only: "good"}, "", 1},
		"only nobody": {options{only: "ugly"}, `nothing has "ugly" in its name`, 0},
	} {
		t.Run(name, func(t *testing.T) {
			c.options.out = filepath.Join(t.TempDir(), "out.json")
			err := run(t.Context(), c.options, works(), &bytes.Buffer{})
			if says := errorText(err); says != c.says {
				t.Errorf("said %q, want %q", says, c.says)
			}
			var written Run
			text, _ := os.ReadFile(c.options.out)
			_ = json.Unmarshal(text, &written)
			if len(written.Results) != c.rows || c.rows > 0 && written.Machine.Cores == 0 {
				t.Errorf("wrote %s", text)
			}
		})
	}
	if err := run(t.Context(), options{out: "/nowhere/out.json"}, works(), &bytes.Buffer{}); err == nil {
		t.Error("wrote to nowhere")
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// Every row can be asked for by name, and none twice.
func TestNamesAreUnique(t *testing.T) {
	for _, o := range []options{{}, {quick: true}, {long: true}} {
		seen := map[string]bool{}
		for _, work := range benchmarks(o) {
			if work.Title() == "" || seen[work.Title()] {
				t.Errorf("the name %q is empty or taken", work.Title())
			}
			seen[work.Title()] = true
		}
	}
}
