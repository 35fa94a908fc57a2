package node

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/observe"
	"micronode/internal/store"
	"micronode/internal/supervise"
)

// fakeStore is a store that answers or does not.
type fakeStore struct {
	store.Opener
	mu  sync.Mutex
	err error // guarded by mu
}

func (f *fakeStore) Stat(ctx context.Context, _ b3.Address) (store.Info, error) {
	f.mu.Lock()
	err := f.err
	f.mu.Unlock()
	if fault.KindOf(err) == fault.Timeout {
		<-ctx.Done() // it hangs
	}
	return store.Info{}, err
}

// Calls is what an engine on another machine counts.
func (f *fakeStore) Calls() store.Calls { return store.Calls{Retries: 3, Timeouts: 2, Failures: 1} }

// scrape is the metrics as text.
func scrape(metrics *observe.Metrics) string {
	answer := httptest.NewRecorder()
	(&observe.Admin{Metrics: metrics}).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
	return answer.Body.String()
}

// setErr sets its further answers.
func (f *fakeStore) setErr(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

// Readiness follows a store that goes down and comes up again.
func TestAStoreThatDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		supervisor, err := supervise.New(supervise.Options{Stages: []supervise.Stage{{Name: "one"}}, DrainTimeout: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		readiness := observe.NewReadiness(flow.NewInventory(), supervisor)
		remote := &fakeStore{err: fault.New("store.stat", fault.NotFound, "no such object")}
		metrics := observe.NewMetrics(observe.Build{})
		watch := &storeMonitor{store: remote, engine: "the object store at s3.example:9000", now: time.Now,
			dependency: readiness.Dependency("store", "reach", observe.ForReads), instruments: metrics.For("store")}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- watch.Serve(ctx) }()
		for _, step := range []struct {
			err     error
			missing bool
		}{
			{fault.New("store.stat", fault.NotFound, "no such object"), false},
			{fault.New("store.stat", fault.Timeout, "it took too long"), true},
			{nil, false},
		} {
			remote.setErr(step.err)
			time.Sleep(2 * time.Second) // within which both directions are seen
			synctest.Wait()
			missing := false
			for _, dependency := range readiness.Evaluate().Missing {
				missing = missing || dependency == "store/reach"
			}
			if missing != step.missing {
				t.Errorf("after %v: missing %t", step.err, missing)
			}
			if reason := reasonFor(readiness.Evaluate(), "store/reach"); missing && !strings.Contains(reason, "s3.example:9000 has not answered since ") {
				t.Errorf("the reason is %q", reason)
			}
		}
		if text := scrape(metrics); !strings.Contains(text, `backoff_retries_total{op="engine",service="store"} 3`) || !strings.Contains(text, `io_timeouts_total{op="engine",service="store"} 2`) {
			t.Error("the calls to the store are not in the metrics")
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
