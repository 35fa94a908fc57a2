package top

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"charm.land/lipgloss/v2"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"micronode/client"
	"micronode/internal/terminal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var updateViews = flag.Bool("update-views", false, "write the golden views anew")

func readTestdata(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// metricsAt are the metrics of a node after so many requests.
func metricsAt(t *testing.T, requests, dropped int) string {
	return fmt.Sprintf(string(readTestdata(t, "metrics.txt")), requests, 10*requests, dropped)
}

// snapshotAt is a snapshot, so many seconds after noon.
func snapshotAt(t *testing.T, second, requests, dropped int) *snapshot {
	l := &snapshot{at: time.Date(2026, 1, 2, 12, 0, second, 0, time.UTC), metrics: newMetricSums()}
	for name, into := range map[string]any{"status.json": &l.status, "readiness.json": &l.readiness} {
		if err := json.Unmarshal(readTestdata(t, name), into); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.metrics.parse(strings.NewReader(metricsAt(t, requests, dropped))); err != nil {
		t.Fatal(err)
	}
	return l
}

func TestViews(t *testing.T) {
	first, second := snapshotAt(t, 0, 100, 3), snapshotAt(t, 2, 200, 5)
	blind := snapshotAt(t, 4, 0, 0)
	blind.metricsErr, blind.metrics = "a token is missing", newMetricSums()
	other := snapshotAt(t, 4, 50, 0)
	other.status.PeerID = "another"
	idle := snapshotAt(t, 3, 200, 5)
	idle.status.Queues, idle.status.Services = nil, idle.status.Services[:1]
	split := snapshotAt(t, 2, 200, 5)
	split.status.Parts = []client.Part{{Name: "store", Up: true}, {Name: "index", At: "@node.index"}, {Name: "edge", At: "@node.edge", Up: true}, {Name: "mailbox", At: "@node.edge"}}
	delete(split.metrics.scalars, "mailbox_depth")
	split.readiness.Ready = false
	split.readiness.Reasons = nil
	for _, part := range []string{"index", "mailbox", "edge", "overlay", "registry", "feed", "graph"} {
		split.readiness.Reasons = append(split.readiness.Reasons, client.Reason{Dep: "node/" + part, Reason: "it does not answer",
			Next: "Start it with the same settings, in the same folder: micronode run --config node.toml --only " + part})
	}
	again := snapshotAt(t, 4, 50, 0)
	again.metrics.scalars[startTimeMetric] += 3600
	gone := View{At: first.at, LastAnswer: &first.at, Error: "no node is running on the socket @x", Next: "Start a node: micronode run."}
	const colours, plain = true, false
	var all bytes.Buffer
	for _, c := range []struct {
		name          string
		view          View
		colours       bool
		width, height int
	}{
		{"the first look", newView(nil, first), plain, 0, 0},
		{"two looks", newView(first, second), plain, 0, 0},
		{"nothing happens", newView(second, idle), plain, 0, 0},
		{"a small terminal", newView(first, second), plain, 40, 16},
		{"hardly a terminal", newView(first, second), plain, 20, 4},
		{"colours, cut off", newView(first, second), colours, 60, 0},
		{"without figures", newView(second, blind), plain, 0, 0},
		{"another node", newView(second, other), plain, 0, 0},
		{"the node began anew", newView(second, again), plain, 0, 0},
		{"parts are away", newView(first, split), colours, 80, 24},
		{"nobody answers", gone, plain, 80, 24},
		{"nobody answers, in a narrow terminal", gone, plain, 24, 24},
	} {
		lines := c.view.Lines(c.colours, c.width, c.height)
		if c.height > 0 && len(lines) > c.height {
			t.Errorf("%s: %d lines in a terminal of %d", c.name, len(lines), c.height)
		}
		fmt.Fprintf(&all, "== %s\n%s\n", c.name, strings.ReplaceAll(strings.Join(lines, "\n"), "\x1b", "<esc>"))
	}
	golden := filepath.Join("testdata", "views.golden")
	if *updateViews {
		if err := os.WriteFile(golden, all.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil || !bytes.Equal(want, all.Bytes()) {
		t.Errorf("not as in %s (%v):\n%s", golden, err, &all)
	}
}

func TestCountersThatBeginAnew(t *testing.T) {
	view := newView(snapshotAt(t, 0, 1000, 9), snapshotAt(t, 10, 50, 0))
	if first := view.Routes[0]; first.Route != "/o/{b3}" || first.Rate2xx != 50 || first.Rate3xx != 5 {
		t.Errorf("%+v", first)
	}
	if d := (metricsDelta{newMetricSums(), newMetricSums(), 1}); d.quantile("/none", 0.5) != nil {
		t.Error("a time without a request")
	}
}

func TestSamples(t *testing.T) {
	type sample struct {
		name   string
		labels map[string]string
		value  float64
	}
	for line, want := range map[string]sample{
		`a 1`:                    {"a", map[string]string{}, 1},
		`a{} +Inf 1395066363000`: {"a", map[string]string{}, math.Inf(1)},
		`a{b="c",d="e"} 2.5e+3`:  {"a", map[string]string{"b": "c", "d": "e"}, 2500},
		`a{b="}\"\\\n",} 1`:      {"a", map[string]string{"b": "}\"\\\n"}, 1},
	} {
		name, labels, value, ok := parseSample(line)
		if got := (sample{name, labels, value}); !ok || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %t", line, got, ok)
		}
	}
	for _, line := range []string{"", "# a 1", "a", "a x", "a NaN", `a{b="c 1`, `a{b} 1`, `a{b="c\`, " 1", "{"} {
		if _, _, _, ok := parseSample(line); ok {
			t.Errorf("%q was read", line)
		}
	}
	rapid.Check(t, func(t *rapid.T) { parseSample(rapid.String().Draw(t, "line")) })
	if err := newMetricSums().parse(strings.NewReader(strings.Repeat("x", 1<<20))); err == nil {
		t.Error("a line without an end was read")
	}
}

// A line is cut to the width of the terminal, in cells; colours have none, and
// end where the line does.
func TestClips(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text, width := rapid.StringMatching(`[a-zµ…世]{1,20}`).Draw(t, "text"), rapid.IntRange(2, 50).Draw(t, "width")
		view := View{Answers: false, Error: text}
		for _, line := range view.Lines(true, width, 0) {
			if lipgloss.Width(line) > width {
				t.Fatalf("%q is wider than %d", line, width)
			}
			if n := strings.Count(line, "\x1b"); n%2 != 0 || n > 0 && !strings.HasSuffix(line, terminal.ColourReset) {
				t.Fatalf("%q leaves its colour on", line)
			}
		}
	})
}

// A next step is shown in full, and no line is wider than the terminal unless
// a word is.
func TestWraps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		words := rapid.SliceOf(rapid.StringMatching(`[a-zµ…]{1,12}`)).Draw(t, "words")
		width := rapid.IntRange(0, 40).Draw(t, "width")
		lines := wrap("  ", strings.Join(words, " "), width)
		if got := strings.Fields(strings.Join(lines, "\n")); !slices.Equal(got, words) {
			t.Fatalf("%q, not %q", got, words)
		}
		for _, line := range lines {
			if width > 0 && lipgloss.Width(line) > width && strings.Contains(line[2:], " ") || width == 0 && len(lines) > 1 {
				t.Fatalf("%q is too wide for %d", line, width)
			}
		}
	})
}

func TestTimesAndSizes(t *testing.T) {
	for want, seconds := range map[string]float64{"0s": 0.9, "59m59s": 3599, "1h1m": 3660, "2d3h": 51 * 3600} {
		if got := formatUptime(seconds); got != want {
			t.Errorf("%s, not %s", got, want)
		}
	}
	for want, n := range map[string]float64{"0 B": 0, "1.5 KiB": 1536, "256 MiB": 256 << 20, "2048 TiB": 1 << 51} {
		if got := terminal.FormatBytes(n); got != want {
			t.Errorf("%s, not %s", got, want)
		}
	}
}

func TestServicesInTrouble(t *testing.T) {
	list := sortServices([]client.Service{{Name: "a", State: "running"}, {Name: "b", State: "running", Restarts: 1}, {Name: "c", State: "backoff"}, {Name: "d", State: "running", Restarts: 3}})
	var names []string
	for _, one := range list {
		names = append(names, one.Name)
	}
	if got := strings.Join(names, ""); got != "cdba" {
		t.Error(got)
	}
}
