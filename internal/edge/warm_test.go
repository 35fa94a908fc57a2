package edge

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"micronode/internal/ingress"
	"micronode/internal/testkit"
)

// raw sends a request as it is and returns the answer as it came, without what
// changes from one second to the next.
func (f *fixture) raw(target string, headers ...string) string {
	f.t.Helper()
	return volatileHeaders.ReplaceAllString(f.asIs(target, headers...), "$1: …\r\n")
}

// ageHeader matches the Age of an answer.
var ageHeader = regexp.MustCompile(`(?m)^Age: .*\r\n`)

// asIs is raw with the Date.
func (f *fixture) asIs(target string, headers ...string) string {
	f.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(f.url, "http://"))
	if err != nil {
		f.t.Fatal(err)
	}
	defer conn.Close()
	request := "GET " + target + " HTTP/1.1\r\nHost: " + strings.TrimPrefix(f.url, "http://") + "\r\nX-Corr-Id: 0123456789abcdef0123456789abcdef\r\n" +
		strings.Join(append(headers, ""), "\r\n") + "\r\n"
	if _, err := io.WriteString(conn, request); err != nil {
		f.t.Fatal(err)
	}
	var seen bytes.Buffer
	answer, err := http.ReadResponse(bufio.NewReader(io.TeeReader(conn, &seen)), nil)
	if err != nil {
		f.t.Fatal(err)
	}
	defer answer.Body.Close()
	if _, err := io.Copy(io.Discard, answer.Body); err != nil {
		f.t.Fatal(err)
	}
	return ageHeader.ReplaceAllString(seen.String(), "Age: …\r\n")
}

var volatileHeaders = regexp.MustCompile(`(?m)^(Date|Age): .*\r\n`)

// The warm lane and the handler give the same answers, byte for byte.
func TestBothLanesSayTheSame(t *testing.T) {
	host, change := origin(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "max-age=600")
		w.Header().Set("Last-Modified", "Mon, 02 Jan 2006 15:04:05 GMT")
		w.Header().Set("Access-Control-Allow-Origin", "*")
		if r.URL.Path == "/page" {
			w.Header().Set("Content-Type", "text/html")
			w.Header().Set("Vary", "Accept-Encoding")
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(gzipped([]byte("<p>hello</p>")))
			return
		}
		fmt.Fprint(w, "some text of an origin")
	})
	f := newFixture(t, func(o *options) {
		withPack(t)(o)
		change(o)
		o.warm = true
	})
	const gzip, other = "Accept-Encoding: gzip", "X-Other: the lane does not know it"
	for _, target := range []string{"/edge/tiles/city/2/1/3.mvt", "/edge/tiles/city/0/0/0", "/edge/assets/" + host + "/page", "/edge/assets/" + host + "/text?q=1"} {
		f.get(target, "Accept-Encoding", "gzip") // so that it is in the cache
		if _, ready := f.edge.WarmRoutes().Lookup([]byte(target)); !ready {
			t.Errorf("%s is not for the warm lane", target)
			continue
		}
		f.raw(target, gzip) // with an Age from here on
		warm, cold := f.raw(target, gzip), f.raw(target, gzip, other)
		if warm != cold {
			t.Errorf("%s\nthe warm lane:\n%.600q\nthe handler:\n%.600q", target, warm, cold)
		}
		if strings.Contains(warm, "Access-Control") {
			t.Errorf("%s: the origin speaks for us: %.600q", target, warm)
		}
	}
}

// Everything but a plain GET of a tile or of a small fresh answer is left to
// the handler.
func TestWhatTheLaneLeavesToTheHandler(t *testing.T) {
	folder := assets(t)
	f := newFixture(t, func(o *options) {
		withPack(t)(o)
		o.spec.Config.Assets = folder
	})
	for _, target := range []string{
		"/edge/tiles/city/1/1/1", "/edge/tiles/city/1/0/1?x=1", "/edge/tiles/city/1/0/1.png", "/edge/tiles/c%69ty/1/0/1", "/edge/tiles/town/1/0/1",
		"/edge/tiles/city/1/0", "/edge/tiles/city/1/0/1/2", "/edge/tiles/city/1/0/x", "/edge/tiles/city.json",
		"/edge/assets/page.html", "/edge/assets/city.pmtiles", "/edge/assets/host.example.org/x", "/edge/assets/%2e%2e/x", "/edge/assets/",
	} {
		if _, ready := f.edge.WarmRoutes().Lookup([]byte(target)); ready {
			t.Errorf("%s is ready for the lane", target)
		}
	}
}

// A hit in the warm lane is counted once, as a hit.
func TestWarmHitsAreCounted(t *testing.T) {
	host, change := origin(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Cache-Control", "max-age=600")
		fmt.Fprint(w, "hello")
	})
	f := newFixture(t, func(o *options) {
		change(o)
		o.warm = true
	})
	target := "/edge/assets/" + host + "/x"
	f.get(target)
	before := testutil.ToFloat64(f.edge.metrics.hits)
	for range 5 {
		f.raw(target)
	}
	// An answer is counted when it is written; the client may receive it first.
	hits := func() float64 { return testutil.ToFloat64(f.edge.metrics.hits) - before }
	testkit.WaitFor(t, "five hits are counted", func() bool { return hits() >= 5 })
	if hits() != 5 {
		t.Errorf("five hits were counted as %v", hits())
	}
}

// An answer that was prepared before a purge and is inserted after it does not
// stay.
func TestAnAnswerOfBeforeAPurgeIsNotKept(t *testing.T) {
	c := newAnswerCache(1 << 20)
	prepared, err := ingress.Prepare(ingress.PreparedSpec{Pattern: assetPattern, Header: http.Header{"Content-Type": {"text/plain"}}, Body: []byte("old")})
	if err != nil {
		t.Fatal(err)
	}
	answer := preparedAnswer{prepared, time.Now().Add(time.Hour)}
	begun := c.generation.Load()
	c.clear()
	c.insert("/edge/assets/one", answer, begun)
	c.insert("/edge/assets/two", answer, c.generation.Load())
	if _, there := c.answers.GetIfPresent("/edge/assets/one"); there {
		t.Error("what was purged while it was made ready is kept")
	}
	if _, there := c.answers.GetIfPresent("/edge/assets/two"); !there {
		t.Error("what was made after the purge is not kept")
	}
}

// The cost of a tile from memory: its name, the reference to its pack, and
// three parts of the answer, which the lane reuses once it is written.
func TestWhatAWarmTileCosts(t *testing.T) {
	f := newFixture(t, withPack(t))
	routes, target := f.edge.WarmRoutes(), []byte("/edge/tiles/city/2/1/3.mvt")
	one := func() {
		if _, ready := routes.Lookup(target); !ready {
			t.Fatal("not ready")
		}
	}
	one()
	if allocations := testing.AllocsPerRun(200, one); allocations > 6 { // one more under the race detector
		t.Errorf("%v allocations for a tile from memory", allocations)
	}
}

// Without memory for prepared answers, everything is served all the same.
func TestWithoutPreparedAnswers(t *testing.T) {
	host, change := origin(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") })
	f := newFixture(t, func(o *options) {
		withPack(t)(o)
		change(o)
		o.spec.Config.PreparedBytes, o.warm = 0, true
	})
	if got := f.get("/edge/tiles/city/2/1/3"); got.status != http.StatusOK || !bytes.Equal(got.body, plainTile(2, 1, 3)) {
		t.Errorf("%d", got.status)
	}
	if got := f.get("/edge/assets/" + host + "/"); got.status != http.StatusOK || string(got.body) != "hello" {
		t.Errorf("%d %q", got.status, got.body)
	}
}
