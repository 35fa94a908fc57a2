package ingress

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"micronode/fault"
)

func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		f := newFixture(t, []Route{control("GET", "/x", respondWith("x")), transfer("GET", "/long", func(w http.ResponseWriter, r *http.Request) error {
			io.WriteString(w, "begin ")
			http.NewResponseController(w).Flush()
			<-hold
			_, err := io.WriteString(w, "end")
			return err
		})}).listen()
		idle, fresh, running, half := f.dial(), f.dial(), f.dial(), f.dial()
		idle.get("/x")
		running.send("GET /long HTTP/1.1\r\nHost: localhost\r\n\r\n")
		half.send("GET /x HTTP/1.1\r\nHost: localhost\r\n") // its request is on the way
		synctest.Wait()

		drained := make(chan error, 1)
		from := time.Now()
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
			defer cancel()
			drained <- f.listener.Drain(ctx)
		}()
		synctest.Wait()
		if !idle.closed() || !fresh.closed() || time.Since(from) != 0 {
			t.Errorf("idle connections must be closed at once, not after %s", time.Since(from))
		}
		if _, err := f.mem.connect("10.0.0.1:1"); err == nil {
			t.Error("a connection was accepted during the drain")
		}
		half.send("\r\n")
		r := half.receive()
		r.wantRefusal(t, 503, "Canceled")
		if r.Header.Get("Retry-After") == "" || !r.Close || !half.closed() {
			t.Errorf("a refusal by a drain says when to come back, and closes: %v", r.Header)
		}
		select {
		case err := <-drained:
			t.Fatalf("the drain did not wait for what runs: %v", err)
		default:
		}
		close(hold)
		if r := running.receive(); r.body != "begin end" {
			t.Errorf("what runs may finish: %q", r.body)
		}
		if err := <-drained; err != nil {
			t.Error(err)
		}
		f.wantMetric(1, "rejected_total", "reason", "draining")
		if err := f.listener.Drain(context.Background()); err != nil {
			t.Errorf("draining twice: %v", err)
		}
	})
}

func TestADrainEndsAtItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan error, 1)
		f := newFixture(t, []Route{transfer("GET", "/stuck", func(w http.ResponseWriter, r *http.Request) error {
			io.WriteString(w, "x")
			http.NewResponseController(w).Flush()
			<-r.Context().Done()
			ended <- r.Context().Err()
			return nil
		})}).listen()
		c := f.dial()
		c.send("GET /stuck HTTP/1.1\r\nHost: localhost\r\n\r\n")
		synctest.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		from := time.Now()
		err := f.listener.Drain(ctx)
		if took := time.Since(from); took != 2*time.Second || fault.KindOf(err) != fault.Timeout || !strings.Contains(err.Error(), "1 connections") {
			t.Errorf("after %s: %v", took, err)
		}
		if _, err := c.tryReceive("GET"); err == nil {
			t.Error("what is cut must not look whole")
		}
		<-ended // the handler was cancelled
	})
}

// A client that does not read must not hold a drain for longer than its
// deadline, also in the lane.
func TestADrainCutsTheLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newWarmFixture(t).listen()
		c := f.dial()
		c.get("/w/cold")
		c.send("GET /w/large HTTP/1.1\r\nHost: localhost\r\n\r\n")
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		from := time.Now()
		if err := f.listener.Drain(ctx); fault.KindOf(err) != fault.Timeout || time.Since(from) != time.Second {
			t.Errorf("after %s: %v", time.Since(from), err)
		}
		if got, _ := io.ReadAll(c); len(got) >= len(largeBody) {
			t.Error("it was not cut")
		}
	})
}

// A drain that begins while a warm connection waits must end it, whatever the
// order of events.
func TestDrainOfWarmConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newWarmFixture(t).listen()
		waiting, fresh, back := f.dial(), f.dial(), f.dial()
		if r := waiting.get("/w/small"); r.StatusCode != 200 || f.requests(t) != 0 {
			t.Fatalf("%d, %d through the chain", r.StatusCode, f.requests(t))
		}
		back.get("/w/cold") // and then it waits in the lane
		synctest.Wait()
		from := time.Now()
		if err := f.listener.Drain(t.Context()); err != nil {
			t.Error(err)
		}
		if !waiting.closed() || !fresh.closed() || !back.closed() || time.Since(from) != 0 {
			t.Errorf("took %s", time.Since(from))
		}
	})
}

// One that is answering when the drain begins ends when it has answered, also
// if net/http had the connection before and reports it idle.
func TestDrainOfABusyWarmConnection(t *testing.T) {
	for _, before := range []int{0, 1} {
		for _, age := range []time.Duration{0, 10 * time.Second} { // net/http takes an old connection without a request for idle
			synctest.Test(t, func(t *testing.T) { drainBusy(t, before, age) })
		}
	}
}

func drainBusy(t *testing.T, before int, age time.Duration) {
	f := newWarmFixture(t).listen()
	c := f.dial()
	for range before {
		c.get("/w/cold")
		synctest.Wait() // net/http waits for the next request
	}
	c.get("/w/tiny")
	time.Sleep(age)
	c.send("GET /w/large HTTP/1.1\r\nHost: localhost\r\n\r\n") // more than fits into the buffers
	synctest.Wait()
	drained := make(chan error, 1)
	go func() { drained <- f.listener.Drain(context.Background()) }()
	synctest.Wait()
	from := time.Now()
	if r := c.receive(); r.body != string(largeBody) || f.requests(t) != int64(before) {
		t.Errorf("%d bytes, %d through the chain", len(r.body), f.requests(t))
	}
	if !c.closed() || time.Since(from) != 0 {
		t.Errorf("closed after %s", time.Since(from))
	}
	if err := <-drained; err != nil {
		t.Error(err)
	}
}
