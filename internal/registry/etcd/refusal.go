package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"micronode/fault"
	"micronode/internal/flow"
)

// kinds says what the answers of etcd mean to us. What is not listed is judged
// by its gRPC code.
var kinds = map[error]fault.Kind{
	rpctypes.ErrNoSpace:                    fault.StoreFull,
	rpctypes.ErrRequestTooLarge:            fault.BodyTooLarge,
	rpctypes.ErrTooManyRequests:            fault.StorageBusy,
	rpctypes.ErrCompacted:                  fault.Conflict,
	rpctypes.ErrCorrupt:                    fault.IntegrityFail,
	rpctypes.ErrTimeout:                    fault.Timeout,
	rpctypes.ErrTimeoutDueToLeaderFail:     fault.Timeout,
	rpctypes.ErrTimeoutDueToConnectionLost: fault.Timeout,
	rpctypes.ErrTimeoutWaitAppliedIndex:    fault.Timeout,

	rpctypes.ErrAuthFailed:       fault.Unauthorized,
	rpctypes.ErrPermissionDenied: fault.Unauthorized,
	rpctypes.ErrUserEmpty:        fault.Unauthorized,
	rpctypes.ErrInvalidAuthToken: fault.Unauthorized,
	rpctypes.ErrAuthOldRevision:  fault.StorageBusy, // users were changed under our hands; the next call knows
}

// ofCode is for answers that are not listed.
var ofCode = map[codes.Code]fault.Kind{
	codes.DeadlineExceeded:  fault.Timeout,
	codes.Unavailable:       fault.StorageBusy,
	codes.ResourceExhausted: fault.BodyTooLarge, // gRPC's own: the message is over a limit
	codes.Unauthenticated:   fault.Unauthorized,
	codes.PermissionDenied:  fault.Unauthorized,
	codes.DataLoss:          fault.IntegrityFail,
}

// next is the step for kinds whose own does not know of etcd.
var next = map[fault.Kind]string{
	fault.Unauthorized:   "Check " + setUsername + " and " + setPassword + ", and let that user read and write the prefix in " + setURL + ".",
	fault.StoreFull:      "Free space in etcd: compact it, defragment it, disarm its alarm (etcdctl alarm disarm), or raise its quota; or lower registry.storage.retain.",
	fault.StorageBusy:    "Try again in a moment; if it lasts, check that more than half of the members that " + setURL + " names are up.",
	fault.Timeout:        "Check that more than half of the members that " + setURL + " names are up and can be reached, and with TLS that " + setCA + " and " + setCert + " are right; if they are only slow, raise " + setTimeout + ".",
	fault.UpstreamFailed: "Check the cluster that " + setURL + " names; its log says more.",
	fault.BodyTooLarge:   "Raise etcd's --max-request-bytes to its default of 1.5 MiB or more, or propose less at a time.",
	fault.IntegrityFail:  "Restore etcd from a backup, and compare with a bundle or another copy of the log: `micronode registry verify` says what is wrong.",
}

// details is what may be shown to whoever asked.
var details = map[fault.Kind]string{
	fault.Unauthorized:   "etcd refuses this node",
	fault.StoreFull:      "etcd is full",
	fault.StorageBusy:    "etcd cannot take it now",
	fault.Timeout:        "etcd did not answer in time",
	fault.UpstreamFailed: "etcd failed",
	fault.BodyTooLarge:   "etcd takes no message of this size",
	fault.IntegrityFail:  "what lies in etcd is damaged",
	fault.Conflict:       "what was asked for has been compacted meanwhile",
}

// refusal gives the error of a call its kind and its next step. The caller's
// own end comes first: what the call made of it does not matter. A refused
// password is hidden from strangers: it is no fault of their capability, and
// they would be told to fix it.
func (l *line) refusal(ctx context.Context, op string, err error) error {
	if ended := flow.Ended(ctx, op); ended != nil {
		if fault.KindOf(ended) != fault.Timeout {
			return ended
		}
		err = fmt.Errorf("%w: %v", ended, err)
	}
	kind := classify(err)
	switch kind {
	case fault.Timeout:
		l.timeouts.Add(1)
	case fault.UpstreamFailed, fault.StorageBusy:
		l.failures.Add(1)
	}
	refused := &fault.Error{Op: op, Kind: kind, Detail: details[kind], Next: step(kind, err), Err: err}
	if kind == fault.Unauthorized {
		refused.Kind, refused.Err = fault.NotReady, fmt.Errorf("%v", err)
	}
	return refused
}

// classify finds the kind of an error of the client library.
func classify(err error) fault.Kind {
	if own, ok := errors.AsType[*fault.Error](err); ok {
		return own.Kind
	}
	if answer, ok := errors.AsType[rpctypes.EtcdError](err); ok {
		if kind, known := kinds[answer]; known {
			return kind
		}
		return kindOfCode(answer.Code())
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fault.Timeout
	}
	return kindOfCode(status.Code(err))
}

func kindOfCode(code codes.Code) fault.Kind {
	if kind, known := ofCode[code]; known {
		return kind
	}
	return fault.UpstreamFailed
}

// step is what to do. Of a certificate that is refused only text is left when
// it arrives here.
func step(kind fault.Kind, err error) string {
	if text := err.Error(); strings.Contains(text, "x509:") || strings.Contains(text, "tls:") {
		return "Set " + setCA + " to the authority that signed the certificates of etcd, and " + setCert + " and " + setKey + " if it asks for one of ours."
	}
	return next[kind]
}

// passing tells whether the same call may succeed in a moment.
func passing(err error) bool {
	switch fault.KindOf(err) {
	case fault.Timeout, fault.StorageBusy, fault.UpstreamFailed:
		return true
	}
	return false
}

func damaged(op string, err error, format string, args ...any) error {
	return &fault.Error{Op: op, Kind: fault.IntegrityFail, Detail: fmt.Sprintf(format, args...), Next: next[fault.IntegrityFail], Err: err}
}

func closed(op string) error {
	return fault.WrapKind(op, fault.Canceled, flow.ErrClosed)
}
