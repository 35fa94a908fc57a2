package client

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"

	"micronode/fault"
	"micronode/internal/corr"
)

const (
	maxProblem = 64 << 10 // bytes of a problem document that are read
	maxText    = 1000     // bytes of a text in it that are kept
	maxOp      = 64

	// maxRetryAfter bounds Retry-After, so that it cannot overflow.
	maxRetryAfter = 24 * time.Hour
)

// callCause is the cause of every error of a call. It holds the correlation ID
// and what happened on the wire.
type callCause struct {
	corr   string
	status int   // of the answer; 0 if there was none
	cause  error // nil if the status says it all
}

func (c *callCause) Error() string {
	switch {
	case c.cause != nil:
		return c.cause.Error()
	case c.status != 0:
		return fmt.Sprintf("HTTP %d, corr_id %s", c.status, c.corr)
	default:
		return "corr_id " + c.corr
	}
}

func (c *callCause) Unwrap() error { return c.cause }

// CorrID is the correlation ID of the call that an error ended, or "" if the
// error is not of a call. The node's log lines of that call carry it.
func CorrID(err error) string {
	if t, ok := errors.AsType[*callCause](err); ok {
		return t.corr
	}
	return ""
}

// responseError turns a rejected answer into an error. Kind, detail and next
// step come from its problem document, or else from its status.
func (k *call) responseError(answer *http.Response) *fault.Error {
	cause := &callCause{corr: k.corrID, status: answer.StatusCode}
	k.setCorrID(cause, answer.Header.Get(corr.Header))
	err := &fault.Error{Op: k.op, Kind: kindOfStatus(answer.StatusCode), RetryAfter: retryAfter(answer.Header), Err: cause}
	switch {
	case isRedirect(answer.StatusCode):
		err.Detail = "the node redirects to another address"
		if to, _ := answer.Location(); to != nil {
			err.Detail += ", to " + k.sanitize(to.Host, maxText)
		}
		err.Next = "Nothing was sent there. Point the URL (MICRO_URL) at the node itself."
		return err
	case mediaOf(answer) == "application/problem+json":
		raw, readErr := io.ReadAll(io.LimitReader(answer.Body, maxProblem))
		if readErr == nil && k.readProblem(raw, err, cause) {
			return err
		}
	}
	err.Detail = strings.TrimSpace(fmt.Sprintf("%s answered %d %s", k.client.nodeLabel, answer.StatusCode, http.StatusText(answer.StatusCode)))
	return err
}

// problem holds the members of RFC 9457, and the node's own, that we read. The
// status is that of the answer, and title and retryable follow from the kind.
type problem struct {
	Code   string `json:"code"`
	Op     string `json:"op"`
	Detail string `json:"detail"`
	Next   string `json:"next"`
	CorrID string `json:"corr_id"`
}

// readProblem copies a problem document into err. An unknown code leaves the
// kind that follows from the status.
func (k *call) readProblem(raw []byte, err *fault.Error, cause *callCause) bool {
	var p problem
	if json.Unmarshal(raw, &p) != nil {
		return false
	}
	if kind, known := fault.ParseKind(p.Code); known {
		err.Kind = kind
	}
	if op := k.sanitize(p.Op, maxOp); op != "" {
		err.Op = op
	}
	k.setCorrID(cause, p.CorrID)
	err.Detail, err.Next = k.sanitize(p.Detail, maxText), k.sanitize(p.Next, maxText)
	return true
}

// setCorrID takes over a correlation ID of the node, if it is well-formed.
func (k *call) setCorrID(cause *callCause, id string) {
	if corr.Valid(id) && k.client.secret.hide(id) == id {
		cause.corr = id
	}
}

// sanitize makes an untrusted text fit for a terminal and a log: of bounded
// length, without the token, and without control characters, which could move
// the cursor or the words.
func (k *call) sanitize(text string, most int) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, k.client.secret.hide(text))
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return strings.TrimSpace(text)
}

// mediaOf is the media type of an answer, without parameters.
func mediaOf(answer *http.Response) string {
	media, _, _ := mime.ParseMediaType(answer.Header.Get("Content-Type"))
	return media
}

func isRedirect(status int) bool { return status >= 300 && status <= 399 }

// kindOfStatus is for answers without a code that we know. Of several kinds
// with one status it is the one that promises least.
func kindOfStatus(status int) fault.Kind {
	switch status {
	case http.StatusUnauthorized, http.StatusProxyAuthRequired:
		return fault.Unauthorized
	case http.StatusForbidden:
		return fault.Forbidden
	case http.StatusNotFound:
		return fault.NotFound
	case http.StatusMethodNotAllowed:
		return fault.MethodNotAllowed
	case http.StatusConflict, http.StatusPreconditionFailed:
		return fault.Conflict
	case http.StatusGone:
		return fault.Expired
	case http.StatusLengthRequired:
		return fault.LengthRequired
	case http.StatusRequestEntityTooLarge:
		return fault.BodyTooLarge
	case http.StatusRequestedRangeNotSatisfiable:
		return fault.InvalidRange
	case http.StatusTooManyRequests:
		return fault.RateLimited
	case http.StatusBadGateway:
		return fault.UpstreamFailed
	case http.StatusServiceUnavailable:
		return fault.NotReady
	case http.StatusGatewayTimeout:
		return fault.Timeout
	case http.StatusRequestTimeout:
		return fault.RequestTimeout
	case http.StatusUnsupportedMediaType:
		return fault.UnsupportedMediaType
	case http.StatusInsufficientStorage:
		return fault.StoreFull
	}
	switch {
	case status >= 500:
		return fault.Internal
	case status >= 400:
		return fault.Malformed
	case isRedirect(status):
		return fault.RejectPolicy
	default:
		return fault.UpstreamFailed
	}
}

// retryAfter reads the header: seconds, or a date.
func retryAfter(header http.Header) time.Duration {
	text := header.Get("Retry-After")
	if seconds, err := strconv.ParseUint(text, 10, 32); err == nil {
		return min(time.Duration(seconds)*time.Second, maxRetryAfter)
	}
	if at, err := http.ParseTime(text); err == nil {
		return min(max(time.Until(at), 0), maxRetryAfter)
	}
	return 0
}

// tryError turns an error of a try into one of ours. ctx is the caller's
// context; the watchdog may also end the try's own.
func (k *call) tryError(ctx, try context.Context, err error) *fault.Error {
	if outer, ok := errors.AsType[*url.Error](err); ok {
		err = outer.Err // it repeats the method and the URL, which add nothing
	}
	failed := &fault.Error{Op: k.op}
	switch {
	case ctx.Err() != nil:
		failed.Kind, err = fault.KindOf(ctx.Err()), ctx.Err()
		failed.Detail = "cancelled while waiting for " + k.client.nodeLabel
	case context.Cause(try) == errStalled:
		failed.Kind, err = fault.Timeout, errStalled
		failed.Detail = fmt.Sprintf("%s did not answer within %s", k.client.nodeLabel, k.idleTimeout)
	default:
		k.classify(failed, err)
	}
	failed.Err = &callCause{corr: k.corrID, cause: err}
	return failed
}

// classify sets the kind of a network failure.
func (k *call) classify(failed *fault.Error, err error) {
	where := k.client.nodeLabel
	var name *net.DNSError
	var certificate *tls.CertificateVerificationError
	if own, ok := errors.AsType[*fault.Error](err); ok { // the dialer of the socket has classified it already
		failed.Op, failed.Kind, failed.Detail, failed.Next, failed.RetryAfter = own.Op, own.Kind, own.Detail, own.Next, own.RetryAfter
		return
	}
	switch {
	case fault.IsErrno(err, syscall.ECONNREFUSED):
		failed.Kind, failed.Detail = fault.NotReady, "connection refused by "+where
		failed.Next = "Start the node, or check the URL (MICRO_URL)."
	case errors.As(err, &name):
		failed.Kind, failed.Detail = fault.NoRoute, "the name of "+where+" has no address"
		failed.Next = "Check the host in the URL (MICRO_URL)."
	case fault.IsErrno(err, syscall.ENETUNREACH), fault.IsErrno(err, syscall.EHOSTUNREACH):
		failed.Kind, failed.Detail = fault.NoRoute, where+" cannot be reached"
		failed.Next = "Check the network and the URL (MICRO_URL)."
	case errors.As(err, &certificate):
		failed.Kind, failed.Detail = fault.Forbidden, "the certificate of "+where+" does not verify"
		failed.Next = "Nothing was sent. Check the URL (MICRO_URL), or trust the node's authority with Options.HTTPClient."
	case errors.Is(err, http.ErrSchemeMismatch):
		failed.Kind, failed.Detail = fault.Malformed, where+" does not speak TLS"
		failed.Next = "Write http:// in the URL (MICRO_URL)."
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		failed.Kind, failed.Detail = fault.BrokenPipe, where+" broke off"
	default:
		if failed.Kind = fault.KindOf(err); failed.Kind == fault.Internal {
			failed.Kind = fault.Transient // it is the network's fault, not ours
		}
	}
}
