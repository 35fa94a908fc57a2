//go:build gates

package gates

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// startBucket runs an empty object store on an address.
func startBucket(t *testing.T, address string) *httptest.Server {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	bucket := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("list-type") {
			_, _ = io.WriteString(w, "<ListBucketResult/>")
			return
		}
		w.WriteHeader(http.StatusNotFound)
	}))
	bucket.Listener.Close()
	bucket.Listener = listener
	bucket.Start()
	t.Cleanup(bucket.Close)
	return bucket
}

// An object store goes away while nobody uses it, and is back: both are told by
// /readyz within two seconds, with where it is and since when.
func TestAnObjectStoreAwayAndBack(t *testing.T) {
	const limit = 2 * time.Second
	bucket := startBucket(t, "127.0.0.1:0")
	address := bucket.Listener.Addr().String()
	p := start(t, nil, "MICRO_STORE__URL=s3+http://"+address+"/bucket/", "MICRO_STORE__ACCESS_KEY=a", "MICRO_STORE__SECRET_KEY=b")
	p.awaitWhole(20 * time.Second)
	retryMeasurement(t, func() error {
		bucket.CloseClientConnections()
		bucket.Close()
		away, now := p.awaitReadyz("store/reach", 20*time.Second, func(r readyz) bool { return slices.Contains(r.Missing, "store/reach") })
		if !strings.Contains(now.reasons(), "the object store at "+address+" has not answered since ") {
			t.Errorf("/readyz says %s", now.reasons())
		}
		bucket = startBucket(t, address)
		back := p.awaitWhole(20 * time.Second)
		report(t, "an object store away and back", "both told within 2s", fmt.Sprintf("%s and %s", away.Round(time.Millisecond), back.Round(time.Millisecond)))
		if away > limit || back > limit {
			return fmt.Errorf("told after %s, and %s after it was back", away, back)
		}
		return nil
	})
	p.stop(syscall.SIGTERM)
}
