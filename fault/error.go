package fault

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"time"
)

// Error is one refusal or failure. Only Kind is required. Treat a shared Error
// as read-only: packages keep prepared ones for their hot paths.
type Error struct {
	Op     string // what was being done, as package.verb: "store.put"
	Kind   Kind
	Detail string // specific to this case; may be shown to strangers

	Next       string        // the next step, where it differs from the kind's
	RetryAfter time.Duration // when to retry, where it is known

	Err error // the cause; never shown to strangers
}

// New makes an error of a kind. The detail is formatted as by fmt.Sprintf and
// may be shown to the caller, so it must not hold secrets.
func New(op string, kind Kind, format string, args ...any) *Error {
	return &Error{Op: op, Kind: kind, Detail: fmt.Sprintf(format, args...)}
}

// Advise sets the next step of this case, where that of the kind would not help:
// an imperative that names the command, the setting or the field.
func (e *Error) Advise(next string) *Error {
	e.Next = next
	return e
}

// Because sets the cause, which only logs show.
func (e *Error) Because(cause error) *Error {
	e.Err = cause
	return e
}

// RetryIn sets when to retry, where that is known.
func (e *Error) RetryIn(d time.Duration) *Error {
	e.RetryAfter = d
	return e
}

// Wrap adds the operation that the error stopped, and keeps its kind, next
// step and RetryAfter. Wrap of nil is nil.
func Wrap(op string, err error) error {
	if err == nil {
		return nil
	}
	return &Error{Op: op, Kind: KindOf(err), Next: ownNext(err), RetryAfter: ownRetryAfter(err), Err: err}
}

// WrapKind is Wrap for an error whose kind the caller knows better than the
// error itself: a refused connection is UpstreamFailed to the edge and
// Transient to the index.
func WrapKind(op string, kind Kind, err error) error {
	if err == nil {
		return nil
	}
	return &Error{Op: op, Kind: kind, Err: err}
}

// Error is for logs and terminals: operation, detail, cause.
func (e *Error) Error() string {
	var b strings.Builder
	if e.Op != "" {
		b.WriteString(e.Op)
		b.WriteString(": ")
	}
	switch {
	case e.Detail != "" && e.Err != nil:
		fmt.Fprintf(&b, "%s: %v", e.Detail, e.Err)
	case e.Detail != "":
		b.WriteString(e.Detail)
	case e.Err != nil:
		b.WriteString(e.Err.Error())
	default:
		b.WriteString(e.Kind.Title())
	}
	return b.String()
}

// Unwrap returns the cause, for errors.Is and errors.As.
func (e *Error) Unwrap() error { return e.Err }

// Is makes errors.Is(err, fault.Busy) true for an error of that kind and for
// one that has such an error among its causes. To ask for the one kind that
// decides status and exit code, use KindOf.
func (e *Error) Is(target error) bool {
	kind, ok := target.(Kind)
	return ok && e.Kind == kind
}

// coded is implemented by errors of packages that may not import this one.
type coded interface {
	error
	FaultCode() string
}

// KindOf classifies any error. The zero Kind is for nil only.
func KindOf(err error) Kind {
	if err == nil {
		return none
	}
	if own, ok := errors.AsType[*Error](err); ok {
		return own.Kind
	}
	if bare, ok := errors.AsType[Kind](err); ok {
		return bare
	}
	if other, ok := errors.AsType[coded](err); ok {
		if kind, known := ParseKind(other.FaultCode()); known {
			return kind
		}
	}
	return kindOfSystem(err)
}

// kindOfSystem classifies the errors of the standard library that mean the
// same thing wherever they come from. What a missing file or a refused
// connection means depends on the caller, so those stay Internal unless
// WrapKind is used.
func kindOfSystem(err error) Kind {
	var network net.Error
	switch {
	case errors.Is(err, context.Canceled):
		return Canceled
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return Timeout
	case errors.As(err, &network) && network.Timeout():
		return Timeout
	case IsErrno(err, syscall.EPIPE), IsErrno(err, syscall.ECONNRESET),
		errors.Is(err, io.ErrClosedPipe), errors.Is(err, net.ErrClosed):
		return BrokenPipe
	case IsErrno(err, syscall.ENOSPC), IsErrno(err, syscall.EDQUOT):
		return StoreFull
	default:
		return Internal
	}
}

// NextOf is the next step of any error: its own if it has one, otherwise that
// of its kind.
func NextOf(err error) string {
	if err == nil {
		return ""
	}
	if next := ownNext(err); next != "" {
		return next
	}
	return KindOf(err).Next()
}

// RetryAfterOf is the pause to suggest for any error: its own hint if it has
// one, otherwise that of its kind.
func RetryAfterOf(err error) time.Duration {
	if err == nil {
		return 0
	}
	if after := ownRetryAfter(err); after > 0 {
		return after
	}
	return KindOf(err).RetryAfter()
}

// OpOf is the outermost operation of an error, or "" if it has none.
func OpOf(err error) string {
	if own, ok := errors.AsType[*Error](err); ok {
		return own.Op
	}
	return ""
}

// DetailOf is the outermost detail of an error: the text that may be shown to
// strangers. The texts of causes may hold paths and addresses and are left
// out.
func DetailOf(err error) string {
	for {
		own, ok := errors.AsType[*Error](err)
		if !ok {
			return ""
		}
		if own.Detail != "" {
			return own.Detail
		}
		err = own.Err
	}
}

func ownNext(err error) string {
	if own, ok := errors.AsType[*Error](err); ok {
		return own.Next
	}
	return ""
}

func ownRetryAfter(err error) time.Duration {
	if own, ok := errors.AsType[*Error](err); ok {
		return own.RetryAfter
	}
	return 0
}
