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

// Error makes a FailReason something that can stand among the causes of an
// error.
func (r FailReason) Error() string { return "handshake: " + string(r) }

func wrongProtocol(got string) error {
	if got == "" {
		got = "none"
	}
	return &fault.Error{Op: "overlay.handshake", Kind: fault.Malformed, Detail: "the other side speaks " + got + " and not " + alpn, Err: FailedALPN,
		Next: "Check the port: an overlay listens on 9500 unless it was told otherwise."}
}

func wrongKey(kind string) error {
	return &fault.Error{Op: "overlay.handshake", Kind: fault.Unauthorized, Detail: "the certificate holds no Ed25519 key but " + kind, Err: FailedIdentity,
		Next: "Every node shows a self-signed certificate with its Ed25519 key; this is something else."}
}

func wrongPeer(want, found oap.PeerID) error {
	return &fault.Error{Op: "overlay.dial", Kind: fault.Unauthorized, Detail: "peer " + found.String() + " answers there, and not " + want.String(), Err: FailedIdentity,
		Next: "If the node has a new identity, remove the old entry with `micronode peers rm` and add the new one; otherwise somebody else has its address."}
}

func ourselves() error {
	return &fault.Error{Op: "overlay.handshake", Kind: fault.Unauthorized, Detail: "the other side has our own key", Err: FailedIdentity,
		Next: "Remove this node's own address from its peers; if another machine answers there, give it an identity of its own with `micronode identity new`."}
}

func tooSlow(op, what string) error {
	return &fault.Error{Op: op, Kind: fault.Timeout, Detail: what,
		Next: "Check that the peer is up and the network between the two carries more than a few bytes a second."}
}

func brokenRule(op, format string, args ...any) error {
	err := fault.New(op, fault.Malformed, format, args...)
	err.Next = "The peer's program breaks a rule of OAP/1; docs/oap1.md says which ones there are."
	return err
}

// What an Out is refused with.
var (
	errQuiet = &fault.Error{Op: "overlay.send", Kind: fault.NotReady, Detail: "one of the two peers drains, so nothing new is started", Next: "Ask another peer."}
	errEnded = &fault.Error{Op: "overlay.send", Kind: fault.Canceled, Detail: "the session is over", Next: "Ask another peer.", Err: flow.ErrClosed}
	errStale = &fault.Error{Op: "overlay.send", Kind: fault.Expired, Detail: "it waited for longer than it is good for"}
)

var (
	errDied = &fault.Error{Op: "overlay.session", Kind: fault.Internal, Detail: "a task of the session died"}
	errCut  = &fault.Error{Op: "overlay.session", Kind: fault.Canceled, Detail: "the session was cut"}
	errFull = &fault.Error{Op: "overlay.session", Kind: fault.Busy, Detail: "no more sessions can be run", Next: "Raise overlay.max_conns, or come back later."}

	errStumbled = &fault.Error{Op: "overlay.handshake", Kind: fault.Internal, Detail: "the task of the handshake died", Err: FailedError}

	errDraining = &fault.Error{Op: "overlay.handshake", Kind: fault.NotReady, Detail: "this node drains", Next: "Come back later."}
	errFlooded  = &fault.Error{Op: "overlay.write", Kind: fault.BrokenPipe, Detail: "the peer asks for new keys and does not read"}
)

// said marks an error that came from the other side.
type said struct{ error }

func (s said) Unwrap() error { return s.error }

// timedOut tells whether a deadline passed: that of the connection, or that of
// the call.
func timedOut(err error) bool {
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded)
}

// remoteAlert is the alert that the other side's TLS sent, or empty.
func remoteAlert(err error) string {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "remote error" {
		return op.Err.Error()
	}
	return ""
}

// noProtocol is TLS's own word for a peer without our protocol.
var noProtocol = tls.AlertError(120).Error()

// failReason sorts the error of a handshake.
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
	case gone(err):
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

// gone tells whether the connection ended without a word.
func gone(err error) bool {
	return fault.KindOf(err) == fault.BrokenPipe || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed)
}

// closeReason sorts the error that a session was ended with.
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
	case oap.Busy:
		return ClosedBusy
	}
	return ClosedError
}

// passing tells whether an error of the peer leaves the session as it is.
func passing(code oap.Code) bool {
	return code == oap.Busy || code == oap.QuotaExceeded || code == oap.NotReady
}

// hopeless tells whether a peer that failed in this way had better be left
// alone for longer: somebody has to change something first.
func hopeless(err error) bool {
	if remoteAlert(err) != "" || errors.Is(err, FailedIdentity) || errors.Is(err, FailedALPN) {
		return true
	}
	if _, ok := errors.AsType[said](err); !ok {
		return false
	}
	code := oap.CodeOf(err)
	return code == oap.Unauth || code == oap.BadVersion || code == oap.Malformed
}
