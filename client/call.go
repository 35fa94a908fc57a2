package client

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"micronode/fault"
)

const (
	corrHeader = "X-Corr-ID"

	// maxDocument bounds what is read of an answer that is a document. Ours
	// are much smaller; what is larger does not come from a node.
	maxDocument = 1 << 20
)

// call is one call of the API. Its tries are told apart by nobody: they have
// one correlation ID.
type call struct {
	// set at construction
	client       *Client
	op           string // as errors name it
	method, path string
	corr         string
	accepts      func(*http.Response) bool // which answers are not refusals
	repeatable   bool                      // to do it twice is to do it once

	// owned by the calling goroutine
	patience time.Duration // how long the node may let us wait
	unsure   bool          // a try failed that may have had its effect
}

func (c *Client) newCall(ctx context.Context, op, method, path string) *call {
	return &call{client: c, op: op, method: method, path: path, corr: corrFor(ctx), accepts: success,
		repeatable: method != http.MethodPost, patience: c.timeout}
}

// success is what most calls accept.
func success(answer *http.Response) bool { return answer.StatusCode >= 200 && answer.StatusCode <= 299 }

type corrKey struct{}

// WithCorrID returns a context whose calls carry a correlation ID of the
// caller's own, so that one ID runs through the logs of a program and of the
// node. Well-formed are 8 to 64 letters, digits, dots, underscores and
// hyphens; the calls of a context with anything else get IDs of their own.
func WithCorrID(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, corrKey{}, id)
}

// corrFor is the context's correlation ID, or a new one. It is no secret, so
// the fast generator of the runtime is good enough.
func corrFor(ctx context.Context) string {
	if id, _ := ctx.Value(corrKey{}).(string); wellFormed(id) {
		return id
	}
	var raw [16]byte
	binary.NativeEndian.PutUint64(raw[:8], rand.Uint64())
	binary.NativeEndian.PutUint64(raw[8:], rand.Uint64())
	return hex.EncodeToString(raw[:])
}

func wellFormed(id string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
	return len(id) >= 8 && len(id) <= 64 && strings.Trim(id, letters) == ""
}

// send makes one try. The body may be nil. An answer that the call does not
// accept is an error; of one that it accepts, the caller closes the body.
func (k *call) send(ctx context.Context, header http.Header, body *sending) (*http.Response, error) {
	c := k.client
	try, dog := watch(ctx, k.patience)
	request, err := http.NewRequestWithContext(try, k.method, c.base+k.path, nil)
	if err != nil {
		dog.end()
		return nil, k.failure(ctx, try, err)
	}
	request.Header = header
	header.Set("User-Agent", c.agent)
	header.Set(corrHeader, k.corr)
	if body != nil {
		body.dog = dog
		request.Body, request.ContentLength = body, body.size
	}
	answer, err := c.http.Do(request)
	dog.ourTurn()
	if err != nil {
		defer dog.end()
		return nil, k.failure(ctx, try, err)
	}
	answer.Body = &watchedBody{answer.Body, dog}
	if !k.accepts(answer) {
		defer answer.Body.Close()
		return nil, k.refusal(answer)
	}
	return answer, nil
}

// document makes one try and reads the answer.
func (k *call) document(ctx context.Context, header http.Header, body *sending) (status int, raw []byte, err error) {
	answer, err := k.send(ctx, header, body)
	if err != nil {
		return 0, nil, err
	}
	defer answer.Body.Close()
	raw, err = io.ReadAll(io.LimitReader(answer.Body, maxDocument+1))
	if err != nil {
		return 0, nil, k.failure(ctx, answer.Request.Context(), err)
	}
	return answer.StatusCode, raw, nil
}

// decode reads a document. Members that we do not know are no mistake: nodes
// learn new ones.
func (k *call) decode(raw []byte, into any) error {
	if len(raw) > maxDocument {
		return k.strange(nil, "it is larger than %d bytes", maxDocument)
	}
	return k.parse(raw, into)
}

func (k *call) parse(raw []byte, into any) error {
	if err := json.Unmarshal(raw, into); err != nil {
		return k.strange(err, "it does not parse")
	}
	return nil
}

// strange is an answer that no node gives.
func (k *call) strange(cause error, format string, args ...any) *fault.Error {
	return &fault.Error{Op: k.op, Kind: fault.UpstreamFailed,
		Detail: "the answer of " + k.client.where + " is not that of a node: " + fmt.Sprintf(format, args...),
		Next:   "Check that the URL (MICRO_URL) or the socket is that of a micronode.",
		Err:    &trace{corr: k.corr, cause: cause}}
}

// control is a small call: a document goes in, if there is one, and one comes
// out, if it is wanted. The client's timeout bounds it with all its tries.
func (k *call) control(ctx context.Context, in, out any) error {
	ctx, cancel := context.WithTimeout(ctx, k.client.timeout)
	defer cancel()
	var raw []byte
	err := k.repeat(ctx, func() (err error) {
		header, body := question(ctx, in)
		_, raw, err = k.document(ctx, header, body)
		return err
	})
	if err != nil || out == nil {
		return err
	}
	return k.decode(raw, out)
}

// question is what a small call sends.
func question(ctx context.Context, in any) (http.Header, *sending) {
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
	return header, newSending(upload{src: bytes.NewReader(raw), size: int64(len(raw))})
}

// repeat tries until it works or there is no point in trying again. Only calls
// that may be repeated are: those that read, DELETE, and a few others.
func (k *call) repeat(ctx context.Context, try func() error) error {
	for n := 1; ; n++ {
		err := try()
		if err == nil || !k.repeatable {
			return err
		}
		k.unsure = k.unsure || unsure(err)
		if err := k.client.again(ctx, n, err); err != nil {
			return err
		}
	}
}

// unsure reports whether a try that failed may have had its effect all the
// same: the node did not refuse, it only was not heard of again.
func unsure(err error) bool {
	switch fault.KindOf(err) {
	case fault.BrokenPipe, fault.Timeout, fault.Transient:
		return true
	}
	return false
}
