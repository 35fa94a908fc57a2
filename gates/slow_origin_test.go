//go:build gates

package gates

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"
)

// One client asks for what an allowed origin takes long for, and for what it
// never answers. Misses of another client on that origin are served.
func TestOneClientOnASlowOrigin(t *testing.T) {
	_, settings := newOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		wait := time.Duration(0)
		switch {
		case strings.HasPrefix(r.URL.Path, "/slow/"):
			wait = 4 * time.Second
		case strings.HasPrefix(r.URL.Path, "/silent/"):
			wait = time.Hour
		}
		select {
		case <-time.After(wait):
			fmt.Fprint(w, "here")
		case <-r.Context().Done():
		}
	})
	p := start(t, nil, settings...)
	host, _ := strings.CutPrefix(settings[len(settings)-1], "MICRO_EDGE__ALLOW=")
	for _, kind := range []string{"slow", "silent"} {
		rude := &hostileClient{ip: "127.0.0.2", callers: 12, pause: 10 * time.Millisecond, send: func(ctx context.Context, web *http.Client, i int) string {
			return send(ctx, web, http.MethodGet, fmt.Sprintf("%s/edge/assets/%s/%s/%d", p.http, host, kind, i), "", "")
		}}
		end := rude.start(t)
		time.Sleep(12 * time.Second) // several time-outs: long enough for a breaker
		web := clientFrom(t, "127.0.0.9", 1)
		served, codes := 0, map[string]int{}
		for i := range 30 {
			code := send(t.Context(), web, http.MethodGet, fmt.Sprintf("%s/edge/assets/%s/quick/%s/%d", p.http, host, kind, i), "", "")
			if codes[code]++; code == "200" {
				served++
			}
		}
		end()
		if served < 29 {
			t.Errorf("beside a client with %s URLs, %d of 30 misses of another one were served: %v", kind, served, codes)
		}
		report(t, "one client on a slow origin: "+kind+" URLs", "29 of 30 misses of another client are served", fmt.Sprint(served))
	}
	p.stop(syscall.SIGTERM)
}
