package fill

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"micronode/internal/flow"
	"micronode/internal/observe"
)

// Half of the workers die with work in progress, while more is queued. The node
// reports that it is degraded, no answer is lost, and within a second all
// workers run again and readiness says so.
func TestHalfOfTheWorkersDie(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newFixture(t)
		w.origin(func(rw http.ResponseWriter, r *http.Request) {
			select {
			case <-time.After(50 * time.Millisecond):
				answerWith("here", "Cache-Control", "max-age=60")(rw, r)
			case <-r.Context().Done():
			}
		})
		readiness := observe.NewReadiness(flow.NewInventory(), w.sup)
		var over atomic.Bool
		var answered atomic.Int64
		var group sync.WaitGroup
		for _, host := range []string{"origin.test", "other.test", "a.wild.test"} {
			for caller := range 8 {
				group.Go(func() {
					for n := 0; !over.Load(); n++ {
						answer, err := w.ask(requestOf(host, fmt.Sprint("/", caller, "/", n)))
						if err != nil || answer.body != "here" {
							t.Errorf("%s: %+v %v", host, answer, err)
							return
						}
						answered.Add(1)
					}
				})
			}
		}
		time.Sleep(125 * time.Millisecond) // in the middle of a fill
		if v := readiness.Evaluate(); v.Degraded {
			t.Errorf("degraded before anybody died: %+v", v)
		}
		for worker := range pool / 2 {
			if err := w.sup.Kill("worker", worker); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if v := readiness.Evaluate(); !v.Degraded {
			t.Error("half of the workers are dead, and the node is not degraded")
		}
		died := time.Now()
		for readiness.Evaluate().Degraded && time.Since(died) < time.Minute {
			time.Sleep(10 * time.Millisecond)
		}
		if took := time.Since(died); took > time.Second {
			t.Errorf("recovered after %s", took)
		}
		before := answered.Load()
		time.Sleep(time.Second)
		if n := answered.Load() - before; n < pool*1000/50/2 {
			t.Errorf("%d answers in a second with all workers", n)
		}
		over.Store(true)
		group.Wait()
		if len(w.rejects) != 0 {
			t.Errorf("somebody was refused: %v", w.rejects)
		}
	})
}
