//go:build gates

package gates

import (
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A download that takes longer than a stuck task may, and makes progress all the
// time, ends well and takes the node out of no balancer.
func TestASlowFillBesideReadiness(t *testing.T) {
	const pieces, piece = 75, 64 << 10
	_, settings := newOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(pieces*piece))
		for range pieces {
			if _, err := w.Write(make([]byte, piece)); err != nil {
				return
			}
			_ = http.NewResponseController(w).Flush()
			time.Sleep(time.Second)
		}
	})
	p := start(t, nil, settings...)
	host, _ := strings.CutPrefix(settings[len(settings)-1], "MICRO_EDGE__ALLOW=")
	p.awaitWhole(20 * time.Second)
	type result struct {
		status, bytes int
		err           error
	}
	done := make(chan result, 1)
	go func() {
		answer, body, err := fetch(p.http + "/edge/assets/" + host + "/slow")
		if err != nil {
			done <- result{err: err}
			return
		}
		done <- result{answer.StatusCode, len(body), nil}
	}()
	asked := 0
	for {
		select {
		case got := <-done:
			if got.err != nil || got.status != http.StatusOK || got.bytes != pieces*piece {
				t.Errorf("the download: %+v", got)
			}
			report(t, "a slow fill beside readiness", "ready all the time", fmt.Sprintf("%d of %d times in %ds", asked, asked, pieces))
			p.stop(syscall.SIGTERM)
			return
		case <-time.After(500 * time.Millisecond):
			if now := p.readyz(); !now.whole() {
				t.Fatalf("after %d askings: %s", asked, now.reasons())
			}
			asked++
		}
	}
}
