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

// What JetStream says that has no name in the client library.
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

// ofCode says what the answers of JetStream mean to us. What is not listed has
// no meaning that we know.
var ofCode = map[jetstream.ErrorCode]fault.Kind{
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

// ofError is the same for what the client library says.
var ofError = []struct {
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

var details = map[fault.Kind]string{
	fault.Timeout:        "NATS did not answer in time",
	fault.StorageBusy:    "NATS cannot be reached, or its cluster does not know who leads",
	fault.StoreFull:      "NATS has no room",
	fault.BodyTooLarge:   "NATS takes no message as large as this",
	fault.Unauthorized:   "NATS does not let us in",
	fault.NotReady:       "NATS cannot keep a mailbox as it is set up",
	fault.UpstreamFailed: "NATS failed",
}

var next = map[fault.Kind]string{
	fault.Timeout:      "Try again; if it stays so, look at the servers that " + setURL + " names.",
	fault.StorageBusy:  "Try again in a moment; if it stays so, look at the servers that " + setURL + " names.",
	fault.StoreFull:    "Give JetStream more room (max_file_store of the servers), or acknowledge what is there.",
	fault.BodyTooLarge: "Raise max_payload of the NATS servers to one and a half times of mailbox.max_message_bytes.",
	fault.Unauthorized: "Set " + setToken + " to a token, or " + setCreds + " to credentials, that may use JetStream.",
	fault.NotReady:     "Use NATS 2.11 or newer with JetStream turned on, and run as many servers as " + setReplicas + " asks for.",
}

const nextTLS = "Set " + setCA + " to the authority that signed the certificates of the servers, and " + setCert + " and " + setKey + " if they ask for one of ours."

// refusal gives the error of a call its kind and its next step. The caller's own
// end comes first. Why there is no connection explains more than that there was
// no answer. What NATS thinks of us is hidden from strangers: it is no fault of
// their capability.
func (l *line) refusal(ctx context.Context, op string, err error) error {
	if ended := flow.Ended(ctx, op); ended != nil {
		if fault.KindOf(ended) != fault.Timeout {
			return ended
		}
		err = fmt.Errorf("%w: %v", ended, err)
	}
	kind := classify(err)
	if trouble := l.trouble.Load(); trouble != nil && !l.connected.Load() {
		err = fmt.Errorf("%v: %w", err, *trouble)
		if reason := classify(*trouble); reason == fault.Unauthorized {
			kind = reason
		}
	}
	refused := &fault.Error{Op: op, Kind: kind, Detail: details[kind], Next: next[kind], Err: fmt.Errorf("%v", err)}
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
		if kind, known := ofCode[answer.ErrorCode]; known {
			return kind
		}
		return fault.UpstreamFailed
	}
	for _, known := range ofError {
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

// isStale tells whether JetStream refused a record because the letter is
// another by now, or somebody is changing it.
func isStale(err error) bool {
	answer, ok := errors.AsType[*jetstream.APIError](err)
	return ok && (answer.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence || answer.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant)
}

// passing tells whether the same call may succeed in a moment. What is not set
// up well may be because a cluster is only just starting.
func passing(err error) bool {
	switch fault.KindOf(err) {
	case fault.Timeout, fault.StorageBusy, fault.UpstreamFailed, fault.NotReady:
		return true
	}
	return false
}

func damaged(token string, err error) error {
	return &fault.Error{Op: "mailbox.nats.read", Kind: fault.IntegrityFail, Err: err, Detail: "the record of letter " + token + " cannot be read",
		Next: "Look at who else writes to the subjects of the mailbox, and remove that message from the stream."}
}
