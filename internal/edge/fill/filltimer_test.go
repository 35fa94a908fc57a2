package fill

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/observe"
)

// drip is an origin whose bodies arrive at a rate.
type drip struct {
	size, rate int          // bytes, and bytes a second
	cut        atomic.Int64 // bodies that were cut off by the node
}

func (d *drip) answer(rw http.ResponseWriter, r *http.Request) {
	rw.Header().Set("Cache-Control", "max-age=600")
	rw.Header().Set("Content-Length", fmt.Sprint(d.size))
	for sent := 0; sent < d.size; {
		n := min(d.rate, d.size-sent)
		if _, err := rw.Write(make([]byte, n)); err != nil {
			d.cut.Add(1)
			return
		}
		_ = http.NewResponseController(rw).Flush()
		sent += n
		select {
		case <-time.After(time.Second):
		case <-r.Context().Done():
			d.cut.Add(1)
			return
		}
	}
}

// A download that takes ten minutes and moves all the time is not a stuck
// worker: the node stays ready.
func TestASlowDownloadIsNotAStuckWorker(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newFixture(t)
		slow := &drip{size: 2400 << 10, rate: 4 << 10}
		w.origin(slow.answer)
		readiness := observe.NewReadiness(flow.NewInventory(), w.sup)
		ctx, stop := context.WithCancel(t.Context())
		watched := make(chan struct{})
		go func() { defer close(watched); _ = readiness.WatchProgress(ctx) }()
		r := w.startReading("/slow")
		for range 9 {
			time.Sleep(time.Minute)
			synctest.Wait()
			if v := readiness.Evaluate(); !v.Whole() {
				t.Fatalf("a download that moves takes the node out of its balancer: %+v", v.Reasons)
			}
		}
		if err := <-r.done; err != nil || r.Len() != slow.size {
			t.Errorf("%d bytes, %v", r.Len(), err)
		}
		stop()
		<-watched
	})
}

// Slow bodies hold their workers while no fill waits for these, and not for
// hours while one does.
func TestSlowBodiesGiveWayToWaitingFills(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newFixture(t, withLargeStore)
		slow, quick := &drip{size: 8 << 20, rate: 2 << 10}, answerWith("quick")
		w.origin(func(rw http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/quick" {
				quick(rw, r)
				return
			}
			slow.answer(rw, r)
		})
		var readers []*reader
		for n := range workers {
			readers = append(readers, w.startReading(fmt.Sprint("/slow/", n)))
		}
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if n := slow.cut.Load(); n != 0 {
			t.Fatalf("%d bodies were cut off although nothing waited", n)
		}
		w.timeout = time.Minute
		began := time.Now()
		for n := range 3 { // with three more that wait, 2 KiB a second are too little
			w.startReading(fmt.Sprint("/waits/", n))
		}
		if got, err := w.ask(request("/quick")); err != nil || got.body != "quick" {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
		for _, r := range readers {
			if err := <-r.done; fault.KindOf(err) != fault.Timeout {
				t.Errorf("%d bytes, %v", r.Len(), err)
			}
		}
		w.stop()
	})
}

// The floor rises with each fill that waits: 16 KiB a second for one, up to 64 for
// four and more.
func TestTheFloorRisesWithWaitingFills(t *testing.T) {
	for _, c := range []struct {
		rate, waiting int
		cut           bool
	}{
		{8 << 10, 0, false}, {15 << 10, 1, true}, {17 << 10, 1, false}, {31 << 10, 2, true}, {33 << 10, 2, false},
		{63 << 10, 4, true}, {65 << 10, 4, false}, {65 << 10, 20, false},
	} {
		t.Run(fmt.Sprint(c.rate, " with ", c.waiting), func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				w := newFixture(t, withLargeStore)
				w.timeout = time.Minute
				d := &drip{size: 32 * c.rate, rate: c.rate}
				w.origin(d.answer)
				var readers, waiting []*reader
				for n := range workers {
					readers = append(readers, w.startReading(fmt.Sprint("/slow/", n)))
				}
				time.Sleep(time.Second)
				for n := range c.waiting {
					waiting = append(waiting, w.startReading(fmt.Sprint("/waits/", n)))
				}
				cut := 0
				for _, r := range readers {
					if err := <-r.done; err != nil {
						cut++
					}
				}
				if cut > 0 != c.cut {
					t.Errorf("%d of %d bodies were cut off", cut, len(readers))
				}
				for _, r := range waiting {
					<-r.done
				}
				w.stop()
			})
		})
	}
}

// A body that is above the floor is finished, however many wait.
func TestABodyThatBringsEnoughIsFinished(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newFixture(t, withLargeStore)
		d := &drip{size: 8 << 20, rate: 2 * maxFloor}
		w.origin(d.answer)
		var readers []*reader
		for n := range 4 * workers {
			readers = append(readers, w.startReading(fmt.Sprint("/", n)))
		}
		for _, r := range readers {
			if err := <-r.done; err != nil || r.Len() != d.size {
				t.Errorf("%d bytes, %v", r.Len(), err)
			}
		}
	})
}

// A client that leaves lets its fill go, unless the rest of the body is about
// to arrive: then it is kept for the next one.
func TestAFillThatNobodyWaitsForIsGivenUp(t *testing.T) {
	for name, c := range map[string]struct {
		size    int
		comes   bool // another reader, in time
		givenUp int
	}{
		"much is to come": {4 << 20, false, 1},
		"nearly done":     {100 << 10, false, 0},
		"another comes":   {4 << 20, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				w := newFixture(t)
				d := &drip{size: c.size, rate: 16 << 10}
				w.origin(d.answer)
				ctx, leave := context.WithCancel(t.Context())
				answer, err := w.Get(ctx, request("/"))
				if err != nil || !answer.Streaming() {
					t.Fatalf("%+v, %v", answer, err)
				}
				time.Sleep(2500 * time.Millisecond)
				leave()
				answer.Close()
				var other *reader
				if c.comes {
					time.Sleep(900 * time.Millisecond)
					other = w.startReading("/")
				}
				time.Sleep(10 * time.Second)
				synctest.Wait()
				if w.givenUp != c.givenUp || int(d.cut.Load()) != c.givenUp {
					t.Errorf("%d fills were given up, and the origin saw %d; want %d", w.givenUp, d.cut.Load(), c.givenUp)
				}
				if c.comes {
					if err := <-other.done; err != nil || other.Len() != c.size {
						t.Errorf("the other reader: %d bytes, %v", other.Len(), err)
					}
				}
				if w.rejected(ReasonTimeout)+w.rejected(ReasonUpstream) != 0 || w.opened != 0 {
					t.Errorf("the origin was blamed: %v", w.rejects)
				}
				synctest.Wait() // a reader may have the last byte before the store has it
				w.timeout = time.Hour
				if got := w.get("/"); got.Hit == (c.givenUp > 0) || len(got.body) != c.size {
					t.Errorf("afterwards: hit %v, %d bytes", got.Hit, len(got.body))
				}
			})
		})
	}
}
