package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"micronode/fault"
	"micronode/internal/corr"
)

// maxDocument bounds the part of an answer that is read as a document.
// Documents of a node are much smaller; a larger one does not come from a
// node.
const maxDocument = 1 << 20

// call is one call of the API. All its tries carry the same correlation ID.
type call struct {
	// set at construction
	client       *Client
	op           string // as errors name it
	method, path string
	corrID       string
	accepts      func(*http.Response) bool // which answers are not refusals
	repeatable   bool                      // repeating it is safe

	// owned by the calling goroutine
	idleTimeout  time.Duration // how long the node may send nothing
	maybeApplied bool          // a try failed that may have taken effect
}

func (c *Client) newCall(ctx context.Context, op, method, path string) *call {
	return &call{client: c, op: op, method: method, path: path, corrID: corrIDFrom(ctx), accepts: isSuccess,
		repeatable: method != http.MethodPost, idleTimeout: c.timeout}
}

// isSuccess accepts status 2xx, as most calls do.
func isSuccess(answer *http.Response) bool {
	return answer.StatusCode >= 200 && answer.StatusCode <= 299
}

// WithCorrID returns a context whose calls carry the caller's correlation ID,
// so that one ID runs through the logs of a program and of the node. A
// well-formed ID has 8 to 64 letters, digits, dots, underscores and hyphens;
// any other is replaced by a generated one.
func WithCorrID(ctx context.Context, id string) context.Context {
	return corr.With(ctx, id)
}

// corrIDFrom is the context's correlation ID, or a new one. On a node it is that
// of the request which makes the call.
func corrIDFrom(ctx context.Context) string {
	if id := corr.From(ctx); corr.Valid(id) {
		return id
	}
	return corr.New()
}

// send makes one try. The body may be nil. An answer that the call does not
// accept is an error. The caller closes the body of an accepted answer.
func (k *call) send(ctx context.Context, header http.Header, body *uploadBody) (*http.Response, error) {
	c := k.client
	try, timer := newWatchdog(ctx, k.idleTimeout)
	request, err := http.NewRequestWithContext(try, k.method, c.base+k.path, nil)
	if err != nil {
		timer.stop()
		return nil, k.tryError(ctx, try, err)
	}
	request.Header = header
	header.Set("User-Agent", c.userAgent)
	header.Set(corr.Header, k.corrID)
	if body != nil {
		body.watchdog = timer
		request.Body, request.ContentLength = body, body.length()
	}
	answer, err := c.http.Do(request)
	timer.pause()
	if err != nil {
		defer timer.stop()
		return nil, k.tryError(ctx, try, err)
	}
	answer.Body = &watchedBody{answer.Body, timer}
	if !k.accepts(answer) {
		defer answer.Body.Close()
		return nil, k.responseError(answer)
	}
	return answer, nil
}

// doOnce makes one try and reads the answer.
func (k *call) doOnce(ctx context.Context, header http.Header, body *uploadBody) (status int, raw []byte, err error) {
	answer, err := k.send(ctx, header, body)
	if err != nil {
		return 0, nil, err
	}
	defer answer.Body.Close()
	raw, err = io.ReadAll(io.LimitReader(answer.Body, maxDocument+1))
	if err != nil {
		return 0, nil, k.tryError(ctx, answer.Request.Context(), err)
	}
	return answer.StatusCode, raw, nil
}

// decode reads a document. It ignores unknown members, because later nodes may
// add some.
func (k *call) decode(raw []byte, into any) error {
	if len(raw) > maxDocument {
		return k.unexpected(nil, "it is larger than %d bytes", maxDocument)
	}
	return k.unmarshal(raw, into)
}

func (k *call) unmarshal(raw []byte, into any) error {
	if err := json.Unmarshal(raw, into); err != nil {
		return k.unexpected(err, "it does not parse")
	}
	return nil
}

// unexpected is the error for an answer that no node gives.
func (k *call) unexpected(cause error, format string, args ...any) *fault.Error {
	return &fault.Error{Op: k.op, Kind: fault.UpstreamFailed,
		Detail: "the answer of " + k.client.nodeLabel + " is not that of a node: " + fmt.Sprintf(format, args...),
		Next:   "Check that the URL (MICRO_URL) or the socket is that of a micronode.",
		Err:    &callCause{corr: k.corrID, cause: cause}}
}

// doJSON makes a small call. It sends the document in, unless it is nil, and
// decodes the answer into out, unless that is nil. The client's timeout bounds
// the call with all its tries.
func (k *call) doJSON(ctx context.Context, in, out any) error {
	ctx, cancel := context.WithTimeout(ctx, k.client.timeout)
	defer cancel()
	var raw []byte
	err := k.retry(ctx, func() (err error) {
		header, body := requestJSON(ctx, in)
		_, raw, err = k.doOnce(ctx, header, body)
		return err
	})
	if err != nil || out == nil {
		return err
	}
	return k.decode(raw, out)
}

// requestJSON is the header and the body of a small call.
func requestJSON(ctx context.Context, in any) (http.Header, *uploadBody) {
	header := http.Header{"Accept": {"application/json"}}
	if end, ok := ctx.Deadline(); ok {
		left := max(time.Until(end), time.Millisecond)
		header.Set("Request-Timeout", strconv.FormatFloat(left.Seconds(), 'f', 3, 64))
	}
	if in == nil {
		return header, nil
	}
	raw, _ := json.Marshal(in) // a plain struct of ours
	header.Set("Content-Type", "application/json")
	return header, newUploadBody(upload{src: bytes.NewReader(raw), size: int64(len(raw))})
}

// retry calls try until it succeeds or a retry cannot help. It repeats only
// repeatable calls: those that read, DELETE, and a few others.
func (k *call) retry(ctx context.Context, try func() error) error {
	for n := 1; ; n++ {
		err := try()
		if err == nil || !k.repeatable {
			return err
		}
		k.maybeApplied = k.maybeApplied || maybeApplied(err)
		if err := k.client.waitRetry(ctx, n, err); err != nil {
			return err
		}
	}
}

// maybeApplied reports whether a try that failed may have taken effect anyway:
// the node did not refuse it, but its answer was lost.
func maybeApplied(err error) bool {
	switch fault.KindOf(err) {
	case fault.BrokenPipe, fault.Timeout, fault.Transient:
		return true
	}
	return false
}
