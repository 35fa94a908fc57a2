package observe_test

import (
	"encoding/json"
	"errors"
	"net/http/httptest"
	"testing"
	"time"

	"micronode/fault"
	"micronode/internal/corr"
	"micronode/internal/observe"
)

// problem answers a request with err and returns the answer.
func problem(t *testing.T, err error) (*httptest.ResponseRecorder, map[string]any) {
	t.Helper()
	w := httptest.NewRecorder()
	w.Header().Set("ETag", `"stale"`)
	w.Header().Set("Content-Encoding", "gzip")
	r := httptest.NewRequest("GET", "/x", nil)
	r.Header.Set(corr.Header, "corr-0001")
	observe.WriteProblem(w, r, err)
	var body map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
		t.Fatalf("%v in %s", err, w.Body)
	}
	return w, body
}

func TestProblemHasTheShapeOfTheContract(t *testing.T) {
	w, body := problem(t, fault.Wrap("gateway", fault.New("queue node/work", fault.Busy, "256 of <256> wait")))
	want := map[string]any{
		"type": "urn:micronode:fault:Busy", "title": "Queue full", "status": 429.0, "code": "Busy",
		"op": "gateway", "detail": "256 of <256> wait", "next": fault.Busy.Next(), "retryable": true, "corr_id": "corr-0001",
	}
	for name, value := range want {
		if body[name] != value {
			t.Errorf("%s is %v, want %v", name, body[name], value)
		}
	}
	if len(body) != len(want) {
		t.Errorf("members %v", body)
	}
	for name, value := range map[string]string{
		"Content-Type": "application/problem+json", "Retry-After": "1", "X-Corr-Id": "corr-0001",
		"Cache-Control": "no-store", "Etag": "", "Content-Encoding": "",
	} {
		if got := w.Header().Get(name); got != value {
			t.Errorf("%s is %q, want %q", name, got, value)
		}
	}
	if w.Code != 429 {
		t.Errorf("status %d", w.Code)
	}
}

func TestProblemSaysWhenToComeBackRoundedUp(t *testing.T) {
	for after, want := range map[time.Duration]string{
		time.Millisecond: "1", time.Second: "1", 1001 * time.Millisecond: "2", time.Minute: "60",
	} {
		w, _ := problem(t, &fault.Error{Kind: fault.RateLimited, RetryAfter: after})
		if got := w.Header().Get("Retry-After"); got != want {
			t.Errorf("%s became %q, want %q", after, got, want)
		}
	}
	if w, _ := problem(t, fault.NotFound); w.Header().Get("Retry-After") != "" {
		t.Error("what is not there will not be there in a second")
	}
}

func TestProblemKeepsCausesToItself(t *testing.T) {
	w, body := problem(t, fault.Wrap("store.open", errors.New("/home/ada/secret: permission denied")))
	if w.Code != 500 || body["detail"] != "" || body["op"] != "store.open" || body["code"] != "Internal" {
		t.Errorf("%d %v", w.Code, body)
	}
}

func TestProblemWithoutAReasonIsOurFault(t *testing.T) {
	if w, body := problem(t, nil); w.Code != 500 || body["code"] != "Internal" {
		t.Errorf("%d %v", w.Code, body)
	}
}
