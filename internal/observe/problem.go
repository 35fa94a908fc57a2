package observe

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"micronode/fault"
)

// Problem is an error as an HTTP client sees it: RFC 9457 with our own members.
type Problem struct {
	Type      string `json:"type"`
	Title     string `json:"title"`
	Status    int    `json:"status"`
	Code      string `json:"code"`
	Op        string `json:"op"`
	Detail    string `json:"detail"`
	Next      string `json:"next"`
	Retryable bool   `json:"retryable"`
	CorrID    string `json:"corr_id"`
}

// problemType begins the type of every problem. A URN, because there is no
// page to fetch: what the kind means is in the document itself.
const problemType = "urn:micronode:fault:"

// ProblemOf describes an error. Of its causes only what was meant to be shown
// to strangers gets in.
func ProblemOf(err error, corrID string) Problem {
	kind := fault.KindOf(err)
	return Problem{
		Type: problemType + kind.Code(), Title: kind.Title(), Status: kind.Status(), Code: kind.Code(),
		Op: fault.OpOf(err), Detail: fault.DetailOf(err), Next: fault.NextOf(err),
		Retryable: kind.Retryable(), CorrID: corrID,
	}
}

// WriteProblem answers a request with an error. It sets Retry-After where the
// error or its kind has one, and takes back headers that were meant for the
// answer that did not come. An error that is nil is answered as fault.Internal:
// somebody refused without a reason.
func WriteProblem(w http.ResponseWriter, r *http.Request, err error) {
	if err == nil {
		err = fault.Internal
	}
	r = CarryCorrID(w, r)
	header := w.Header()
	for _, stale := range []string{"Content-Encoding", "Content-Range", "Etag", "Last-Modified", "Accept-Ranges"} {
		header.Del(stale)
	}
	if after := fault.RetryAfterOf(err); after > 0 {
		header.Set("Retry-After", strconv.Itoa(wholeSeconds(after)))
	}
	problem := ProblemOf(err, CorrID(r.Context()))
	writeJSON(w, problem.Status, "application/problem+json", problem)
}

// wholeSeconds rounds up: to come back too early is to be refused again.
func wholeSeconds(d time.Duration) int {
	return int((d + time.Second - 1) / time.Second)
}

// writeJSON writes a small document that nobody should keep.
func writeJSON(w http.ResponseWriter, status int, contentType string, document any) {
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	enc.SetEscapeHTML(false) // it is not HTML, and the content type says so
	if err := enc.Encode(document); err != nil {
		panic("observe: " + err.Error()) // only our own plain structs come here
	}
	header := w.Header()
	header.Set("Content-Type", contentType)
	header.Set("Content-Length", strconv.Itoa(body.Len()))
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	w.Write(body.Bytes()) // if the client has left, there is nobody to tell
}
