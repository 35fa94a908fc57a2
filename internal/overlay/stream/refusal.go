package stream

import (
	"micronode/b3"
	"micronode/fault"
	"micronode/internal/oap"
)

// The operations that errors of this room name.
const (
	opFetch   = "stream.fetch"
	opGive    = "stream.give"
	opMessage = "stream.message"
)

// Labels of [Counters.Ended] that are not on the wire.
const (
	lost  = "lost"  // the connection went away under the stream
	other = "other" // a status that this version has no word for
)

// statuses are the words of OAP/1 for the end of a stream, and the kind of
// fault that each of them is to the one who asked. They are the codes of our
// kinds, and mean the same, with one exception: a giver that cancels is not
// ready to give, while our own Canceled says that the caller left.
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
	all := []string{oap.StatusOK, lost, other}
	for status := range statuses {
		all = append(all, status)
	}
	return all
}

// statusOf is what the end of a stream says about an error. A kind that
// OAP/1 has no word for is said by the nearest one; where there is none, by its
// own name, which the asker takes for a failure that may pass.
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

// labelOf keeps the words of strangers out of metrics.
func labelOf(status string) string {
	if _, known := statuses[status]; known || status == oap.StatusOK {
		return status
	}
	return other
}

// refusalOf is the error that a giver's status stands for; nil for ok. A word
// that we do not know is a failure that may pass: that much the protocol
// promises, and no more. So is the Internal of a giver, which is its fault and
// not ours.
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

// final tells whether a peer that failed so is not worth asking again for the
// same object: it does not have it, will not give it, or cannot be trusted with
// it. Everything else may pass.
func final(err error) bool {
	switch fault.KindOf(err) {
	case fault.NotFound, fault.InvalidRange, fault.Malformed, fault.Forbidden, fault.IntegrityFail, fault.UpstreamFailed:
		return true
	}
	return false
}

// broken is the error for a message that breaks a rule of streams. It ends the
// session.
func broken(format string, args ...any) error {
	return fault.New(opMessage, fault.Malformed, format, args...)
}

// unasked is the error when a session does not take our question. If it was
// canceled, it is the session that goes away, and not the caller.
func unasked(err error) error {
	if fault.KindOf(err) == fault.Canceled {
		return gone
	}
	return fault.Wrap(opFetch, err)
}
