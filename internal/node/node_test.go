package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"micronode/fault"
	"micronode/internal/config"
	"micronode/internal/observe"
	"micronode/internal/supervise"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// runningNode is a node that runs, and how to stop it.
type runningNode struct {
	*Node
	ended chan *supervise.Report
	stop  context.CancelFunc
}

// testOptions are the options of a node for a test: on ports of its own, with a
// socket of its own, and with the right to write.
func testOptions(t *testing.T, flags ...config.Flag) Options {
	flags = append([]config.Flag{
		{Key: "http.addr", Value: "127.0.0.1:0", Name: "test"}, {Key: "admin.addr", Value: "127.0.0.1:0", Name: "test"}, {Key: "overlay.addr", Value: "127.0.0.1:0", Name: "test"},
		// No test is about how fast a busy machine answers, or stops; five
		// seconds is the maximum of a drain.
		{Key: "http.deadline", Value: "30s", Name: "test"}, {Key: "node.drain", Value: "5s", Name: "test"},
	}, flags...)
	socket := fmt.Sprintf("micronode-test-%d-%d", os.Getpid(), serial.Add(1))
	return Options{Sources: config.Sources{Flags: flags}, Socket: socket, Log: t.Output(), Unconfined: true}
}

var serial atomic.Int64

func start(t *testing.T, workers int, flags ...config.Flag) *runningNode {
	t.Helper()
	return startWith(t, func(o *Options) {
		o.Sources.Flags = append(o.Sources.Flags, config.Flag{Key: "node.workers", Value: strconv.Itoa(workers), Name: "test"})
		o.Sources.Flags = append(o.Sources.Flags, flags...)
	})
}

func startWith(t *testing.T, change func(*Options)) *runningNode {
	t.Helper()
	options := testOptions(t)
	change(&options)
	n, err := New(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	s := &runningNode{Node: n, ended: make(chan *supervise.Report, 1), stop: stop}
	go func() {
		report, _ := n.Run(ctx)
		s.ended <- report
	}()
	t.Cleanup(stop)
	return s
}

// waitReady waits until /readyz is ready.
func (n *runningNode) waitReady(t *testing.T) {
	t.Helper()
	ctx, found := context.WithCancel(t.Context())
	err := n.readiness.Watch(ctx, func(now observe.Verdict) {
		if now.Whole() {
			found()
		}
	})
	if fault.KindOf(err) != fault.Canceled {
		t.Fatal(err)
	}
}

func (n *runningNode) get(t *testing.T, path string) (status int, body map[string]any) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Get(n.Info().Admin + path)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if err := json.NewDecoder(answer.Body).Decode(&body); err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, body
}

func TestANodeIsReadyAndSaysSo(t *testing.T) {
	n := start(t, 2)
	n.waitReady(t)
	if status, body := n.get(t, "/readyz"); status != http.StatusOK || body["ready"] != true {
		t.Errorf("%d %v", status, body)
	}
	n.stop()
	report := <-n.ended
	if len(report.LeftRunning)+len(report.Aborted) != 0 || len(report.Stages) != 5 {
		t.Errorf("%v", report)
	}
	if first, last := report.Stages[0].Name, report.Stages[4].Name; first != stageIntake || last != stageAdmin {
		t.Errorf("drained from %s to %s", first, last)
	}
}

func TestAShutdownOnTheBusDrains(t *testing.T) {
	n := start(t, 2)
	n.waitReady(t)
	n.PublishEvent(Event{Type: Shutdown, Detail: "by a test"})
	if report := <-n.ended; report.Reason != "asked for on the bus: by a test" {
		t.Errorf("%v", report)
	}
}

// The event is lost among too many others, and the shutdown happens all the
// same. The bus is filled before the node runs, so that its reader is certainly
// behind.
func TestAShutdownIsNotLostInACrowd(t *testing.T) {
	n, err := New(t.Context(), testOptions(t))
	if err != nil {
		t.Fatal(err)
	}
	n.PublishEvent(Event{Type: Shutdown, Detail: "in a crowd"})
	for range 600 {
		n.PublishEvent(Event{Type: ReadyChanged})
	}
	report, err := n.Run(t.Context())
	if err != nil || report.Reason != "asked for on the bus: in a crowd" {
		t.Errorf("%v, %v", report, err)
	}
}

func TestTheAdminAddressInUseSaysWhatToDo(t *testing.T) {
	n := start(t, 2)
	options := testOptions(t)
	options.Sources.Flags[1].Value = strings.TrimPrefix(n.Info().Admin, "http://")
	_, err := New(t.Context(), options)
	if fault.KindOf(err) != fault.Conflict || fault.NextOf(err) == fault.Conflict.Next() {
		t.Errorf("%v; %s", err, fault.NextOf(err))
	}
	n.stop()
	<-n.ended
}

func TestWorkIsDoneAndItsErrorComesBack(t *testing.T) {
	n := start(t, 2)
	n.waitReady(t)
	broken := errors.New("broken")
	if err := n.submit(t.Context(), true, func(context.Context) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	n.stop()
	<-n.ended
	if err := n.submit(t.Context(), true, func(context.Context) error { return nil }); fault.KindOf(err) != fault.Canceled {
		t.Errorf("after the drain: %v", err)
	}
}

// Twice as much as the workers and the queue can hold: the rest is refused at
// once, accepted jobs are completed.
func TestMoreThanTheQueueHoldsIsBusy(t *testing.T) {
	n := start(t, 1)
	n.waitReady(t)
	release, begun := make(chan struct{}), make(chan struct{})
	results := make(chan error, n.work.Cap()+1)
	hold := func(context.Context) error { <-release; return nil }
	go func() {
		results <- n.submit(t.Context(), true, func(ctx context.Context) error { close(begun); return hold(ctx) })
	}()
	<-begun
	for range n.work.Cap() {
		if err := n.work.TryPush(&job{caller: t.Context(), do: hold, done: results}); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.submit(t.Context(), true, hold); !errors.Is(err, fault.Busy) {
		t.Errorf("one too many: %v", err)
	}
	close(release)
	for range n.work.Cap() + 1 {
		if err := <-results; err != nil {
			t.Errorf("accepted, but %v", err)
		}
	}
	n.stop()
	<-n.ended
}

// A worker is killed during a job: an idempotent one is completed all the same,
// another one is abandoned.
func TestAKilledWorkersJob(t *testing.T) {
	for _, idempotent := range []bool{true, false} {
		n := start(t, 1)
		n.waitReady(t)
		var tries atomic.Int32
		err := n.submit(t.Context(), idempotent, func(ctx context.Context) error {
			if tries.Add(1) == 1 {
				if err := n.supervisor.Kill("worker", 0); err != nil {
					return err
				}
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		})
		if idempotent && (err != nil || tries.Load() != 2) {
			t.Errorf("idempotent: %d tries, %v", tries.Load(), err)
		}
		if !idempotent && (err == nil || tries.Load() != 1) {
			t.Errorf("not idempotent: %d tries, %v", tries.Load(), err)
		}
		n.stop()
		<-n.ended
	}
}

func TestACallerWhoLeftDoesNotWait(t *testing.T) {
	n := start(t, 1)
	n.waitReady(t)
	ctx, leave := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	err := n.submit(ctx, true, func(ctx context.Context) error {
		leave()
		<-ctx.Done()
		ran <- ctx.Err()
		return ctx.Err()
	})
	if fault.KindOf(err) != fault.Canceled || <-ran == nil {
		t.Errorf("got %v", err)
	}
	n.stop()
	<-n.ended
}
