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

// kindByError maps errors of etcd to kinds. Others are mapped by their gRPC
// code.
var kindByError = map[error]fault.Kind{
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
	rpctypes.ErrAuthOldRevision:  fault.StorageBusy, // users were changed concurrently; the next call uses the new revision
}

// kindByCode is for errors that are not listed.
var kindByCode = map[codes.Code]fault.Kind{
	codes.DeadlineExceeded:  fault.Timeout,
	codes.Unavailable:       fault.StorageBusy,
	codes.ResourceExhausted: fault.BodyTooLarge, // gRPC's own: the message exceeds a limit
	codes.Unauthenticated:   fault.Unauthorized,
	codes.PermissionDenied:  fault.Unauthorized,
	codes.DataLoss:          fault.IntegrityFail,
}

// nextSteps has the next steps for kinds whose default does not mention etcd.
var nextSteps = map[fault.Kind]string{
	fault.Unauthorized:   "Check " + settingUsername + " and " + settingPassword + ", and let that user read and write the prefix in " + settingURL + ".",
	fault.StoreFull:      "Free space in etcd: compact it, defragment it, disarm its alarm (etcdctl alarm disarm), or raise its quota; or lower registry.storage.retain.",
	fault.StorageBusy:    "Try again in a moment; if it lasts, check that more than half of the members that " + settingURL + " names are up.",
	fault.Timeout:        "Check that more than half of the members that " + settingURL + " names are up and can be reached, and with TLS that " + settingCA + " and " + settingCert + " are right; if they are only slow, raise " + settingTimeout + ".",
	fault.UpstreamFailed: "Check the cluster that " + settingURL + " names; its log says more.",
	fault.BodyTooLarge:   "Raise etcd's --max-request-bytes to its default of 1.5 MiB or more, or propose less at a time.",
	fault.IntegrityFail:  "Restore etcd from a backup, and compare with a bundle or another copy of the log: `micronode registry verify` says what is wrong.",
}

// details is what clients may be shown.
var details = map[fault.Kind]string{
	fault.Unauthorized:   "etcd refuses this node",
	fault.StoreFull:      "etcd is full",
	fault.StorageBusy:    "etcd cannot take it now",
	fault.Timeout:        "etcd did not answer in time",
	fault.UpstreamFailed: "etcd failed",
	fault.BodyTooLarge:   "the message exceeds the maximum size of etcd",
	fault.IntegrityFail:  "the data in etcd is damaged",
	fault.Conflict:       "the requested revision was compacted meanwhile",
}

// refusal gives the error of a call its kind and its next step. The end of the
// caller's context comes first, whatever error the call returned. A rejected
// password is hidden from clients: it is not caused by their capability, and
// they would be asked to fix it.
func (c *conn) refusal(ctx context.Context, op string, err error) error {
	if ended := flow.Ended(ctx, op); ended != nil {
		if fault.KindOf(ended) != fault.Timeout {
			return ended
		}
		err = fmt.Errorf("%w: %v", ended, err)
	}
	kind := classify(err)
	switch kind {
	case fault.Timeout:
		c.timeouts.Add(1)
	case fault.UpstreamFailed, fault.StorageBusy:
		c.failures.Add(1)
	}
	refused := &fault.Error{Op: op, Kind: kind, Detail: details[kind], Next: nextStep(kind, err), Err: err}
	if kind == fault.Unauthorized {
		refused.Kind, refused.Err = fault.NotReady, fmt.Errorf("%v", err)
	}
	return refused
}

// classify returns the kind of an error of the client library.
func classify(err error) fault.Kind {
	if own, ok := errors.AsType[*fault.Error](err); ok {
		return own.Kind
	}
	if answer, ok := errors.AsType[rpctypes.EtcdError](err); ok {
		if kind, known := kindByError[answer]; known {
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
	if kind, known := kindByCode[code]; known {
		return kind
	}
	return fault.UpstreamFailed
}

// nextStep returns the next step. A rejected certificate can be recognised only
// by the text of the error.
func nextStep(kind fault.Kind, err error) string {
	if text := err.Error(); strings.Contains(text, "x509:") || strings.Contains(text, "tls:") {
		return "Set " + settingCA + " to the authority that signed the certificates of etcd, and " + settingCert + " and " + settingKey + " if it requires a client certificate."
	}
	return nextSteps[kind]
}

// isTransient reports whether the same call may succeed in a moment.
func isTransient(err error) bool {
	switch fault.KindOf(err) {
	case fault.Timeout, fault.StorageBusy, fault.UpstreamFailed:
		return true
	}
	return false
}

func damagedError(op string, err error, format string, args ...any) error {
	return &fault.Error{Op: op, Kind: fault.IntegrityFail, Detail: fmt.Sprintf(format, args...), Next: nextSteps[fault.IntegrityFail], Err: err}
}

func closedError(op string) error {
	return fault.WrapKind(op, fault.Canceled, flow.ErrClosed)
}
