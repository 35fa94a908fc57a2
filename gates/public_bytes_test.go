//go:build gates

package gates

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// Ten strangers read what is public, within limits.public_bytes. When one of them
// opens 64 connections instead of one, the others read at least 0.8 times as
// fast as before.
func TestOneGreedyStranger(t *testing.T) {
	const strangers, limit, span = 10, 4 << 20, 3 * time.Second
	p := startWith(t, nil, nil, "MICRO_HTTP__PUBLIC=objects", "MICRO_HTTP__TRUSTED_PROXIES=127.0.0.1", fmt.Sprint("MICRO_LIMITS__PUBLIC_BYTES=", limit))
	address := p.putZeroes(64 << 20)
	web := clientFrom(t, "127.0.0.1", 4*strangers+64) // the connections of the proxy
	read := func(ctx context.Context, from string, n *atomic.Int64) {
		r, _ := http.NewRequestWithContext(ctx, http.MethodGet, p.http+"/o/"+address.String(), nil)
		r.Header.Set("X-Forwarded-For", from)
		answer, err := web.Do(r)
		if err != nil {
			return
		}
		defer answer.Body.Close()
		for buffer := make([]byte, 32<<10); ; {
			m, err := answer.Body.Read(buffer)
			if n.Add(int64(m)); err != nil {
				return
			}
		}
	}
	// rest is what the slowest of the others reads in a while, beside one with so
	// many connections.
	rest := func(connections int) int64 {
		ctx, cancel := context.WithTimeout(t.Context(), span)
		defer cancel()
		var all sync.WaitGroup
		var got [strangers]atomic.Int64
		for range connections {
			all.Go(func() { read(ctx, "198.51.100.9", &got[0]) })
		}
		for i := 1; i < strangers; i++ {
			all.Go(func() { read(ctx, fmt.Sprintf("192.0.2.%d", i), &got[i]) })
		}
		all.Wait()
		least, sum := got[1].Load(), got[0].Load()
		for i := 1; i < strangers; i++ {
			least = min(least, got[i].Load())
			sum += got[i].Load()
		}
		if most := int64(limit * span.Seconds() * 1.25); sum > most {
			t.Errorf("all together read %d bytes, and limits.public_bytes allows %d", sum, most)
		}
		return least
	}
	var ratio float64
	retryMeasurement(t, func() error {
		before := rest(1)
		ratio = float64(rest(64)) / float64(max(before, 1))
		report(t, "one greedy stranger among ten: what the rest reads", "≥ 0.80 ×", fmt.Sprintf("%.2f ×", ratio))
		if ratio < 0.8 {
			return fmt.Errorf("beside a greedy stranger the rest reads %.2f times as fast as without", ratio)
		}
		return nil
	})
	p.stop(syscall.SIGTERM)
}
