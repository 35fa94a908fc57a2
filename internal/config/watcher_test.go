package config_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"micronode/fault"
	"micronode/internal/config"
	"micronode/internal/flow"
)

// watcherFixture is a watcher whose sources a test writes, and its results.
type watcherFixture struct {
	watcher *config.Watcher[testConfig]
	inv     *flow.Inventory
	results chan config.Result

	mu      sync.Mutex
	environ []string
}

// newWatcherFixture starts a watcher in the bubble of a test. Its Serve ends
// with it.
func newWatcherFixture(t *testing.T) *watcherFixture {
	t.Helper()
	d := &watcherFixture{inv: flow.NewInventory(), results: make(chan config.Result, 100)}
	first := mustLoad(t, config.Sources{})
	d.watcher = config.NewWatcher(d.inv, d.load, first, config.Options{OnResult: func(r config.Result) { d.results <- r }})
	return d
}

// serve runs Serve until the test ends.
func (w *watcherFixture) serve(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.watcher.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
}

func (w *watcherFixture) load() (*config.Loaded[testConfig], error) {
	w.mu.Lock()
	environ := slices.Clone(w.environ)
	w.mu.Unlock()
	return config.Load(defaults(), config.Sources{Environ: environ})
}

// reload gives the watcher other sources and waits for the result.
func (w *watcherFixture) reload(t *testing.T, cause string, environ ...string) config.Result {
	t.Helper()
	w.mu.Lock()
	w.environ = environ
	w.mu.Unlock()
	if err := w.watcher.Trigger(cause); err != nil {
		t.Fatal(err)
	}
	return <-w.results
}

func TestAReloadIsCommittedByEveryone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newWatcherFixture(t)
		var story []string
		for _, name := range []string{"overlay", "edge"} {
			d.watcher.AddParticipant(config.Participant[testConfig]{
				Name: name,
				Verify: func(old, new testConfig) error {
					story = append(story, fmt.Sprintf("%s verifies %s -> %s, %s in force", name, old.HTTP.Idle, new.HTTP.Idle, d.watcher.Current().Value.HTTP.Idle))
					return nil
				},
				Commit: func(new testConfig) {
					story = append(story, fmt.Sprintf("%s commits %s, %s in force", name, new.HTTP.Idle, d.watcher.Current().Value.HTTP.Idle))
				},
			})
		}
		d.watcher.AddParticipant(config.Participant[testConfig]{Name: "has no say"})
		d.serve(t)

		got := d.reload(t, "signal", "MICRO_HTTP__IDLE=5s", "MICRO_AUTH__ROOT=x", "MICRO_EDGE__ALLOW=a")
		want := config.Result{Outcome: config.Applied, Causes: []string{"signal"}, Changed: []string{"http.idle", "edge.allow", "auth.root"}}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
		wantStory := []string{
			"overlay verifies 1m0s -> 5s, 1m0s in force", "edge verifies 1m0s -> 5s, 1m0s in force",
			"overlay commits 5s, 5s in force", "edge commits 5s, 5s in force",
		}
		if !slices.Equal(story, wantStory) {
			t.Errorf("got\n%s", strings.Join(story, "\n"))
		}
		if from := d.watcher.Current().Origin("http.idle").String(); from != "env:MICRO_HTTP__IDLE" {
			t.Errorf("origin %s", from)
		}
	})
}

func TestAnIdenticalConfigurationIsNoChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newWatcherFixture(t)
		d.watcher.AddParticipant(config.Participant[testConfig]{
			Verify: func(_, _ testConfig) error { return errors.New("asked for nothing") },
			Commit: func(testConfig) { t.Error("told of nothing") },
		})
		d.serve(t)
		// The same values from another origin: an empty list is an empty list,
		// and an empty secret is no secret.
		got := d.reload(t, "api", "MICRO_HTTP__IDLE=60s", "MICRO_EDGE__ALLOW=", "MICRO_AUTH__ROOT=")
		if want := (config.Result{Outcome: config.Unchanged, Causes: []string{"api"}}); !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v", got)
		}
		if from := d.watcher.Current().Origin("http.idle").Layer; from != config.LayerEnvironment {
			t.Errorf("the origin is still %s", from)
		}
	})
}

func TestARefusedReloadLeavesEverythingAsItWas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newWatcherFixture(t)
		before := d.watcher.Current()
		commit := func(testConfig) { t.Error("told of a configuration that was refused") }
		d.watcher.AddParticipant(config.Participant[testConfig]{Name: "overlay", Commit: commit})
		d.watcher.AddParticipant(config.Participant[testConfig]{Name: "edge", Commit: commit, Verify: func(_, new testConfig) error {
			return config.Invalid("http.idle", "Allow at least 1s.", "%s is too short for a fill", new.HTTP.Idle)
		}})
		d.watcher.AddParticipant(config.Participant[testConfig]{Name: "index", Commit: commit, Verify: func(_, _ testConfig) error {
			return &fault.Error{Op: "index.verify", Kind: fault.Conflict, Detail: "a look-up is under way", Next: "Wait for it."}
		}})
		d.serve(t)

		got := d.reload(t, "file", "MICRO_HTTP__IDLE=1ms", "MICRO_NODE__WORKERS=8")
		if got.Outcome != config.Rejected || !slices.Equal(got.Changed, []string{"node.workers", "http.idle"}) || got.NeedRestart != nil {
			t.Errorf("got %+v", got)
		}
		const want = `config.reload: 2 problems
  env:MICRO_HTTP__IDLE: http.idle: 1ms is too short for a fill. Allow at least 1s.
  index: a look-up is under way. Wait for it.`
		if got.Err == nil || got.Err.Error() != want || fault.KindOf(got.Err) != fault.Malformed {
			t.Errorf("got %v", got.Err)
		}
		if d.watcher.Current() != before {
			t.Error("another configuration is in force")
		}
	})
}

func TestAWrongConfigurationIsRefusedBeforeAnyoneIsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newWatcherFixture(t)
		before := d.watcher.Current()
		d.watcher.AddParticipant(config.Participant[testConfig]{Verify: func(_, _ testConfig) error { t.Error("asked"); return nil }})
		d.serve(t)
		got := d.reload(t, "file", "MICRO_HTTP__IDEL=1ms")
		if got.Outcome != config.Rejected || !errors.Is(got.Err, fault.Malformed) || d.watcher.Current() != before {
			t.Errorf("got %+v", got)
		}
		if got := d.reload(t, "file"); got.Outcome != config.Unchanged || got.Err != nil {
			t.Errorf("the next one: %+v", got)
		}
	})
}

// A needed restart is reported until there was one, or until the change is
// reverted.
func TestWhatNeedsARestartIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newWatcherFixture(t)
		d.serve(t)
		for _, step := range []struct {
			environ       []string
			changed, need []string
		}{
			{[]string{"MICRO_HTTP__ADDR=:1"}, []string{"http.addr"}, []string{"http.addr"}},
			{[]string{"MICRO_HTTP__ADDR=:1", "MICRO_HTTP__IDLE=1s"}, []string{"http.idle"}, []string{"http.addr"}},
			{[]string{"MICRO_HTTP__ADDR=:1", "MICRO_HTTP__IDLE=1s"}, nil, []string{"http.addr"}},
			{[]string{"MICRO_HTTP__IDLE=1s"}, []string{"http.addr"}, nil},
		} {
			if got := d.reload(t, "signal", step.environ...); !slices.Equal(got.Changed, step.changed) || !slices.Equal(got.NeedRestart, step.need) {
				t.Errorf("%v: got %+v", step.environ, got)
			}
		}
	})
}

// However many triggers come while a reload is under way, one more covers them
// all, and it begins after the last of them.
func TestTriggersCoalesce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inv, results := flow.NewInventory(), make(chan config.Result, 10)
		begun, goOn := make(chan int), make(chan struct{})
		loads := 0
		load := func() (*config.Loaded[testConfig], error) {
			loads++
			begun <- loads
			<-goOn
			return config.Load(defaults(), config.Sources{})
		}
		w := config.NewWatcher(inv, load, mustLoad(t, config.Sources{}), config.Options{OnResult: func(r config.Result) { results <- r }})
		ended := make(chan error, 1)
		go func() { ended <- w.Serve(t.Context()) }()

		trigger(t, w, "signal")
		<-begun
		var triggers sync.WaitGroup
		for range 100 {
			triggers.Go(func() { trigger(t, w, "file") })
		}
		triggers.Wait()
		goOn <- struct{}{}
		if got := <-results; got.Coalesced != 0 || !slices.Equal(got.Causes, []string{"signal"}) {
			t.Errorf("the first: %+v", got)
		}
		<-begun
		goOn <- struct{}{}
		got := <-results
		if got.Coalesced != 31 || !slices.Equal(got.Causes, []string{"file"}) {
			t.Errorf("the second: %+v", got)
		}
		w.Close()
		if err := <-ended; err != nil || loads != 2 {
			t.Errorf("%d loads, %v", loads, err)
		}

		stat := inv.Read()[0]
		if stat.Service != "node" || stat.Name != "cfg_updates" || stat.Cap != 32 || stat.Policy != "coalesce" {
			t.Errorf("the queue is %+v", stat.Entry)
		}
		if stat.Accepted != 101 || stat.Coalesced+uint64(got.Coalesced)+2 != 101 {
			t.Errorf("101 triggers, 2 reloads, but the counts are %+v", stat.Counts)
		}
	})
}

func trigger(t *testing.T, w *config.Watcher[testConfig], cause string) {
	t.Helper()
	if err := w.Trigger(cause); err != nil {
		t.Error(err)
	}
}

func TestServeFinishesWhatWasTriggeredBeforeClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newWatcherFixture(t)
		trigger(t, d.watcher, "signal")
		trigger(t, d.watcher, "file")
		d.watcher.Close()
		if err := d.watcher.Serve(t.Context()); err != nil {
			t.Error(err)
		}
		if got := <-d.results; got.Coalesced != 1 || !slices.Equal(got.Causes, []string{"signal", "file"}) {
			t.Errorf("got %+v", got)
		}
		if err := d.watcher.Trigger("late"); !errors.Is(err, flow.ErrClosed) {
			t.Errorf("a trigger after Close: %v", err)
		}
	})
}

func TestAResultNeedsNoListener(t *testing.T) {
	w := config.NewWatcher(flow.NewInventory(), func() (*config.Loaded[testConfig], error) { return nil, fault.NotFound },
		mustLoad(t, config.Sources{}), config.Options{})
	trigger(t, w, "signal")
	w.Close()
	if err := w.Serve(t.Context()); err != nil {
		t.Error(err)
	}
}

// A participant that panics in Commit ends Serve. When Serve is started again,
// every participant commits what is in force.
func TestAPanicInCommitLeavesNobodyBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newWatcherFixture(t)
		calls := map[string]int{}
		d.watcher.AddParticipant(config.Participant[testConfig]{Name: "first", Commit: func(testConfig) {
			calls["first"]++
			if calls["first"] == 1 {
				panic("at the worst moment")
			}
		}})
		d.watcher.AddParticipant(config.Participant[testConfig]{Name: "second", Commit: func(new testConfig) {
			calls["second"]++
			if new.HTTP.Idle != 5*time.Second {
				t.Errorf("told of %s", new.HTTP.Idle)
			}
		}})
		d.environ = []string{"MICRO_HTTP__IDLE=5s"}
		trigger(t, d.watcher, "signal")
		func() {
			defer func() { _ = recover() }()
			_ = d.watcher.Serve(t.Context())
		}()
		if calls["second"] != 0 || d.watcher.Current().Value.HTTP.Idle != 5*time.Second {
			t.Fatalf("this test does not test what it should: %v", calls)
		}
		d.serve(t)
		if got := d.reload(t, "signal", "MICRO_HTTP__IDLE=5s"); got.Outcome != config.Unchanged {
			t.Errorf("got %+v", got)
		}
		if calls["first"] != 2 || calls["second"] != 1 {
			t.Errorf("told: %v", calls)
		}
	})
}

// Readers never see a mixture of two configurations, and never wait.
func TestReadersDuringReloads(t *testing.T) {
	d := newWatcherFixture(t)
	d.serve(t)
	var stop atomic.Bool
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for !stop.Load() {
				v := d.watcher.Current().Value
				if v.HTTP.MaxConns != 4096 && v.HTTP.MaxConns != int(v.HTTP.Idle/time.Second) {
					t.Errorf("a mixture: %+v", v.HTTP)
					return
				}
			}
		})
	}
	readers.Go(func() {
		for range 50 {
			d.watcher.AddParticipant(config.Participant[testConfig]{Name: "late"})
		}
	})
	for i := range 50 {
		d.reload(t, "signal", fmt.Sprintf("MICRO_HTTP__MAX_CONNS=%d", i), fmt.Sprintf("MICRO_HTTP__IDLE=%ds", i))
	}
	stop.Store(true)
	readers.Wait()
}
