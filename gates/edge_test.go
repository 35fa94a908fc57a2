//go:build gates

package gates

import (
	"bytes"
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"micronode/b3"
	"micronode/internal/edge/pack/packtest"
)

// origin is an HTTPS server that a node may fetch from.
type origin struct {
	*httptest.Server
	host     string
	requests atomic.Int64
}

// newOrigin serves with the handler, and returns the settings with which a node
// trusts it.
func newOrigin(t *testing.T, handler http.HandlerFunc) (*origin, []string) {
	o := &origin{}
	o.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o.requests.Add(1)
		handler(w, r)
	}))
	t.Cleanup(o.Close)
	o.host = strings.TrimPrefix(o.URL, "https://")
	ca := filepath.Join(t.TempDir(), "ca.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: o.Certificate().Raw})
	if err := os.WriteFile(ca, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return o, []string{"MICRO_EDGE__FILL__CA_FILE=" + ca, "MICRO_EDGE__FILL__ALLOW_PRIVATE=true", "MICRO_EDGE__ALLOW=" + o.host}
}

// fetch makes a request to a node and returns the whole answer.
func fetch(url string, header ...string) (*http.Response, []byte, error) {
	r, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return nil, nil, err
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, nil, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	return answer, body, err
}

// assetBody is the body of the n-th asset: a line, and noise that is derived
// from the number.
func assetBody(path string, size int) []byte {
	seed := [32]byte(b3.Of([]byte(path)))
	body := make([]byte, size)
	_, _ = rand.NewChaCha8(seed).Read(body)
	return body
}

const assetSize = 40_000

func serveAsset(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "max-age=3600")
	_, _ = w.Write(assetBody(r.URL.Path, assetSize))
}

// A node that is killed in the middle of puts and fills has lost nothing that
// it acknowledged when it is restarted, and serves nothing partial.
func TestKilledDuringPutsAndFills(t *testing.T) {
	rounds := 4
	if isLong() {
		rounds = 40
	}
	folder := filepath.Join(t.TempDir(), "node")
	origin, settings := newOrigin(t, serveAsset)
	var mu sync.Mutex
	acknowledged := map[string]bool{}
	for round := range rounds {
		p := startWith(t, nil, []string{"--persist", folder}, append(settings, unlimited...)...)
		p.checkObjects(acknowledged)
		ctx, cancel := context.WithCancel(t.Context())
		var puts, fills atomic.Int64
		group := p.putLoad(ctx, 4, func(status int, _ time.Duration, body []byte) {
			if status == http.StatusCreated {
				puts.Add(1)
				mu.Lock()
				acknowledged[addressIn(body)] = true
				mu.Unlock()
			}
		})
		for caller := range 4 {
			group.Go(func() { p.requestAssets(ctx, origin, fmt.Sprintf("/%d/%d/", round, caller), &fills) })
		}
		for deadline := time.Now().Add(20 * time.Second); puts.Load() < 50 || fills.Load() < 50; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("after 20 s: %d puts, %d fills\n%s", puts.Load(), fills.Load(), p.stderr)
			}
		}
		p.kill()
		<-p.exited
		cancel()
		group.Wait()
	}
	p := startWith(t, nil, []string{"--persist", folder}, append(settings, unlimited...)...)
	p.checkObjects(acknowledged)
	before := origin.requests.Load()
	for round := range rounds {
		path := fmt.Sprintf("/%d/0/0", round)
		answer, body, err := fetch(p.http + "/edge/assets/" + origin.host + path)
		if err != nil || answer.StatusCode != http.StatusOK || !bytes.Equal(body, assetBody(path, assetSize)) {
			t.Errorf("%s after the kills: %v %v, %d bytes", path, answer, err, len(body))
		}
	}
	report(t, "killed during puts and fills", "no acknowledged put lost", fmt.Sprintf("%d kept over %d kills", len(acknowledged), rounds))
	t.Logf("%d acknowledged puts kept over %d kills; of %d fetched assets, %d had to be fetched again", len(acknowledged), rounds, rounds, origin.requests.Load()-before)
	p.stop(syscall.SIGTERM)
}

// addressIn reads the address from the answer to a put.
func addressIn(body []byte) string {
	_, rest, _ := strings.Cut(string(body), `"address":"`)
	address, _, _ := strings.Cut(rest, `"`)
	return address
}

// checkObjects fetches what was acknowledged and verifies it.
func (p *process) checkObjects(acknowledged map[string]bool) {
	p.t.Helper()
	for address := range acknowledged {
		answer, body, err := fetch(p.http + "/o/" + address)
		if err != nil || answer.StatusCode != http.StatusOK || b3.Of(body).String() != address {
			p.t.Fatalf("%s was acknowledged; now: %v, %v", address, answer, err)
		}
	}
}

// requestAssets requests one asset after another until ctx ends. The answers
// must be right.
func (p *process) requestAssets(ctx context.Context, from *origin, prefix string, done *atomic.Int64) {
	for n := 0; ctx.Err() == nil; n++ {
		path := fmt.Sprint(prefix, n)
		answer, body, err := fetch(p.http + "/edge/assets/" + from.host + path)
		switch {
		case err != nil:
			return // killed
		case answer.StatusCode != http.StatusOK || !bytes.Equal(body, assetBody(path, assetSize)):
			p.t.Errorf("%s: %s, %d bytes", path, answer.Status, len(body))
			return
		}
		done.Add(1)
	}
}

// Many new versions of a pack, a thousand in the long form, leave memory and
// descriptors as they were, and requests meanwhile get tiles, each wholly of
// one version.
func TestManyReloads(t *testing.T) {
	reloads := 100
	if isLong() {
		reloads = 1000
	}
	folder := t.TempDir()
	write := func(version int) {
		fresh := filepath.Join(folder, ".fresh")
		if err := packtest.WritePMTiles(fresh, versionedPack(version)); err != nil {
			t.Fatal(err)
		}
		old := time.Now().Add(-time.Minute) // it is complete: no settling time is needed
		if err := os.Chtimes(fresh, old.Add(time.Duration(version)*time.Millisecond), old.Add(time.Duration(version)*time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(fresh, filepath.Join(folder, "map.pmtiles")); err != nil {
			t.Fatal(err)
		}
	}
	write(0)
	p := startWith(t, nil, []string{"--pack", folder}, unlimited...)
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	var seen atomic.Int64
	for range 2 {
		group.Go(func() {
			for ctx.Err() == nil {
				answer, body, err := fetch(p.http+"/edge/tiles/map/3/1/2", "Accept-Encoding", "gzip")
				if err != nil || answer.StatusCode != http.StatusOK {
					t.Errorf("a tile during a reload: %v %v %s", answer, err, body)
					return
				}
				version, whole := tileVersion(body)
				if !whole {
					t.Errorf("a tile of two versions: %.60q", body)
					return
				}
				seen.Store(int64(version))
			}
		})
	}
	var before, after usage
	for version := 1; version <= reloads; version++ {
		write(version)
		for deadline := time.Now().Add(10 * time.Second); seen.Load() < int64(version) && !t.Failed(); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("version %d is not served after 10 s: %d is\n%s", version, seen.Load(), p.stderr)
			}
		}
		if version == reloads/5 {
			before = p.usage()
		}
	}
	cancel()
	group.Wait()
	after = p.usage()
	report(t, "packs replaced again and again", "descriptors and memory flat",
		fmt.Sprintf("%d → %d descriptors, %d → %d MB over %d reloads", before.descriptors, after.descriptors, before.bytes>>20, after.bytes>>20, reloads))
	t.Logf("after %d reloads: %d descriptors, %d MB; after %d: %d descriptors, %d MB", reloads/5, before.descriptors, before.bytes>>20, reloads, after.descriptors, after.bytes>>20)
	if after.descriptors > before.descriptors+3 || after.bytes > before.bytes+before.bytes/4 {
		t.Errorf("something grows with reloads: %+v, then %+v", before, after)
	}
	p.stop(syscall.SIGTERM)
}

// versionedPack is a pack whose tiles repeat their version, so that a mixture
// shows.
func versionedPack(version int) packtest.PMSpec {
	var tiles []packtest.PMTile
	for x := range uint32(8) {
		for y := range uint32(8) {
			tiles = append(tiles, packtest.PMTile{Z: 3, X: x, Y: y, Data: bytes.Repeat(fmt.Appendf(nil, "%08d", version), 256)})
		}
	}
	return packtest.PMSpec{Tiles: tiles, MinZoom: 3, MaxZoom: 3, LeafSize: 16}
}

// tileVersion reads the version from a tile, and whether all of it is of that.
func tileVersion(body []byte) (version int, whole bool) {
	if len(body) < 8 {
		return 0, false
	}
	_, err := fmt.Sscanf(string(body[:8]), "%d", &version)
	return version, err == nil && bytes.Equal(body, bytes.Repeat(body[:8], 256))
}

// usage is what a process holds.
type usage struct {
	descriptors int
	bytes       int64
}

func (p *process) usage() usage {
	p.t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.pid()))
	if err != nil {
		p.t.Fatal(err)
	}
	return usage{len(entries), p.rss()}
}

// A request that waits for an origin is answered at its deadline, and what the
// origin sends afterwards is cached for the next one.
func TestDeadlineOfAFill(t *testing.T) {
	release := make(chan struct{})
	origin, settings := newOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/slow") {
			<-release
		}
		serveAsset(w, r)
	})
	p := start(t, nil, append(settings, unlimited...)...)
	n := 0
	retryMeasurement(t, func() error {
		n++
		from := time.Now()
		answer, body, err := fetch(fmt.Sprintf("%s/edge/assets/%s/slow/%d", p.http, origin.host, n), "Request-Timeout", "1")
		took := time.Since(from)
		switch {
		case err != nil:
			return err
		case answer.StatusCode != http.StatusGatewayTimeout || problemCode(body) != "Timeout":
			return fmt.Errorf("%s %s", answer.Status, body)
		case took < 900*time.Millisecond:
			return fmt.Errorf("answered after %s, and the deadline was 1s", took)
		}
		report(t, "a fill that takes too long", "answered within 100 ms of the deadline", rounded(took-time.Second).String()+" off")
		return checkBound(took, 1100*time.Millisecond, "the answer at a deadline of 1s")
	})
	close(release)
	answer, body, err := fetch(fmt.Sprintf("%s/edge/assets/%s/slow/1", p.http, origin.host))
	if err != nil || answer.StatusCode != http.StatusOK || !bytes.Equal(body, assetBody("/slow/1", assetSize)) {
		t.Errorf("after the deadline of another: %v, %v", answer, err)
	}
	if asked := origin.requests.Load(); asked != int64(n) {
		t.Errorf("the origin was asked %d times for %d objects: the late answer did not land", asked, n)
	}
	p.stop(syscall.SIGTERM)
}
