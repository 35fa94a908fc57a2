package nats

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"micronode/fault"
	"micronode/internal/flow"
)

// Error codes of JetStream that have no name in the client library.
const (
	codeNoPeers      jetstream.ErrorCode = 10005
	codeUnavailable  jetstream.ErrorCode = 10008
	codeInsufficient jetstream.ErrorCode = 10023
	codeMemory       jetstream.ErrorCode = 10028
	codeStorage      jetstream.ErrorCode = 10047
	codeStoreFailed  jetstream.ErrorCode = 10077
	codeInProcess    jetstream.ErrorCode = 10158
	codeTTLDisabled  jetstream.ErrorCode = 10166
)

// kindByCode maps error codes of JetStream to kinds. Codes that are not listed
// are UpstreamFailed.
var kindByCode = map[jetstream.ErrorCode]fault.Kind{
	codeNoPeers:     fault.NotReady,
	codeUnavailable: fault.StorageBusy,
	codeInProcess:   fault.StorageBusy,

	codeInsufficient: fault.StoreFull,
	codeMemory:       fault.StoreFull,
	codeStorage:      fault.StoreFull,
	codeStoreFailed:  fault.StoreFull,

	codeTTLDisabled: fault.NotReady,
	jetstream.JSErrCodeStreamMessageExceedsMaximum:   fault.BodyTooLarge,
	jetstream.JSErrCodeStreamNotFound:                fault.StorageBusy,
	jetstream.JSErrCodeJetStreamNotEnabled:           fault.NotReady,
	jetstream.JSErrCodeJetStreamNotEnabledForAccount: fault.NotReady,
}

// kindByError is the same for errors of the client library.
var kindByError = []struct {
	err  error
	kind fault.Kind
}{
	{nats.ErrMaxPayload, fault.BodyTooLarge},
	{nats.ErrAuthorization, fault.Unauthorized},
	{nats.ErrAuthExpired, fault.Unauthorized},
	{nats.ErrAuthRevoked, fault.Unauthorized},
	{nats.ErrAccountAuthExpired, fault.Unauthorized},
	{nats.ErrPermissionViolation, fault.Unauthorized},
	{jetstream.ErrJetStreamNotEnabled, fault.NotReady},
	{jetstream.ErrJetStreamNotEnabledForAccount, fault.NotReady},
	{context.DeadlineExceeded, fault.Timeout},
	{nats.ErrTimeout, fault.Timeout},
}

var detailByKind = map[fault.Kind]string{
	fault.Timeout:        "NATS did not answer in time",
	fault.StorageBusy:    "NATS is unreachable, or its cluster has no leader",
	fault.StoreFull:      "NATS has no space",
	fault.BodyTooLarge:   "the message exceeds max_payload of NATS",
	fault.Unauthorized:   "NATS refuses the credentials",
	fault.NotReady:       "NATS is not set up for a mailbox",
	fault.UpstreamFailed: "NATS failed",
}

var nextByKind = map[fault.Kind]string{
	fault.Timeout:      "Retry; if it persists, check the servers that " + settingURL + " names.",
	fault.StorageBusy:  "Retry in a moment; if it persists, check the servers that " + settingURL + " names.",
	fault.StoreFull:    "Give JetStream more space (max_file_store of the servers), or acknowledge messages.",
	fault.BodyTooLarge: "Raise max_payload of the NATS servers to one and a half times mailbox.max_message_bytes.",
	fault.Unauthorized: "Set " + settingToken + " to a token, or " + settingCreds + " to credentials, that may use JetStream.",
	fault.NotReady:     "Use NATS 2.11 or newer with JetStream turned on, and run as many servers as " + settingReplicas + " asks for.",
}

const nextTLS = "Set " + settingCA + " to the authority that signed the certificates of the servers, and " + settingCert + " and " + settingKey + " if they require a client certificate."

// refusal gives the error of a call its kind and its next step. The end of the
// caller's context comes first. The reason for a lost connection explains more
// than a missing answer. Credential errors between node and NATS are reported
// as NotReady: the caller's token is not the cause.
func (j *jsClient) refusal(ctx context.Context, op string, err error) error {
	if ended := flow.Ended(ctx, op); ended != nil {
		if fault.KindOf(ended) != fault.Timeout {
			return ended
		}
		err = fmt.Errorf("%w: %v", ended, err)
	}
	kind := classify(err)
	if trouble := j.disconnectErr.Load(); trouble != nil && !j.connected.Load() {
		err = fmt.Errorf("%v: %w", err, *trouble)
		if reason := classify(*trouble); reason == fault.Unauthorized {
			kind = reason
		}
	}
	refused := &fault.Error{Op: op, Kind: kind, Detail: detailByKind[kind], Next: nextByKind[kind], Err: fmt.Errorf("%v", err)}
	if kind == fault.Unauthorized {
		refused.Kind = fault.NotReady
	}
	if own, ok := errors.AsType[*fault.Error](err); ok && own.Kind == fault.IntegrityFail {
		return fault.Wrap(op, own)
	}
	if text := err.Error(); strings.Contains(text, "x509:") || strings.Contains(text, "tls:") || strings.Contains(text, "tls error") {
		refused.Next = nextTLS
	}
	return refused
}

// classify finds the kind of an error.
func classify(err error) fault.Kind {
	if answer, ok := errors.AsType[*jetstream.APIError](err); ok {
		if kind, known := kindByCode[answer.ErrorCode]; known {
			return kind
		}
		return fault.UpstreamFailed
	}
	for _, known := range kindByError {
		if errors.Is(err, known.err) {
			return known.kind
		}
	}
	if strings.Contains(strings.ToLower(err.Error()), nats.AUTHORIZATION_ERR) {
		return fault.Unauthorized
	}
	if _, ok := errors.AsType[*fault.Error](err); ok {
		return fault.KindOf(err)
	}
	return fault.StorageBusy
}

// isWrongSequence reports whether JetStream refused a record because the
// message has changed, or is being changed.
func isWrongSequence(err error) bool {
	answer, ok := errors.AsType[*jetstream.APIError](err)
	return ok && (answer.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence || answer.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant)
}

// isTransient reports whether the same call may succeed in a moment. A wrong
// set-up may be that of a cluster that is just starting.
func isTransient(err error) bool {
	switch fault.KindOf(err) {
	case fault.Timeout, fault.StorageBusy, fault.UpstreamFailed, fault.NotReady:
		return true
	}
	return false
}

func damagedRecord(token string, err error) error {
	return &fault.Error{Op: "mailbox.nats.read", Kind: fault.IntegrityFail, Err: err, Detail: "the record of message " + token + " cannot be read",
		Next: "Find the other writer to the subjects of the mailbox, and remove that message from the stream."}
}
