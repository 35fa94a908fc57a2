package top

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"

	"micronode/client"
	"micronode/fault"
)

func key(code rune) tea.KeyPressMsg { return tea.KeyPressMsg{Code: code, Text: string(code)} }

// The model shows the last view in the size of the terminal, and ends with q
// and Ctrl-C alone.
func TestModel(t *testing.T) {
	var m tea.Model = model{width: defaultWidth, height: defaultHeight}
	if m.Init() != nil || m.View().Content != "" || !m.View().AltScreen || m.View().Cursor != nil {
		t.Errorf("%+v", m.View())
	}
	view := newView(snapshotAt(t, 0, 100, 3), snapshotAt(t, 2, 200, 5))
	m, _ = m.Update(view)
	if content := m.View().Content; !strings.HasPrefix(content, "12:00:02  ready, but degraded  (micronode 1.0,") || strings.Count(content, "\n") >= defaultHeight {
		t.Errorf("%q", content)
	}
	if strings.Contains(m.View().Content, "\x1b") {
		t.Error("it has colours, or what the node sent acts on the terminal")
	}
	m, _ = m.Update(assumeSize(nil, tea.WindowSizeMsg{Width: 30, Height: 5}))
	small := strings.Split(m.View().Content, "\n")
	if len(small) > 5 || len([]rune(small[0])) > 30 {
		t.Errorf("%q", small)
	}
	m, _ = m.Update(assumeSize(nil, tea.WindowSizeMsg{}))
	if got := m.(model); got.width != defaultWidth || got.height != defaultHeight {
		t.Errorf("a terminal without a size is %d by %d", got.width, got.height)
	}
	for _, message := range []tea.Msg{key('x'), tea.PasteMsg{Content: "q"}, tea.KeyPressMsg{Code: 'q', Mod: tea.ModAlt}, tea.KeyReleaseMsg{Code: 'q', Text: "q"}} {
		if _, command := m.Update(message); command != nil {
			t.Errorf("%v ends it", message)
		}
	}
	for _, message := range []tea.Msg{key('q'), key('Q'), tea.KeyPressMsg{Code: 'c', Mod: tea.ModCtrl}} {
		_, command := m.Update(message)
		if command == nil {
			t.Errorf("%v does not end it", message)
		} else if _, ends := command().(tea.QuitMsg); !ends {
			t.Errorf("%v does not end it", message)
		}
	}
}

// fakeNode is a node for a watcher. While away is set it answers with errors.
func fakeNode(t *testing.T, away *atomic.Bool) *Watcher {
	t.Helper()
	var scrapes atomic.Int64
	status, readiness := readTestdata(t, "status.json"), readTestdata(t, "readiness.json")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case away.Load():
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(fault.UpstreamFailed.Status())
			fmt.Fprintf(w, `{"code":%q,"detail":"it is going away"}`, fault.UpstreamFailed.Code())
		case r.URL.Path == "/admin/status":
			_, _ = w.Write(status)
		case r.URL.Path == "/readyz":
			_, _ = w.Write(readiness)
		default:
			fmt.Fprint(w, metricsAt(t, int(100*scrapes.Add(1)), 0))
		}
	}))
	node, err := client.New(client.Options{URL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { node.Close(); server.Close() })
	return NewWatcher(node, time.Millisecond)
}

// screenWriter is a screen in memory. It calls shown when a text appears.
type screenWriter struct {
	mu    sync.Mutex
	all   bytes.Buffer
	wait  string
	shown func()
}

func (s *screenWriter) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all.Write(p)
	if s.shown != nil && bytes.Contains(s.all.Bytes(), []byte(s.wait)) {
		s.shown()
		s.shown = nil
	}
	return len(p), nil
}

func (s *screenWriter) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all.String()
}

func TestWatchEndsWithTheKeyboardOrTheContext(t *testing.T) {
	var away atomic.Bool
	w := fakeNode(t, &away)
	for name, typed := range map[string]string{"q": "xq", "Ctrl-C": "\x03", "the context": ""} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			keyboard, keys := io.Pipe()
			defer keys.Close()
			out := &screenWriter{wait: "/o/{b3}", shown: func() {
				if typed == "" {
					cancel()
					return
				}
				go func() { _, _ = io.WriteString(keys, typed) }()
			}}
			restored := false
			if err := w.Watch(ctx, Screen{In: keyboard, Out: out, OnStart: func(restore func()) { restored = restore != nil }}); err != nil || !restored {
				t.Errorf("%v, %t", err, restored)
			}
			all := out.String()
			entered, left := strings.Index(all, "\x1b[?1049h"), strings.LastIndex(all, "\x1b[?1049l")
			if entered < 0 || left < entered || !strings.Contains(all[left:]+all[:left], "\x1b[?25h") {
				t.Errorf("the screen was not given back: %q", all)
			}
		})
	}
}

func TestWatchFails(t *testing.T) {
	var away atomic.Bool
	away.Store(true)
	if err := fakeNode(t, &away).Watch(t.Context(), Screen{Out: &screenWriter{}}); fault.KindOf(err) != fault.UpstreamFailed {
		t.Errorf("%v", err)
	}
	away.Store(false)
	broken := errors.New("the screen is broken")
	if err := fakeNode(t, &away).Watch(t.Context(), Screen{Out: brokenWriter{broken}}); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
}

type brokenWriter struct{ err error }

func (b brokenWriter) Write([]byte) (int, error) { return 0, b.err }

// A bug in the model restores the terminal before it is reported.
func TestWatchRestoresTheTerminalAfterAPanic(t *testing.T) {
	out := &screenWriter{}
	program := tea.NewProgram(panickingModel{}, Screen{Out: out}.options(&recordingOutput{Writer: out})...)
	defer func() {
		if bug := recover(); bug != "boom" {
			t.Errorf("%v", bug)
		}
		if all := out.String(); !strings.Contains(all, "\x1b[?1049h") || !strings.Contains(all, "\x1b[?1049l") {
			t.Logf("%q", all) // it may panic before the first frame is written
			if strings.Contains(all, "\x1b[?1049h") {
				t.Error("the screen was not given back")
			}
		}
	}()
	_ = run(program)
}

type panickingModel struct{ model }

func (panickingModel) Update(tea.Msg) (tea.Model, tea.Cmd) { panic("boom") }

// The watcher goes on while a node does not answer, and the rates start again.
func TestEachWaitsForTheNode(t *testing.T) {
	var away atomic.Bool
	var trace []string
	err := fakeNode(t, &away).Each(t.Context(), func(view View) bool {
		switch {
		case !view.Answers && view.LastAnswer == nil:
			t.Error("when the node last answered is not told")
		case !view.Answers:
			trace = append(trace, "away")
			away.Store(false)
		case view.Seconds == 0:
			trace = append(trace, "first")
		default:
			trace = append(trace, "rates")
			away.Store(true)
		}
		return len(trace) < 5
	})
	if got := strings.Join(trace, ", "); err != nil || got != "first, rates, away, first, rates" {
		t.Errorf("%s, %v", got, err)
	}
}

func TestOnce(t *testing.T) {
	var away atomic.Bool
	w := fakeNode(t, &away)
	if view, err := w.Once(t.Context()); err != nil || view.Seconds <= 0 || len(view.Routes) != 4 {
		t.Errorf("%+v, %v", view, err)
	}
	away.Store(true)
	if _, err := w.Once(t.Context()); fault.KindOf(err) != fault.UpstreamFailed {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.Each(ctx, func(View) bool { return true }); err != nil {
		t.Errorf("%v", err)
	}
}
