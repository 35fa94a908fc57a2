package session

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/oap"
)

// Error makes a FailReason usable as the cause of an error.
func (r FailReason) Error() string { return "handshake: " + string(r) }

func protocolMismatch(got string) error {
	if got == "" {
		got = "none"
	}
	return &fault.Error{Op: "overlay.handshake", Kind: fault.Malformed, Detail: "the other side speaks " + got + " and not " + alpn, Err: FailedALPN,
		Next: "Check the port: the default port of an overlay is 9500."}
}

func wrongKey(kind string) error {
	return &fault.Error{Op: "overlay.handshake", Kind: fault.Unauthorized, Detail: "the certificate holds no Ed25519 key but " + kind, Err: FailedIdentity,
		Next: "Every node shows a self-signed certificate with its Ed25519 key; this is something else."}
}

func wrongPeer(want, found oap.PeerID) error {
	return &fault.Error{Op: "overlay.dial", Kind: fault.Unauthorized, Detail: "peer " + found.String() + " answers there, and not " + want.String(), Err: FailedIdentity,
		Next: "If the node has a new identity, remove the old entry with `micronode peers rm` and add the new one; otherwise another node has its address."}
}

func selfError() error {
	return &fault.Error{Op: "overlay.handshake", Kind: fault.Unauthorized, Detail: "the other side has our own key", Err: FailedIdentity,
		Next: "Remove this node's own address from its peers; if another machine answers there, give it an identity of its own with `micronode identity new`."}
}

func timeoutError(op, what string) error {
	return &fault.Error{Op: op, Kind: fault.Timeout, Detail: what,
		Next: "Check that the peer is up and the network between the two carries more than a few bytes a second."}
}

func protocolError(op, format string, args ...any) error {
	return fault.New(op, fault.Malformed, format, args...).
		Advise("The peer's program breaks a rule of OAP/1; docs/oap1.md lists the rules.")
}

// The errors that an Outgoing is refused with.
var (
	errRefusesNew = &fault.Error{Op: "overlay.send", Kind: fault.NotReady, Detail: "one of the two peers drains, so nothing new is started", Next: "Ask another peer."}
	errClosed     = &fault.Error{Op: "overlay.send", Kind: fault.Canceled, Detail: "the session is over", Next: "Ask another peer.", Err: flow.ErrClosed}
	errExpired    = &fault.Error{Op: "overlay.send", Kind: fault.Expired, Detail: "the frame expired in the queue"}
)

var (
	errTaskDied        = &fault.Error{Op: "overlay.session", Kind: fault.Internal, Detail: "a task of the session died"}
	errAborted         = &fault.Error{Op: "overlay.session", Kind: fault.Canceled, Detail: "the session was cut"}
	errTooManySessions = &fault.Error{Op: "overlay.session", Kind: fault.Busy, Detail: "no more sessions can be run", Next: "Raise overlay.max_conns, or retry later."}

	errHandshakeDied = &fault.Error{Op: "overlay.handshake", Kind: fault.Internal, Detail: "the task of the handshake died", Err: FailedError}

	errDraining = &fault.Error{Op: "overlay.handshake", Kind: fault.NotReady, Detail: "this node is draining", Next: "Retry later."}
	errFlooded  = &fault.Error{Op: "overlay.write", Kind: fault.BrokenPipe, Detail: "the peer asks for new keys and does not read"}
)

// peerError marks an error that the peer sent.
type peerError struct{ error }

func (p peerError) Unwrap() error { return p.error }

// timedOut reports whether a deadline passed: that of the connection, or that of
// the context.
func timedOut(err error) bool {
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded)
}

// remoteAlert returns the alert that the peer's TLS sent, or empty.
func remoteAlert(err error) string {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "remote error" {
		return op.Err.Error()
	}
	return ""
}

// noProtocol is the text of the TLS alert no_application_protocol.
var noProtocol = tls.AlertError(120).Error()

// failReason classifies the error of a handshake.
func failReason(err error) FailReason {
	if reason, ok := errors.AsType[FailReason](err); ok {
		return reason
	}
	switch alert := remoteAlert(err); {
	case timedOut(err) || fault.KindOf(err) == fault.Timeout:
		return FailedTimeout
	case alert == noProtocol:
		return FailedALPN
	case alert != "":
		return FailedTLS
	case isDisconnect(err):
		return FailedBroken
	}
	switch oap.CodeOf(err) {
	case oap.BadVersion:
		return FailedVersion
	case oap.Unauth:
		return FailedUnauth
	case oap.Busy, oap.QuotaExceeded:
		return FailedBusy
	case oap.NotReady:
		if kind := fault.KindOf(err); kind != fault.NotReady && kind != fault.Canceled {
			return FailedError
		}
		return FailedNotReady
	}
	return FailedMalformed
}

// isDisconnect reports whether the connection ended without a reason.
func isDisconnect(err error) bool {
	return fault.KindOf(err) == fault.BrokenPipe || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed)
}

// closeReason classifies the error that a session was closed with.
func closeReason(err error) CloseReason {
	switch {
	case err == nil:
		return ClosedBye
	case oap.ReasonOf(err) == oap.BadSig:
		return ClosedForged
	}
	switch oap.CodeOf(err) {
	case oap.Malformed, oap.FrameTooLarge, oap.RatioCap, oap.BadVersion:
		return ClosedMalformed
	case oap.QuotaExceeded:
		return ClosedQuota
	case oap.Unauth:
		return ClosedUnauth
	case oap.Busy:
		return ClosedBusy
	}
	return ClosedError
}

// isTransient reports whether the session stays open after an error of the peer.
func isTransient(code oap.Code) bool {
	return code == oap.Busy || code == oap.QuotaExceeded || code == oap.NotReady
}

// isPermanent reports whether a retry is pointless before an operator has changed
// something, so that the backoff may be longer.
func isPermanent(err error) bool {
	if remoteAlert(err) != "" || errors.Is(err, FailedIdentity) || errors.Is(err, FailedALPN) {
		return true
	}
	if _, ok := errors.AsType[peerError](err); !ok {
		return false
	}
	code := oap.CodeOf(err)
	return code == oap.Unauth || code == oap.BadVersion || code == oap.Malformed
}
