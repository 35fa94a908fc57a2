package observe

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"micronode/fault"
	"micronode/internal/corr"
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

// problemType begins the type of every problem. It is a URN, because there is
// no page to fetch: what the kind means is in the document itself.
const problemType = "urn:micronode:fault:"

// ProblemOf describes an error. Of its causes it includes only what is meant
// for external clients.
func ProblemOf(err error, corrID string) Problem {
	kind := fault.KindOf(err)
	return Problem{
		Type: problemType + kind.Code(), Title: kind.Title(), Status: kind.Status(), Code: kind.Code(),
		Op: fault.OpOf(err), Detail: fault.DetailOf(err), Next: fault.NextOf(err),
		Retryable: kind.Retryable(), CorrID: corrID,
	}
}

// WriteProblem answers a request with an error. It sets Retry-After where the
// error or its kind has one, and removes headers that were set for the
// successful response. A nil error is answered as fault.Internal: the caller
// refused without a reason.
func WriteProblem(w http.ResponseWriter, r *http.Request, err error) {
	if err == nil {
		err = fault.Internal
	}
	r = ensureCorrID(w, r)
	header := w.Header()
	for _, stale := range []string{"Content-Encoding", "Content-Range", "Etag", "Last-Modified", "Accept-Ranges", "Age", "Date", "Expires"} {
		header.Del(stale)
	}
	if after := fault.RetryAfterOf(err); after > 0 {
		header.Set("Retry-After", strconv.Itoa(ceilSeconds(after)))
	}
	problem := ProblemOf(err, corr.From(r.Context()))
	if prefersPage(r.Header["Accept"]) {
		writeProblemPage(w, problem)
		return
	}
	writeJSON(w, problem.Status, "application/problem+json", problem)
}

// ceilSeconds rounds up: a client that retries too early is refused again.
func ceilSeconds(d time.Duration) int {
	return int((d + time.Second - 1) / time.Second)
}

// writeJSON writes a small document that must not be cached.
func writeJSON(w http.ResponseWriter, status int, contentType string, document any) {
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	enc.SetEscapeHTML(false) // it is not HTML, and the content type says so
	if err := enc.Encode(document); err != nil {
		panic("observe: " + err.Error()) // only our own plain structs are encoded here
	}
	header := w.Header()
	header.Set("Content-Type", contentType)
	header.Set("Content-Length", strconv.Itoa(body.Len()))
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	w.Write(body.Bytes()) // if the client has left, no one reads the error
}
