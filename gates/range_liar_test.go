//go:build gates

package gates

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"micronode/b3"
	"micronode/client"
)

// rangeSource serves objects and their trees by ranges, as the gateway of a node
// does, so many bytes a second.
type rangeSource struct {
	*objectServer
	trees map[string][]byte // what is at a path
	lies  bool              // in one range in a hundred

	mu     sync.Mutex
	ranges int       // of objects, that were asked for
	lied   int       // in how many
	free   time.Time // when it may send again
}

// sourceRate is how fast each of them sends.
const sourceRate = 8 << 20

func newRangeSource(t *testing.T, lies bool, objects ...[]byte) *rangeSource {
	t.Helper()
	s := &rangeSource{trees: map[string][]byte{}, lies: lies}
	for _, data := range objects {
		hasher := b3.NewTreeHasher()
		_, _ = hasher.Write(data) // it never fails
		path := "/o/" + hasher.Sum().String()
		s.trees[path], s.trees[path+"/tree"] = data, hasher.Outboard()
	}
	s.objectServer = newObjectServer(t, s.serve)
	return s
}

func (s *rangeSource) serve(w http.ResponseWriter, r *http.Request) {
	body, known := s.trees[r.URL.Path]
	if !known {
		http.NotFound(w, r)
		return
	}
	var content io.ReadSeeker = bytes.NewReader(body)
	if begin := int64(0); !strings.HasSuffix(r.URL.Path, "/tree") {
		if _, err := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-", &begin); err == nil && s.liesNow() {
			wrong := bytes.Clone(body)
			wrong[begin+100] ^= 1
			content = bytes.NewReader(wrong)
		}
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	http.ServeContent(&pacedWriter{w, s, r}, r, "", time.Time{}, content)
}

// liesNow counts a range, and reports whether it is one in a hundred of a liar.
func (s *rangeSource) liesNow() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ranges++
	if !s.lies || s.ranges%100 != 20 {
		return false
	}
	s.lied++
	return true
}

// asked is how many ranges it was asked for, and in how many it lied.
func (s *rangeSource) asked() (ranges, lied int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ranges, s.lied
}

// pacedWriter sends at the rate of its source.
type pacedWriter struct {
	http.ResponseWriter
	source  *rangeSource
	request *http.Request
}

func (p *pacedWriter) Write(b []byte) (n int, err error) {
	for len(b) > 0 {
		part := b[:min(len(b), 32<<10)]
		p.source.mu.Lock()
		p.source.free = maxTime(p.source.free, time.Now()).Add(time.Duration(len(part)) * time.Second / sourceRate)
		wait := time.Until(p.source.free)
		p.source.mu.Unlock()
		if !sleepRequest(p.request, wait) {
			return n, p.request.Context().Err()
		}
		m, err := p.ResponseWriter.Write(part)
		if n += m; err != nil {
			return n, err
		}
		b = b[len(part):]
	}
	return n, nil
}

func maxTime(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// One of four providers lies in one range in a hundred. The object is right, the
// liar is counted and left at its first lie, and it takes about as long as without
// it.
func TestOneRangeInAHundredIsALie(t *testing.T) {
	const size = 96 << 20
	retryMeasurement(t, func() error {
		quietly, beside := noiseOf(size, 5), noiseOf(size, 6)
		var honest []*rangeSource
		for range 3 {
			honest = append(honest, newRangeSource(t, false, quietly, beside))
		}
		liar := newRangeSource(t, true, beside)
		router := newFakeRouters(t, 1, func(w http.ResponseWriter, _ *http.Request, address b3.Address) {
			var records []providerRecord
			for i, one := range honest {
				records = append(records, one.providerRecord(fmt.Sprintf("honest-%d", i)))
			}
			if address == b3.Of(beside) {
				records = append(records, liar.providerRecord("liar"))
			}
			writeProviders(w, records...)
		})
		p := start(t, nil, append(delegatedSettings(router), fmt.Sprintf("MICRO_STORE__RAM_BYTES=%d", 3*size))...)
		defer p.stop(syscall.SIGTERM)
		without := p.fetchAll(quietly)
		if lies := p.metric("index_fetch_lies_total", ""); lies != 0 {
			t.Fatalf("%v lies of honest providers", lies)
		}
		with := p.fetchAll(beside)
		ranges, lied := liar.asked()
		if lied != 1 || p.metric("index_fetch_lies_total", "") != 1 {
			t.Fatalf("the liar lied %d times in %d ranges, %v were counted; it is left at the first", lied, ranges, p.metric("index_fetch_lies_total", ""))
		}
		wasted := p.metric("index_fetch_wasted_bytes_total", "")
		if wasted > 1<<20 {
			t.Fatalf("%v bytes were wasted for one lie", wasted)
		}
		report(t, "one of four providers lies in one range in a hundred", "the object is right, the liar counted and left, at most 1.25 times what the three others take",
			fmt.Sprintf("%.2f times, %s; left after %d ranges", with.Seconds()/without.Seconds(), rounded(with), ranges))
		if with.Seconds() > 1.25*without.Seconds() {
			return slowErrorf("%s with the liar, %s without it", with, without)
		}
		return nil
	})
}

// fetchAll fetches an object by its address and compares it.
func (p *process) fetchAll(want []byte) time.Duration {
	p.t.Helper()
	began := time.Now()
	object, err := p.local().Get(p.t.Context(), b3.Of(want), client.GetOptions{Fetch: true})
	if err != nil {
		p.t.Fatalf("%v\n%s", err, p.stderr)
	}
	defer object.Close()
	got, err := io.ReadAll(object)
	if err != nil || !bytes.Equal(got, want) {
		p.t.Fatalf("%d of %d bytes, %v\n%s", len(got), len(want), err, p.stderr)
	}
	return time.Since(began)
}
