package fill

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"micronode/internal/bandwidth"
	"micronode/internal/flow"
)

// What a limit of this node slows down is not cut as the fault of the origin,
// however many share the limit.
func TestALimitOfTheNodeCutsNoFill(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const size, others = 16 << 10, 300 // a turn takes 50 ms, so that one comes in 15 s
		meter := bandwidth.New(flow.NewInventory(), bandwidth.Settings{Down: 32 << 10})
		w := newFixture(t, func(s *Spec) { s.Bandwidth = meter })
		w.timeout = time.Hour
		w.origin(func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Cache-Control", "max-age=600")
			_, _ = rw.Write(make([]byte, size))
		})
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for range others {
			all.Go(func() {
				for share := new(bandwidth.Share); ; {
					if _, err := meter.Down().Wait(ctx, bandwidth.Gateway, share, 64<<10); err != nil {
						return
					}
				}
			})
		}
		began := time.Now()
		r := w.startReading("/big")
		if err := <-r.done; err != nil || r.Len() != size {
			t.Errorf("%d bytes, %v", r.Len(), err)
		}
		if took := time.Since(began); took < time.Minute {
			t.Errorf("the limit was not kept: it took %s", took)
		}
		if n := meter.Down().Bytes(bandwidth.Fills); n != size {
			t.Errorf("%d bytes were counted", n)
		}
		cancel()
		all.Wait()
	})
}
