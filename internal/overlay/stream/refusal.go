package stream

import (
	"micronode/b3"
	"micronode/fault"
	"micronode/internal/oap"
)

// The operations that errors of this package name.
const (
	opFetch   = "stream.fetch"
	opGive    = "stream.give"
	opMessage = "stream.message"
)

// Labels of [Counters.Ended] that are not on the wire.
const (
	labelLost  = "lost"  // the connection was lost
	labelOther = "other" // a status that this version does not know
)

// statuses are the statuses of OAP/1 for the end of a stream, and the kind of
// fault that each of them is to the receiver. They are the codes of our kinds,
// and mean the same, with one exception: a sender that cancels is not ready to
// send, while our own Canceled says that the caller's context ended.
var statuses = map[string]fault.Kind{
	"NotFound":      fault.NotFound,
	"InvalidRange":  fault.InvalidRange,
	"Malformed":     fault.Malformed,
	"Busy":          fault.Busy,
	"QuotaExceeded": fault.QuotaExceeded,
	"NotReady":      fault.NotReady,
	"Canceled":      fault.NotReady,
	"Timeout":       fault.Timeout,
	"Forbidden":     fault.Forbidden,
	"IntegrityFail": fault.IntegrityFail,
}

// Statuses lists every label of [Counters.Ended], for counters that exist
// before they count.
func Statuses() []string {
	all := []string{oap.StatusOK, labelLost, labelOther}
	for status := range statuses {
		all = append(all, status)
	}
	return all
}

// statusOf returns the status for an error. A kind that OAP/1 does not have
// becomes the nearest one; where there is none, its own name, which the
// receiver treats as transient.
func statusOf(err error) string {
	if err == nil {
		return oap.StatusOK
	}
	switch kind := fault.KindOf(err); kind {
	case fault.Backpressure, fault.StorageBusy:
		return fault.Busy.Code()
	case fault.RateLimited:
		return fault.QuotaExceeded.Code()
	case fault.Degraded, fault.BreakerOpen:
		return fault.NotReady.Code()
	case fault.Unauthorized, fault.RejectPolicy:
		return fault.Forbidden.Code()
	case fault.Expired:
		return fault.NotFound.Code()
	default:
		return kind.Code()
	}
}

// labelOf keeps statuses that peers make up out of metrics.
func labelOf(status string) string {
	if _, known := statuses[status]; known || status == oap.StatusOK {
		return status
	}
	return labelOther
}

// refusalOf returns the error for a sender's status; nil for ok. An unknown
// status is transient: that much the protocol promises, and no more. So is the
// Internal of a sender, which is its fault and not ours.
func refusalOf(status string, peer oap.PeerID, address b3.Address) error {
	if status == oap.StatusOK {
		return nil
	}
	kind, known := statuses[status]
	if !known {
		return fault.New(opFetch, fault.Transient, "peer %s ended the stream of %s with %q", peer, address, status)
	}
	return fault.New(opFetch, kind, "peer %s says %s about %s", peer, status, address)
}

// isPermanent reports whether a peer that failed so should not be asked again
// for the same object: it does not have it, refuses it, or cannot be trusted
// with it. Everything else may be transient.
func isPermanent(err error) bool {
	switch fault.KindOf(err) {
	case fault.NotFound, fault.InvalidRange, fault.Malformed, fault.Forbidden, fault.IntegrityFail, fault.UpstreamFailed:
		return true
	}
	return false
}

// protocolError is the error for a message that breaks a rule of streams. It
// ends the session.
func protocolError(format string, args ...any) error {
	return fault.New(opMessage, fault.Malformed, format, args...)
}

// sendError is the error when a session rejects a request. If that was
// canceled, the session ended, and not the caller's context.
func sendError(err error) error {
	if fault.KindOf(err) == fault.Canceled {
		return errSessionLost
	}
	return fault.Wrap(opFetch, err)
}
