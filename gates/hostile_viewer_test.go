//go:build gates

package gates

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"micronode/internal/edge/pack/packtest"
)

// Fifty viewers of a map come through a proxy, and one of them is hostile: it
// asks for tiles without a pause, for packs that are not there and for what
// strangers may not read. The p99 of the others stays within twice its quiet
// value, and none of them is refused.
func TestOneHostileViewer(t *testing.T) {
	const viewers, rounds = 50, 20
	pack := filepath.Join(t.TempDir(), "city.pmtiles")
	var tiles []packtest.PMTile
	for i := range uint32(64) {
		tiles = append(tiles, packtest.PMTile{Z: 3, X: i % 8, Y: i / 8, Data: []byte(strings.Repeat(fmt.Sprintf("tile %d ", i), 500))})
	}
	if err := packtest.WritePMTiles(pack, packtest.PMSpec{Tiles: tiles, MinZoom: 3, MaxZoom: 3, Type: packtest.PMVector}); err != nil {
		t.Fatal(err)
	}
	p := startWith(t, nil, []string{"--pack", pack}, "MICRO_HTTP__PUBLIC=tiles", "MICRO_HTTP__TRUSTED_PROXIES=127.0.0.1")
	web := clientFrom(t, "127.0.0.1", 2*viewers) // the connections of the proxy
	view := func(ctx context.Context, viewer, path string) (int, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, p.http+path, nil)
		if err != nil {
			return 0, err
		}
		r.Header.Set("X-Forwarded-For", viewer)
		answer, err := web.Do(r)
		if err != nil {
			return 0, err
		}
		defer answer.Body.Close()
		_, err = io.Copy(io.Discard, answer.Body)
		return answer.StatusCode, err
	}

	// measure has each viewer ask for a tile now and then.
	measure := func() (time.Duration, error) {
		var group sync.WaitGroup
		var mu sync.Mutex
		var took []time.Duration
		var wrong error
		for v := range viewers {
			group.Go(func() {
				time.Sleep(time.Duration(v) * 4 * time.Millisecond)
				for i := range rounds {
					began := time.Now()
					status, err := view(t.Context(), fmt.Sprintf("192.0.2.%d", 1+v), fmt.Sprintf("/edge/tiles/city/3/%d/%d", i%8, (i+v)%8))
					mu.Lock()
					took = append(took, time.Since(began))
					if err != nil || status != http.StatusOK {
						wrong = fmt.Errorf("a viewer: %d %w", status, err)
					}
					mu.Unlock()
					time.Sleep(200 * time.Millisecond)
				}
			})
		}
		group.Wait()
		return percentile(took, 0.99), wrong
	}

	refused, served := 0, 0
	retryMeasurement(t, func() error {
		quiet, err := measure()
		if err != nil {
			return err
		}
		ctx, cancel := context.WithCancel(t.Context())
		var callers sync.WaitGroup
		var mu sync.Mutex
		for c := range 24 {
			callers.Go(func() {
				for i := 0; ctx.Err() == nil; i++ {
					path := fmt.Sprintf("/edge/tiles/city/3/%d/%d", i%8, c%8)
					switch c % 4 {
					case 1:
						path = fmt.Sprintf("/edge/tiles/city-%d/3/1/1", i)
					case 2:
						path = "/admin/status"
					}
					status, _ := view(ctx, "198.51.100.9", path)
					mu.Lock()
					if status == http.StatusOK {
						served++
					} else if ctx.Err() == nil {
						refused++
					}
					mu.Unlock()
				}
			})
		}
		timer := watchTimer()
		busy, err := measure()
		late := timer()
		cancel()
		callers.Wait()
		if err != nil {
			return err
		}
		reportRatio(t, "one hostile viewer among fifty, behind a proxy", quiet, busy, late)
		return checkRatio("fifty viewers beside a hostile one", quiet, busy, late)
	})
	t.Logf("the hostile viewer got %d tiles, and %d refusals", served, refused)
	if served == 0 || refused == 0 {
		t.Errorf("the hostile viewer was no load: %d tiles, %d refusals", served, refused)
	}
	p.stop(syscall.SIGTERM)
}
