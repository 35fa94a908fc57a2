//go:build gates

package gates

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// measureMisses requests n things that the node does not have yet.
func measureMisses(web *http.Client, url string, n int) (p99 time.Duration, err error) {
	var took []time.Duration
	for range n {
		from := time.Now()
		answer, err := web.Get(fmt.Sprintf("%s%d", url, missSerial.Add(1)))
		if err != nil {
			return 0, fmt.Errorf("a good client: %w", err)
		}
		body, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if err != nil || answer.StatusCode != http.StatusOK {
			return 0, fmt.Errorf("a good client: %s, %v %s", answer.Status, err, body)
		}
		took = append(took, time.Since(from))
		time.Sleep(5 * time.Millisecond)
	}
	return percentile(took, 0.99), nil
}

// missSerial counts, so that nothing is requested twice.
var missSerial atomic.Int64

// 600 requests for what hangs at one allowed origin, each closed after 30 ms,
// and more of them all the time: the misses of another origin are answered as
// usual.
func TestHangingOrigin(t *testing.T) {
	hangs, settings := newOrigin(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	well, _ := newOrigin(t, serveAsset)
	p := start(t, nil, append(settings[:2:2], "MICRO_EDGE__ALLOW="+hangs.host+","+well.host)...)
	url := p.http + "/edge/assets/" + well.host + "/"
	web := clientFrom(t, "127.0.0.9", 1)
	retryMeasurement(t, func() error {
		quiet, err := measureMisses(web, url, 150)
		if err != nil {
			return err
		}
		end := abortRequests(t, p.http+"/edge/assets/"+hangs.host+"/", 600)
		timer := watchTimer()
		busy, err := measureMisses(web, url, 150)
		late := timer()
		end()
		if err != nil {
			return err
		}
		reportRatio(t, "600 hung-up requests for what hangs, misses of another origin", quiet, busy, late)
		return checkRatio("misses of another origin", quiet, busy, late)
	})
	if hangs.requests.Load() == 0 {
		t.Error("the origin that hangs was not asked at all: that says nothing")
	}
	p.stop(syscall.SIGTERM)
}

// abortRequests makes n requests and closes each after 30 ms, and then
// continues more slowly until it is stopped.
func abortRequests(t *testing.T, url string, n int) (end func()) {
	t.Helper()
	web := clientFrom(t, "127.0.0.2", 1)
	ctx, cancel := context.WithCancel(t.Context())
	hangUp := func() {
		soon, cancel := context.WithTimeout(ctx, 30*time.Millisecond)
		defer cancel()
		r, _ := http.NewRequestWithContext(soon, http.MethodGet, fmt.Sprint(url, missSerial.Add(1)), nil)
		if answer, err := web.Do(r); err == nil {
			answer.Body.Close()
		}
	}
	var first, group sync.WaitGroup
	for range 100 {
		first.Go(func() {
			for range n / 100 {
				hangUp()
			}
		})
	}
	first.Wait()
	for range 4 {
		group.Go(func() {
			for ctx.Err() == nil {
				hangUp()
				time.Sleep(10 * time.Millisecond) // where it is rejected at once
			}
		})
	}
	return func() { cancel(); group.Wait() }
}
