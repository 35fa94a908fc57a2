package ingress

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// hangingSource is a WarmSource that reads from a disk which does not answer
// for some targets.
type hangingSource struct {
	preparedMap
	back chan struct{}
}

func (h *hangingSource) Lookup(target []byte) (*PreparedResponse, bool) {
	if strings.HasPrefix(string(target), "/w/hangs") {
		<-h.back
	}
	return h.preparedMap.Lookup(target)
}

// hangingFixture serves /w/well from the lane, and hangs at /w/hangs there.
func hangingFixture(t *testing.T) (*fixture, *hangingSource) {
	t.Helper()
	answer, err := Prepare(PreparedSpec{Pattern: "/w/{name}", Header: http.Header{"Content-Type": {"text/plain"}}, Body: []byte("well")})
	if err != nil {
		t.Fatal(err)
	}
	source := &hangingSource{preparedMap{"/w/well": answer, "/w/hangs": answer}, make(chan struct{})}
	f := newFixture(t, []Route{transfer("GET", "/w/{name}", respondWith("handled"))}, func(o *Options) {
		o.Warm, o.Limits.Stuck, o.Tasks = source, 2, newTaskGroup(t, 64)
	}).listen()
	return f, source
}

// A read of the lane that the disk does not answer is answered at the deadline,
// and what the disk says later goes nowhere. Other connections are served.
func TestTheLaneHasADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, source := hangingFixture(t)
		c := f.dial()
		if r := c.get("/w/well"); r.body != "well" {
			t.Fatalf("%d %s", r.StatusCode, r.body)
		}
		time.Sleep(3 * time.Second) // the timer of the connection is set by then, for an earlier request
		began := time.Now()
		r := c.get("/w/hangs")
		r.wantRefusal(t, 504, "Timeout")
		if took, want := time.Since(began), f.server.times.FirstByte+overrunGrace; took != want {
			t.Errorf("answered after %s, want %s", took, want)
		}
		f.wantMetric(1, "stuck_handlers", "route", noRoute)
		if f.server.Overdue() != 1 {
			t.Errorf("%d are overdue", f.server.Overdue())
		}
		if r := f.dial().get("/w/well"); r.body != "well" {
			t.Errorf("another connection: %d %s", r.StatusCode, r.body)
		}
		close(source.back)
		synctest.Wait()
		if !c.closed() {
			t.Error("something came after the refusal")
		}
		f.wantMetric(0, "stuck_handlers", "route", noRoute)
		if f.server.Overdue() != 0 {
			t.Errorf("%d are overdue", f.server.Overdue())
		}
		time.Sleep(time.Second) // until the refusal has lingered
	})
}

// With as many reads stuck as handlers of a route may be, the lane leaves
// requests to the handlers.
func TestAStuckLaneIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, source := hangingFixture(t)
		for range 2 {
			f.dial().get("/w/hangs").wantRefusal(t, 504, "Timeout")
		}
		if r := f.dial().get("/w/hangs"); r.body != "handled" {
			t.Errorf("%d %s", r.StatusCode, r.body)
		}
		close(source.back)
		synctest.Wait()
		if r := f.dial().get("/w/well"); r.body != "well" {
			t.Errorf("afterwards: %d %s", r.StatusCode, r.body)
		}
		time.Sleep(time.Second)
	})
}
