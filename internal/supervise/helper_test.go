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

// diary keeps the events in the order in which they came.
type diary struct {
	mu     sync.Mutex
	events []supervise.Event
}

func (d *diary) note(e supervise.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.events = append(d.events, e)
}

func (d *diary) all() []supervise.Event {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.events)
}

// of returns the events of one name as their types, in one string.
func (d *diary) of(name string) string {
	var types []string
	for _, e := range d.all() {
		if e.Name == name {
			types = append(types, string(e.Type))
		}
	}
	return strings.Join(types, ", ")
}

// only returns the events of one type.
func (d *diary) only(typ supervise.EventType) []supervise.Event {
	return slices.DeleteFunc(d.all(), func(e supervise.Event) bool { return e.Type != typ })
}

func lowest(lo, _ time.Duration) time.Duration  { return lo }
func highest(_, hi time.Duration) time.Duration { return hi }

// world is a supervisor with a diary, run in the background.
type world struct {
	t *testing.T
	diary
	*supervise.Supervisor
	report *supervise.Report
	err    error
	ended  chan struct{}
}

func oneStage() supervise.Options {
	return supervise.Options{Stages: []supervise.Stage{{Name: "all", Drain: time.Second}}, Total: 2 * time.Second, Jitter: lowest}
}

// newWorld makes one; an OnEvent in the options is called after the diary.
func newWorld(t *testing.T, o supervise.Options) *world {
	t.Helper()
	w := &world{t: t, ended: make(chan struct{})}
	also := o.OnEvent
	o.OnEvent = func(e supervise.Event) {
		w.note(e)
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

func (w *world) add(s supervise.Service) {
	w.t.Helper()
	if s.Service == "" {
		s.Service = "node"
	}
	if s.Stage == "" {
		s.Stage = "all"
	}
	if err := w.Add(s); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) addPool(p supervise.Pool) {
	w.t.Helper()
	p.Service.Service, p.Stage = "node", "all"
	if err := w.AddPool(p); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) group(g supervise.GroupSpec) *supervise.Group {
	w.t.Helper()
	if g.Stage == "" {
		g.Stage = "all"
	}
	group, err := w.NewGroup(g)
	if err != nil {
		w.t.Fatal(err)
	}
	return group
}

func (w *world) run(ctx context.Context) {
	go func() {
		defer close(w.ended)
		w.report, w.err = w.Run(ctx)
	}()
}

// finish shuts down and returns the report.
func (w *world) finish() *supervise.Report {
	w.t.Helper()
	w.Shutdown("test over")
	<-w.ended
	if w.err != nil {
		w.t.Errorf("Run: %v", w.err)
	}
	w.balanced()
	return w.report
}

// balanced checks that every task that was spawned and does not run is counted
// once.
func (w *world) balanced() {
	w.t.Helper()
	for _, c := range w.Counts() {
		if sum := c.Completed + c.Canceled + c.Aborted + c.Failed + c.Panicked; sum != c.Spawned {
			w.t.Errorf("counts do not add up: %+v", c)
		}
	}
}

func (w *world) status(name string) supervise.Status {
	w.t.Helper()
	list := w.Status()
	at := slices.IndexFunc(list, func(s supervise.Status) bool { return s.Name == name })
	if at < 0 {
		w.t.Fatalf("no status of %q", name)
	}
	return list[at]
}

func (w *world) count(kind string) supervise.Count {
	w.t.Helper()
	list := w.Counts()
	at := slices.IndexFunc(list, func(c supervise.Count) bool { return c.Kind == kind })
	if at < 0 {
		w.t.Fatalf("no counts of %q", kind)
	}
	return list[at]
}

func (w *world) ending(name string) supervise.Ending {
	w.t.Helper()
	for _, st := range w.report.Stages {
		for _, e := range st.Tasks {
			if e.Name == name {
				return e
			}
		}
	}
	w.t.Fatalf("%q is not in the report", name)
	return supervise.Ending{}
}

// untilDone is a Serve that does as it is told.
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

func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func sameList(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}
