package supervise_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"micronode/internal/supervise"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const ms = time.Millisecond

var errBoom = errors.New("boom")

// eventLog keeps the events in the order in which they came.
type eventLog struct {
	mu     sync.Mutex
	events []supervise.Event
}

func (l *eventLog) logEvent(e supervise.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, e)
}

func (l *eventLog) all() []supervise.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.events)
}

// of returns the events of one name as their types, in one string.
func (l *eventLog) of(name string) string {
	var types []string
	for _, e := range l.all() {
		if e.Name == name {
			types = append(types, string(e.Type))
		}
	}
	return strings.Join(types, ", ")
}

// only returns the events of one type.
func (l *eventLog) only(typ supervise.EventType) []supervise.Event {
	return slices.DeleteFunc(l.all(), func(e supervise.Event) bool { return e.Type != typ })
}

func lowest(lo, _ time.Duration) time.Duration  { return lo }
func highest(_, hi time.Duration) time.Duration { return hi }

// harness is a supervisor with an event log, run in the background.
type harness struct {
	t *testing.T
	eventLog
	*supervise.Supervisor
	report *supervise.Report
	err    error
	ended  chan struct{}
}

func oneStage() supervise.Options {
	return supervise.Options{Stages: []supervise.Stage{{Name: "all", DrainTimeout: time.Second}}, DrainTimeout: 2 * time.Second, Jitter: lowest}
}

// newHarness makes one; an OnEvent in the options is called after the log.
func newHarness(t *testing.T, o supervise.Options) *harness {
	t.Helper()
	w := &harness{t: t, ended: make(chan struct{})}
	also := o.OnEvent
	o.OnEvent = func(e supervise.Event) {
		w.logEvent(e)
		if also != nil {
			also(e)
		}
	}
	var err error
	if w.Supervisor, err = supervise.New(o); err != nil {
		t.Fatal(err)
	}
	return w
}

func (h *harness) add(s supervise.Service) {
	h.t.Helper()
	if s.Service == "" {
		s.Service = "node"
	}
	if s.Stage == "" {
		s.Stage = "all"
	}
	if err := h.Add(s); err != nil {
		h.t.Fatal(err)
	}
}

func (h *harness) addPool(p supervise.Pool) {
	h.t.Helper()
	p.Service.Service, p.Stage = "node", "all"
	if err := h.AddPool(p); err != nil {
		h.t.Fatal(err)
	}
}

func (h *harness) group(g supervise.GroupSpec) *supervise.Group {
	h.t.Helper()
	if g.Stage == "" {
		g.Stage = "all"
	}
	group, err := h.NewGroup(g)
	if err != nil {
		h.t.Fatal(err)
	}
	return group
}

func (h *harness) run(ctx context.Context) {
	go func() {
		defer close(h.ended)
		h.report, h.err = h.Run(ctx)
	}()
}

// finish shuts down and returns the report.
func (h *harness) finish() *supervise.Report {
	h.t.Helper()
	h.Shutdown("test over")
	<-h.ended
	if h.err != nil {
		h.t.Errorf("Run: %v", h.err)
	}
	h.checkCounts()
	return h.report
}

// checkCounts checks that every task that was spawned and does not run is counted
// once.
func (h *harness) checkCounts() {
	h.t.Helper()
	for _, c := range h.Counts() {
		if sum := c.Completed + c.Canceled + c.Aborted + c.Failed + c.Panicked; sum != c.Spawned {
			h.t.Errorf("counts do not add up: %+v", c)
		}
	}
}

func (h *harness) status(name string) supervise.Status {
	h.t.Helper()
	list := h.Status()
	at := slices.IndexFunc(list, func(s supervise.Status) bool { return s.Name == name })
	if at < 0 {
		h.t.Fatalf("no status of %q", name)
	}
	return list[at]
}

func (h *harness) count(kind string) supervise.Count {
	h.t.Helper()
	list := h.Counts()
	at := slices.IndexFunc(list, func(c supervise.Count) bool { return c.Kind == kind })
	if at < 0 {
		h.t.Fatalf("no counts of %q", kind)
	}
	return list[at]
}

func (h *harness) taskReport(name string) supervise.TaskReport {
	h.t.Helper()
	for _, st := range h.report.Stages {
		for _, e := range st.Tasks {
			if e.Name == name {
				return e
			}
		}
	}
	h.t.Fatalf("%q is not in the report", name)
	return supervise.TaskReport{}
}

// untilDone is a Serve that returns when its context ends.
func untilDone(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// failing is a Serve that always fails after a while.
func failing(after time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		if !sleep(ctx, after) {
			return ctx.Err()
		}
		return errBoom
	}
}

// sleep returns false if the context ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
