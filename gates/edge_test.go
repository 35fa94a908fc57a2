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
	host  string
	asked atomic.Int64
}

// newOrigin serves what the handler says, and returns the settings with which
// a node trusts it.
func newOrigin(t *testing.T, handler http.HandlerFunc) (*origin, []string) {
	o := &origin{}
	o.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o.asked.Add(1)
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

// fetch asks a node for something and returns the whole answer.
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

// numbered is the body of the n-th asset: a line, and noise that follows from
// the number.
func numbered(path string, size int) []byte {
	seed := [32]byte(b3.Of([]byte(path)))
	body := make([]byte, size)
	_, _ = rand.NewChaCha8(seed).Read(body)
	return body
}

const assetSize = 40_000

func serveNumbered(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "max-age=3600")
	_, _ = w.Write(numbered(r.URL.Path, assetSize))
}

// A node that is killed in the middle of puts and fills has lost nothing that
// it acknowledged when it comes back, and shows nothing half-done.
func TestKilledDuringPutsAndFills(t *testing.T) {
	rounds := 4
	if long() {
		rounds = 40
	}
	folder := filepath.Join(t.TempDir(), "node")
	origin, settings := newOrigin(t, serveNumbered)
	var mu sync.Mutex
	acknowledged := map[string]bool{}
	for round := range rounds {
		p := startWith(t, nil, []string{"--persist", folder}, append(settings, unlimited...)...)
		p.checkKept(acknowledged)
		ctx, cancel := context.WithCancel(t.Context())
		var puts, fills atomic.Int64
		group := p.load(ctx, 4, func(status int, _ time.Duration, body []byte) {
			if status == http.StatusCreated {
				puts.Add(1)
				mu.Lock()
				acknowledged[addressIn(body)] = true
				mu.Unlock()
			}
		})
		for caller := range 4 {
			group.Go(func() { p.fill(ctx, origin, fmt.Sprintf("/%d/%d/", round, caller), &fills) })
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
	p.checkKept(acknowledged)
	before := origin.asked.Load()
	for round := range rounds {
		path := fmt.Sprintf("/%d/0/0", round)
		answer, body, err := fetch(p.http + "/edge/assets/" + origin.host + path)
		if err != nil || answer.StatusCode != http.StatusOK || !bytes.Equal(body, numbered(path, assetSize)) {
			t.Errorf("%s after the kills: %v %v, %d bytes", path, answer, err, len(body))
		}
	}
	t.Logf("%d acknowledged puts kept over %d kills; of %d fetched assets, %d had to be fetched again", len(acknowledged), rounds, rounds, origin.asked.Load()-before)
	p.stop(syscall.SIGTERM)
}

// addressIn takes the address out of the answer to a put.
func addressIn(body []byte) string {
	_, rest, _ := strings.Cut(string(body), `"address":"`)
	address, _, _ := strings.Cut(rest, `"`)
	return address
}

// checkKept fetches what was acknowledged and verifies it.
func (p *process) checkKept(acknowledged map[string]bool) {
	p.t.Helper()
	for address := range acknowledged {
		answer, body, err := fetch(p.http + "/o/" + address)
		if err != nil || answer.StatusCode != http.StatusOK || b3.Of(body).String() != address {
			p.t.Fatalf("%s was acknowledged; now: %v, %v", address, answer, err)
		}
	}
}

// fill asks for one asset after another until ctx ends. What comes must be
// right.
func (p *process) fill(ctx context.Context, from *origin, prefix string, done *atomic.Int64) {
	for n := 0; ctx.Err() == nil; n++ {
		path := fmt.Sprint(prefix, n)
		answer, body, err := fetch(p.http + "/edge/assets/" + from.host + path)
		switch {
		case err != nil:
			return // killed
		case answer.StatusCode != http.StatusOK || !bytes.Equal(body, numbered(path, assetSize)):
			p.t.Errorf("%s: %s, %d bytes", path, answer.Status, len(body))
			return
		}
		done.Add(1)
	}
}

// Many new versions of a pack, a thousand in the long form, leave memory and descriptors as they were,
// and whoever asks meanwhile gets tiles, each wholly of one version.
func TestManyReloads(t *testing.T) {
	reloads := 100
	if long() {
		reloads = 1000
	}
	folder := t.TempDir()
	write := func(version int) {
		fresh := filepath.Join(folder, ".fresh")
		if err := packtest.WritePMTiles(fresh, versioned(version)); err != nil {
			t.Fatal(err)
		}
		old := time.Now().Add(-time.Minute) // it is whole: nobody has to wait and see
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
				version, whole := versionOf(body)
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
	t.Logf("after %d reloads: %d descriptors, %d MB; after %d: %d descriptors, %d MB", reloads/5, before.descriptors, before.bytes>>20, reloads, after.descriptors, after.bytes>>20)
	if after.descriptors > before.descriptors+3 || after.bytes > before.bytes+before.bytes/4 {
		t.Errorf("something grows with reloads: %+v, then %+v", before, after)
	}
	p.stop(syscall.SIGTERM)
}

// versioned is a pack whose tiles say which version they are of, again and
// again, so that a mixture shows.
func versioned(version int) packtest.PMSpec {
	var tiles []packtest.PMTile
	for x := range uint32(8) {
		for y := range uint32(8) {
			tiles = append(tiles, packtest.PMTile{Z: 3, X: x, Y: y, Data: bytes.Repeat(fmt.Appendf(nil, "%08d", version), 256)})
		}
	}
	return packtest.PMSpec{Tiles: tiles, MinZoom: 3, MaxZoom: 3, LeafSize: 16}
}

// versionOf reads the version out of a tile, and whether all of it is of that.
func versionOf(body []byte) (version int, whole bool) {
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
// origin says afterwards is there for the next one.
func TestDeadlineOfAFill(t *testing.T) {
	release := make(chan struct{})
	origin, settings := newOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/slow") {
			<-release
		}
		serveNumbered(w, r)
	})
	p := start(t, nil, append(settings, unlimited...)...)
	n := 0
	measured(t, func() error {
		n++
		from := time.Now()
		answer, body, err := fetch(fmt.Sprintf("%s/edge/assets/%s/slow/%d", p.http, origin.host, n), "Request-Timeout", "1")
		took := time.Since(from)
		switch {
		case err != nil:
			return err
		case answer.StatusCode != http.StatusGatewayTimeout || problem(body) != "Timeout":
			return fmt.Errorf("%s %s", answer.Status, body)
		case took < 900*time.Millisecond || took > 1100*time.Millisecond:
			return tooSlow("answered after %s, and the deadline was 1s", took)
		}
		return nil
	})
	close(release)
	answer, body, err := fetch(fmt.Sprintf("%s/edge/assets/%s/slow/1", p.http, origin.host))
	if err != nil || answer.StatusCode != http.StatusOK || !bytes.Equal(body, numbered("/slow/1", assetSize)) {
		t.Errorf("after the deadline of another: %v, %v", answer, err)
	}
	if asked := origin.asked.Load(); asked != int64(n) {
		t.Errorf("the origin was asked %d times for %d objects: the late answer did not land", asked, n)
	}
	p.stop(syscall.SIGTERM)
}
