package node

import (
	"bytes"
	"context"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"micronode/internal/config"
	"micronode/internal/edge/pack/packtest"
	"micronode/internal/observe"
	"micronode/internal/testkit"
)

// newOrigin starts an HTTPS origin and returns the settings with which a node
// fetches from it.
func newOrigin(t *testing.T, handler http.HandlerFunc) (host string, flags []config.Flag) {
	t.Helper()
	server := httptest.NewTLSServer(handler)
	t.Cleanup(server.Close)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	mustWrite(t, ca, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
	host = strings.TrimPrefix(server.URL, "https://")
	flag := func(key, value string) config.Flag { return config.Flag{Key: key, Value: value, Name: "test"} }
	return host, []config.Flag{
		flag("edge.allow", host), flag("edge.fill.ca_file", ca), flag("edge.fill.allow_private", "true"),
		flag("limits.rate", "1000000"), flag("limits.burst", "1000000"), flag("limits.work_rate", "1000000"),
	}
}

// Half of the edge's workers are killed in the middle of a load of misses: no
// request is answered wrongly or left waiting, the node is degraded while
// workers are missing, and it is ready again soon after.
func TestHalfTheEdgeWorkersAreKilled(t *testing.T) {
	const workers = 8
	host, flags := newOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "max-age=60")
		fmt.Fprint(w, "body of ", r.URL.Path)
	})
	for key, value := range map[string]string{
		"edge.workers": fmt.Sprint(workers),
		// A request that is left waiting waits until the test times out; one
		// that is slow because the machine is busy is no failure.
		"http.first_byte": "1m", "edge.fill.timeout": "30s",
	} {
		flags = append(flags, config.Flag{Key: key, Value: value, Name: "test"})
	}
	n := start(t, 2, flags...)
	n.waitReady(t)
	ctx, stop := context.WithCancel(t.Context())
	var group sync.WaitGroup
	var answered, failed atomic.Int64
	for caller := range 16 {
		gateway := n.gatewayHTTP()
		group.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				path := fmt.Sprintf("/%d/%d", caller, i)
				got := gateway.do(t, http.MethodGet, "/edge/assets/"+host+path, nil)
				answered.Add(1)
				if got.status >= http.StatusInternalServerError {
					failed.Add(1)
				} else if string(got.body) != "body of "+path {
					t.Errorf("%s: %d %q", path, got.status, got.body)
				}
			}
		})
	}
	testkit.WaitFor(t, "a load", func() bool { return answered.Load() > 100 })
	killed := time.Now()
	for worker := range workers / 2 {
		if err := n.supervisor.Kill("edge worker", worker); err != nil {
			t.Fatal(err)
		}
	}
	testkit.WaitFor(t, "a word about it", func() bool { return !n.readiness.Evaluate().Whole() })
	n.waitReady(t)
	t.Logf("whole again %s after the kill", time.Since(killed).Round(time.Millisecond))
	before := answered.Load()
	testkit.WaitFor(t, "more answers", func() bool { return answered.Load() > before+100 })
	stop()
	group.Wait()
	if failed.Load()*1000 > answered.Load() {
		t.Errorf("%d of %d answers were failures", failed.Load(), answered.Load())
	}
	n.stop()
	<-n.ended
}

// A bad pack makes the node not ready, and readiness has its name, the reason
// and what to do; the other pack is served. When the bad one is fixed, the node
// is ready.
func TestABadPackIsNamed(t *testing.T) {
	folder := t.TempDir()
	if err := packtest.WritePMTiles(filepath.Join(folder, "good.pmtiles"), packtest.PMSpec{MaxZoom: 2}); err != nil {
		t.Fatal(err)
	}
	mustWrite(t, filepath.Join(folder, "bad.pmtiles"), strings.Repeat("no pack at all ", 100))
	backdate(t, folder)
	n := start(t, 2, config.Flag{Key: "edge.packs", Value: folder, Name: "test"})
	n.waitPacksMissing(t)
	status, body := n.get(t, "/readyz")
	text := fmt.Sprint(body)
	if status != http.StatusServiceUnavailable || !strings.Contains(text, "bad.pmtiles") || strings.Contains(text, "good.pmtiles") {
		t.Errorf("%d %v", status, body)
	}
	if got := n.gatewayHTTP().do(t, http.MethodGet, "/edge/tiles/good/1/0/0", nil); got.status != http.StatusOK {
		t.Errorf("the good pack: %d %s", got.status, got.body)
	}
	fresh := filepath.Join(t.TempDir(), "fresh")
	if err := packtest.WritePMTiles(fresh, packtest.PMSpec{MaxZoom: 2}); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-time.Minute)
	if err := os.Chtimes(fresh, old, old); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(fresh, filepath.Join(folder, "bad.pmtiles")); err != nil {
		t.Fatal(err)
	}
	n.waitReady(t)
	n.stop()
	<-n.ended
}

// backdate makes all files of a folder look unmodified for a while.
func backdate(t *testing.T, folder string) {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-time.Minute)
	for _, entry := range entries {
		if err := os.Chtimes(filepath.Join(folder, entry.Name()), old, old); err != nil {
			t.Fatal(err)
		}
	}
}

// waitPacksMissing waits until the services run and the node is not ready for a
// reason of the edge.
func (n *runningNode) waitPacksMissing(t *testing.T) {
	t.Helper()
	ctx, found := context.WithCancel(t.Context())
	_ = n.readiness.Watch(ctx, func(now observe.Verdict) {
		if len(now.Missing) > 0 && strings.Contains(fmt.Sprint(now.Missing), "packs") {
			found()
		}
	})
}

// With a folder, fetched answers are there after a restart; the origin gets no
// second request.
func TestWhatWasFetchedOutlivesTheNode(t *testing.T) {
	var asked atomic.Int64
	host, flags := newOrigin(t, func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.Header().Set("Cache-Control", "max-age=600")
		_, _ = w.Write(bytes.Repeat([]byte("fetched "), 10_000))
	})
	folder := filepath.Join(t.TempDir(), "node")
	for range 2 {
		n := startOnFolder(t, folder, flags...)
		got := n.gatewayHTTP().do(t, http.MethodGet, "/edge/assets/"+host+"/x", nil)
		if got.status != http.StatusOK || len(got.body) != 80_000 {
			t.Errorf("%d, %d bytes", got.status, len(got.body))
		}
		n.stop()
		<-n.ended
	}
	if asked.Load() != 1 {
		t.Errorf("the origin was asked %d times", asked.Load())
	}
}

// A reload applies another list of origins and other packs without a restart.
func TestAReloadReachesTheEdge(t *testing.T) {
	host, flags := newOrigin(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") })
	folder := t.TempDir()
	file := filepath.Join(folder, "micronode.toml")
	mustWrite(t, file, "[edge]\nallow = []\n")
	n := startWith(t, func(o *Options) {
		o.Sources.File = file
		o.Sources.Flags = append(o.Sources.Flags, flags[1:]...)
	})
	n.waitReady(t)
	gateway := n.gatewayHTTP()
	if got := gateway.do(t, http.MethodGet, "/edge/assets/"+host+"/", nil); got.status != http.StatusForbidden {
		t.Errorf("not on the list: %d %s", got.status, got.body)
	}
	mustWrite(t, file, "[edge]\nallow = [\""+host+"\"]\n")
	n.Reload("test")
	testkit.WaitFor(t, "the new list", func() bool {
		return gateway.do(t, http.MethodGet, "/edge/assets/"+host+"/", nil).status == http.StatusOK
	})
	n.stop()
	<-n.ended
}
