package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"micronode/client"
	"micronode/fault"
)

var updateViews = flag.Bool("update-views", false, "write the golden views anew")

// figuresAt are those of a node after so many requests.
func figuresAt(requests, dropped int) string {
	return fmt.Sprintf(`# HELP http_requests_total Requests that were answered.
# TYPE http_requests_total counter
http_requests_total{method="POST",route="/put",service="store",status="201"} %[1]d
http_requests_total{method="GET",route="/o/{b3}",service="store",status="200"} %[2]d
http_requests_total{method="HEAD",route="/o/{b3}",service="store",status="304"} %[1]d
http_requests_total{method="GET",route="/o/{b3}",service="store",status="404"} 7
http_requests_total{method="GET",route="/readyz",service="node",status="503"} %[2]d
http_requests_total{method="GET",route="/search",service="search",status="503"} %[1]d
request_latency_seconds_bucket{route="/put",service="store",le="0.001"} 0
request_latency_seconds_bucket{route="/put",service="store",le="0.01"} %[1]d
request_latency_seconds_bucket{route="/put",service="store",le="+Inf"} %[1]d
request_latency_seconds_bucket{route="/o/{b3}",service="store",le="0.001"} %[2]d
request_latency_seconds_bucket{route="/o/{b3}",service="store",le="+Inf"} %[2]d
queue_dropped_total{queue="telemetry",service="node"} %[3]d
queue_dropped_total{queue="bus",service="node"} 0
sessions_active{service="overlay"} 3
session_open_total{service="overlay"} %[1]d
session_close_total{reason="bye",service="overlay"} 0
mailbox_depth{service="mailbox"} 12
mailbox_bytes{service="mailbox"} 2.5e+06
mailbox_dead{service="mailbox"} 1
busy_rejections_total{endpoint="work",service="node"} %[3]d
busy_rejections_total{endpoint="/put",service="store"} 0
rejected_total{reason="work_rate",service="store"} 18
process_start_time_seconds{service="node"} 1.767344523e+09
process_resident_memory_bytes{service="node"} 1.3e+08
process_open_fds{service="node"} 15
process_max_fds{service="node"} 20000
go_goroutines{service="node"} 116
`, requests, 10*requests, dropped)
}

const (
	topStatus = `{"peer_id":"abc","version":"1.0","profile":"micronode","amnesia":true,"ready":true,"write_ready":true,"degraded":true,
	"services":[{"name":"http","state":"running","restarts":0},{"name":"config file","state":"finished","restarts":0},
		{"name":"index worker","state":"running","restarts":2},{"name":"overlay dialer","state":"backoff","restarts":7,"last_error":"no \u001b[2Jroute"}],
	"queues":[{"service":"node","name":"bus","depth":0,"cap":512},{"service":"node","name":"telemetry","depth":10,"cap":256},
		{"service":"node","name":"work","depth":250,"cap":256}],
	"store":{"objects":5,"bytes":134217728,"budget":268435456}}`
	topReadiness = `{"ready":true,"write_ready":true,"degraded":true,"missing":["overlay"],
	"reasons":[{"dep":"node/amnesia","reason":"nothing keeps this process from writing","next":"Set amnesia.enforce to auto."},{"dep":"overlay","reason":"no peer answers","next":"Check the addresses: micronode peers"}]}`
)

// lookAt is a look of a test, so many seconds after noon.
func lookAt(t *testing.T, second, requests, dropped int) *look {
	l := &look{at: time.Date(2026, 1, 2, 12, 0, second, 0, time.UTC), figures: newFigures()}
	for text, into := range map[string]any{topStatus: &l.status, topReadiness: &l.readiness} {
		if err := json.Unmarshal([]byte(text), into); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.figures.read(strings.NewReader(figuresAt(requests, dropped))); err != nil {
		t.Fatal(err)
	}
	return l
}

func TestTopViews(t *testing.T) {
	first, second := lookAt(t, 0, 100, 3), lookAt(t, 2, 200, 5)
	blind := lookAt(t, 4, 0, 0)
	blind.blind, blind.figures = "a token is missing", newFigures()
	other := lookAt(t, 4, 50, 0)
	other.status.PeerID = "another"
	idle := lookAt(t, 3, 200, 5)
	idle.status.Queues, idle.status.Services = nil, idle.status.Services[:1]
	split := lookAt(t, 2, 200, 5)
	split.status.Parts = []client.Part{{Name: "store", Up: true}, {Name: "index", At: "@node.index"}, {Name: "edge", At: "@node.edge", Up: true}, {Name: "mailbox", At: "@node.edge"}}
	delete(split.figures.alone, "mailbox_depth")
	split.readiness.Ready = false
	split.readiness.Reasons = nil
	for _, part := range []string{"index", "mailbox", "edge", "overlay", "registry", "feed", "graph"} {
		split.readiness.Reasons = append(split.readiness.Reasons, client.Reason{Dep: "node/" + part, Reason: "it does not answer",
			Next: "Start it with the same settings, in the same folder: micronode run --config node.toml --only " + part})
	}
	again := lookAt(t, 4, 50, 0)
	again.figures.alone[startFigure] += 3600
	gone := topView{At: first.at, LastAnswer: &first.at, Error: "no node is running on the socket @x", Next: "Start a node: micronode run."}
	colours, plain := &console{colours: true}, &console{}
	var all bytes.Buffer
	for _, c := range []struct {
		name          string
		view          topView
		console       *console
		width, height int
	}{
		{"the first look", compare(nil, first), plain, 0, 0},
		{"two looks", compare(first, second), plain, 0, 0},
		{"nothing happens", compare(second, idle), plain, 0, 0},
		{"a small terminal", compare(first, second), plain, 40, 16},
		{"hardly a terminal", compare(first, second), plain, 20, 4},
		{"colours, cut off", compare(first, second), colours, 60, 0},
		{"without figures", compare(second, blind), plain, 0, 0},
		{"another node", compare(second, other), plain, 0, 0},
		{"the node began anew", compare(second, again), plain, 0, 0},
		{"parts are away", compare(first, split), colours, 80, 24},
		{"nobody answers", gone, plain, 80, 24},
		{"nobody answers, in a narrow terminal", gone, plain, 24, 24},
	} {
		lines := c.view.lines(c.console, c.width, c.height)
		if c.height > 0 && len(lines) > c.height {
			t.Errorf("%s: %d lines in a terminal of %d", c.name, len(lines), c.height)
		}
		fmt.Fprintf(&all, "== %s\n%s\n", c.name, strings.ReplaceAll(strings.Join(lines, "\n"), "\x1b", "<esc>"))
	}
	golden := filepath.Join("testdata", "top_views.golden")
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

func TestTopCountersThatBeginAnew(t *testing.T) {
	view := compare(lookAt(t, 0, 1000, 9), lookAt(t, 10, 50, 0))
	if first := view.Routes[0]; first.Route != "/o/{b3}" || first.OK != 50 || first.Moved != 5 {
		t.Errorf("%+v", first)
	}
	if d := (difference{newFigures(), newFigures(), 1}); d.quantile("/none", 0.5) != nil {
		t.Error("a time without a request")
	}
}

func TestTopSamples(t *testing.T) {
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
	if err := newFigures().read(strings.NewReader(strings.Repeat("x", 1<<20))); err == nil {
		t.Error("a line without an end was read")
	}
}

func TestTopClips(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text, width := rapid.StringMatching(`[a-zµ…]{0,20}`).Draw(t, "text"), rapid.IntRange(1, 25).Draw(t, "width")
		c := &console{colours: true}
		got := clip(c.paint(red, text), width)
		letters := []rune(text)
		want := c.paint(red, string(letters[:min(width, len(letters))]))
		if strings.ReplaceAll(got, "\x1b[0m\x1b[0m", "\x1b[0m") != want {
			t.Fatalf("%q, not %q", got, want)
		}
	})
}

// A next step is told to its last word, and no line is wider than the terminal
// unless a word is.
func TestTopWraps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		words := rapid.SliceOf(rapid.StringMatching(`[a-zµ…]{1,12}`)).Draw(t, "words")
		width := rapid.IntRange(0, 40).Draw(t, "width")
		lines := wrap("  ", strings.Join(words, " "), width)
		if got := strings.Fields(strings.Join(lines, "\n")); !slices.Equal(got, words) {
			t.Fatalf("%q, not %q", got, words)
		}
		for _, line := range lines {
			if width > 0 && utf8.RuneCountInString(line) > width && strings.Contains(line[2:], " ") || width == 0 && len(lines) > 1 {
				t.Fatalf("%q is too wide for %d", line, width)
			}
		}
	})
}

func TestTopTimesAndSizes(t *testing.T) {
	for want, milliseconds := range map[string]float64{"250µs": 0.25, "2.5ms": 2.5, "250ms": 250, "25s": 25_000} {
		if got := timeOf(&milliseconds); got != want {
			t.Errorf("%s, not %s", got, want)
		}
	}
	for want, seconds := range map[string]float64{"0s": 0.9, "59m59s": 3599, "1h1m": 3660, "2d3h": 51 * 3600} {
		if got := spanOf(seconds); got != want {
			t.Errorf("%s, not %s", got, want)
		}
	}
	for want, n := range map[string]float64{"0 B": 0, "1.5 KiB": 1536, "256 MiB": 256 << 20, "2048 TiB": 1 << 51} {
		if got := bytesOf(n); got != want {
			t.Errorf("%s, not %s", got, want)
		}
	}
}

// topNode is a node for top. While away is set it is going away.
func topNode(t *testing.T, away *atomic.Bool) {
	var asked atomic.Int64
	unless := func(answer http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if away.Load() {
				reply(w, 0, fault.New("fake", fault.UpstreamFailed, "it is going away"))
				return
			}
			answer(w, r)
		}
	}
	fakeNode(t, map[string]http.HandlerFunc{
		"GET /admin/status": unless(says(http.StatusOK, topStatus)),
		"GET /readyz":       unless(says(http.StatusServiceUnavailable, topReadiness)),
		"GET /metrics": unless(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, figuresAt(int(100*asked.Add(1)), 0))
		}),
	})
}

func TestTopOnce(t *testing.T) {
	var away atomic.Bool
	topNode(t, &away)
	got := run(t, "top", "--once", "--interval", "10ms")
	for _, want := range []string{"  ready, but degraded  (micronode 1.0, profile micronode, up ", "\n  overlay: no peer answers\n    Check the addresses: micronode peers\n", "\n  /put ", "\n  node.work       250    256"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if strings.Contains(got, "\x1b") {
		t.Errorf("it moves the cursor of a pipe: %q", got)
	}
	var view struct {
		Answers bool
		Seconds float64
		Routes  []routeView
	}
	if err := json.Unmarshal([]byte(run(t, "top", "--once", "--json", "--interval", "10ms")), &view); err != nil || !view.Answers || view.Seconds <= 0 || len(view.Routes) != 4 {
		t.Errorf("%+v, %v", view, err)
	}
	away.Store(true)
	newSession(t).expect(t, t.Context(), fault.UpstreamFailed.Exit(), []string{"top", "--once"}, "it is going away")
	newSession(t).expect(t, t.Context(), fault.Malformed.Exit(), []string{"top", "--interval", "1ms"}, "too short", "10ms or more")
	t.Setenv("MICRO_URL", "ftp://nowhere")
	newSession(t).expect(t, t.Context(), fault.Malformed.Exit(), []string{"top"}, "does not begin with http")
}

func TestTopWithoutTheRightToFigures(t *testing.T) {
	refuse := func(w http.ResponseWriter, _ *http.Request) {
		reply(w, 0, fault.New("fake", fault.Unauthorized, "a token is missing"))
	}
	fakeNode(t, map[string]http.HandlerFunc{"GET /admin/status": says(200, topStatus), "GET /readyz": says(200, topReadiness), "GET /metrics": refuse})
	if got := run(t, "top", "--once", "--interval", "10ms"); !strings.Contains(got, "  no figures: a token is missing") {
		t.Errorf("%s", got)
	}
	fakeNode(t, map[string]http.HandlerFunc{"GET /admin/status": refuse})
	newSession(t).expect(t, t.Context(), fault.Unauthorized.Exit(), []string{"top", "--interval", "10ms"}, "a token is missing")
}

// lineWriter calls someone after each line.
type lineWriter struct {
	bytes.Buffer
	after func(line string)
}

func (l *lineWriter) Write(text []byte) (int, error) {
	l.after(string(text))
	return l.Buffer.Write(text)
}

// A node that goes away is waited for, and the rates begin anew.
func TestTopWaitsForTheNode(t *testing.T) {
	var away atomic.Bool
	topNode(t, &away)
	ctx, stop := context.WithCancel(t.Context())
	var story []string
	s := newSession(t)
	s.out = &lineWriter{after: func(line string) {
		var view struct {
			Answers    bool
			Error      string
			Seconds    float64
			LastAnswer *time.Time `json:"last_answer"`
		}
		if err := json.Unmarshal([]byte(line), &view); err != nil {
			t.Error(err)
		}
		switch {
		case !view.Answers && view.LastAnswer == nil:
			t.Error("when the node last answered is not told")
		case !view.Answers:
			story = append(story, "away: "+strings.TrimSuffix(view.Error, ": HTTP 502, corr_id corr-1234"))
			away.Store(false)
		case view.Seconds == 0:
			story = append(story, "first")
		default:
			story = append(story, "rates")
			away.Store(true)
		}
		if len(story) == 5 {
			stop()
		}
	}}
	s.expect(t, ctx, 0, []string{"top", "--json", "--interval", "10ms"})
	if got := strings.Join(story, ", "); got != "first, rates, away: it is going away, first, rates" {
		t.Error(got)
	}
}

// onTerminal runs a command on a terminal. Each text that it waits for is
// answered with what is typed then.
func onTerminal(t *testing.T, ctx context.Context, args []string, wait string, then func(keyboard io.Writer)) string {
	t.Helper()
	t.Setenv("TERM", "xterm")
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	master, slave, err := openTerminal()
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	before, err := unix.IoctlGetTermios(int(slave.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	shown := make(chan string)
	go func() {
		var all bytes.Buffer
		for buffer, waiting := make([]byte, 4096), true; ; {
			n, err := master.Read(buffer)
			all.Write(buffer[:n])
			if waiting && bytes.Contains(all.Bytes(), []byte(wait)) {
				waiting = false
				then(master)
			}
			if err != nil {
				shown <- all.String()
				return
			}
		}
	}()
	s := newSession(t)
	s.in, s.out, s.inTerminal, s.outTerminal = slave, slave, true, true
	s.expect(t, ctx, 0, args)
	after, err := unix.IoctlGetTermios(int(slave.Fd()), unix.TCGETS)
	if err != nil || *before != *after {
		t.Errorf("the keyboard is not as it was: %+v, %v", after, err)
	}
	slave.Close()
	all := <-shown
	if !strings.Contains(all, wait) {
		t.Errorf("it never showed %q: %q", wait, all)
	}
	if !strings.HasPrefix(all, takeScreen) || !strings.HasSuffix(all, leaveScreen) {
		t.Errorf("the screen was not given back: %q", all)
	}
	return all
}

func TestTopOnATerminal(t *testing.T) {
	var away atomic.Bool
	topNode(t, &away)
	args := []string{"top", "--interval", "10ms"}
	for name, key := range map[string]string{"q": "q", "Ctrl-C": "\x03"} {
		t.Run(name, func(t *testing.T) {
			all := onTerminal(t, t.Context(), args, "/o/{b3}", func(keyboard io.Writer) { fmt.Fprint(keyboard, "x"+key) })
			for _, want := range []string{goHome, "  ready, but degraded  (micronode 1.0, profile micronode, up ", ")" + clearLine + "\r\n", clearBelow} {
				if !strings.Contains(all, want) {
					t.Errorf("no %q in %q", want, all)
				}
			}
			if views := strings.Split(all, goHome); strings.Count(views[1], "\r\n") > 24 || strings.HasSuffix(views[1], "\n"+clearBelow) {
				t.Errorf("it scrolls: %q", views[1])
			}
		})
	}
	t.Run("a signal", func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		onTerminal(t, ctx, args, "/o/{b3}", func(io.Writer) { stop() })
	})
	t.Run("a hang-up", func(t *testing.T) {
		onTerminal(t, t.Context(), args, "/o/{b3}", func(io.Writer) {
			if err := unix.Kill(os.Getpid(), unix.SIGHUP); err != nil {
				t.Error(err)
			}
		})
	})
	t.Run("away", func(t *testing.T) {
		t.Setenv("MICRO_URL", "http://127.0.0.1:1")
		onTerminal(t, t.Context(), args, "the node does not answer; trying again", func(keyboard io.Writer) { fmt.Fprint(keyboard, "q") })
	})
	t.Run("dumb", func(t *testing.T) {
		t.Setenv("TERM", "dumb")
		s := newSession(t)
		s.outTerminal = true
		s.expect(t, t.Context(), 0, []string{"top"})
		if strings.Contains(s.stdout.String(), "\x1b") {
			t.Errorf("%q", &s.stdout)
		}
	})
}

func TestTopServicesInTrouble(t *testing.T) {
	list := troubledFirst([]client.Service{{Name: "a", State: "running"}, {Name: "b", State: "running", Restarts: 1}, {Name: "c", State: "backoff"}, {Name: "d", State: "running", Restarts: 3}})
	var names []string
	for _, one := range list {
		names = append(names, one.Name)
	}
	if got := strings.Join(names, ""); got != "cdba" {
		t.Error(got)
	}
}
