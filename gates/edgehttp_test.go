//go:build gates

package gates

import (
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"
)

// An origin that takes six seconds for its header is waited for if the settings
// allow it, and not otherwise; and a file that takes longer than any of them in
// all is streamed as it arrives.
func TestHowLongOriginsAreWaitedFor(t *testing.T) {
	const slow, pieces, piece = 6 * time.Second, 4, 128 << 10
	from, settings := newOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "max-age=60")
		if r.URL.Path == "/slow" {
			time.Sleep(slow)
			fmt.Fprint(w, "at last")
			return
		}
		w.Header().Set("Content-Length", fmt.Sprint(pieces*piece))
		for range pieces {
			_, _ = w.Write(make([]byte, piece))
			_ = http.NewResponseController(w).Flush()
			time.Sleep(slow / pieces)
		}
	})
	slowTolerant := start(t, nil, append(settings, "MICRO_HTTP__FIRST_BYTE=20s", "MICRO_EDGE__FILL__TIMEOUT=15s")...)
	answer, body, err := fetch(slowTolerant.http + "/edge/assets/" + from.host + "/slow")
	if err != nil || answer.StatusCode != http.StatusOK || string(body) != "at last" {
		t.Errorf("settings above: %v %s %v", answer, body, err)
	}
	impatientNode := start(t, nil, append(settings, "MICRO_HTTP__FIRST_BYTE=1s")...)
	retryMeasurement(t, func() error {
		began := time.Now()
		refused, _, err := fetch(impatientNode.http + "/edge/assets/" + from.host + "/slow")
		took := time.Since(began)
		if err != nil || refused.StatusCode != http.StatusGatewayTimeout {
			return fmt.Errorf("settings below: %v %v after %s", refused, err, took)
		}
		report(t, "the settings decide how long an origin is waited for", "200 above, 504 below", fmt.Sprintf("200 after %s, 504 after %s", slow, took.Round(100*time.Millisecond)))
		return checkBound(took, slow/2, "the refusal of an origin that takes %s", slow)
	})
	tries := 0
	retryMeasurement(t, func() error {
		tries++
		began := time.Now()
		large, err := http.Get(fmt.Sprintf("%s/edge/assets/%s/large/%d", impatientNode.http, from.host, tries))
		if err != nil {
			return err
		}
		defer large.Body.Close()
		if _, err := io.ReadFull(large.Body, make([]byte, piece)); err != nil {
			return err
		}
		first := time.Since(began)
		rest, err := io.ReadAll(large.Body)
		if err != nil || len(rest) != (pieces-1)*piece {
			return fmt.Errorf("%d bytes more, %v", len(rest), err)
		}
		whole := time.Since(began)
		report(t, "a slow file is sent on as it comes", "first piece in half the time at most", fmt.Sprintf("%s of %s", first.Round(10*time.Millisecond), whole.Round(10*time.Millisecond)))
		if first > whole/2 {
			return slowErrorf("the first piece came after %s, the last after %s", first, whole)
		}
		return nil
	})
}
