package session

import (
	"slices"

	"micronode/internal/oap"
)

// CloseReason says why a session ended. The set is fixed, so that it can label
// a counter.
type CloseReason string

// Why a session ended: the first cause counts, from either side.
const (
	ClosedBye       CloseReason = "bye"       // one of the two sent a bye
	ClosedDuplicate CloseReason = "duplicate" // there is a better connection to the same peer
	ClosedDrain     CloseReason = "drain"     // this node drains
	ClosedRemoved   CloseReason = "removed"   // the peer is no longer a contact
	ClosedEOF       CloseReason = "eof"       // the peer closed between two frames
	ClosedBroken    CloseReason = "broken"    // the connection broke
	ClosedIdle      CloseReason = "idle"      // no frame arrived for too long
	ClosedProgress  CloseReason = "progress"  // the peer stopped inside a frame
	ClosedWrite     CloseReason = "write"     // the peer did not read
	ClosedMalformed CloseReason = "malformed" // the peer broke a rule
	ClosedForged    CloseReason = "forged"    // the peer sent a message with a wrong signature
	ClosedUnauth    CloseReason = "unauth"    // the peer is no longer authorised: its token expired or was revoked
	ClosedQuota     CloseReason = "quota"     // the peer took more than it was granted
	ClosedBusy      CloseReason = "busy"      // no room for the session's tasks
	ClosedAborted   CloseReason = "aborted"   // its tasks were cancelled, or the drain took too long
	ClosedRefused   CloseReason = "refused"   // the peer sent an error and closed
	ClosedError     CloseReason = "error"     // a failure of our own
)

var closeReasons = []CloseReason{
	ClosedBye, ClosedDuplicate, ClosedDrain, ClosedRemoved, ClosedEOF, ClosedBroken, ClosedIdle, ClosedProgress,
	ClosedWrite, ClosedMalformed, ClosedForged, ClosedUnauth, ClosedQuota, ClosedBusy, ClosedAborted, ClosedRefused, ClosedError,
}

// CloseReasons lists every reason, for counters that exist before they count.
func CloseReasons() []CloseReason { return slices.Clone(closeReasons) }

// FailReason says why a connection never became a session. The set is fixed,
// so that it can label a counter.
type FailReason string

// Why there was no session.
const (
	FailedTimeout   FailReason = "timeout"   // it took too long
	FailedDial      FailReason = "dial"      // nothing answers at the address
	FailedTLS       FailReason = "tls"       // TLS failed: no common version or group, an alert, garbage
	FailedALPN      FailReason = "alpn"      // the peer does not offer ron/oap1
	FailedIdentity  FailReason = "identity"  // no Ed25519 certificate, another peer than the one we dialled, or ourselves
	FailedUnauth    FailReason = "unauth"    // one of the two does not admit the other
	FailedVersion   FailReason = "version"   // no version in common
	FailedRate      FailReason = "rate"      // too many connections in a short time
	FailedBusy      FailReason = "busy"      // too many connections
	FailedMalformed FailReason = "malformed" // a rule of the handshake was broken
	FailedNotReady  FailReason = "notready"  // one of the two is starting or draining
	FailedBroken    FailReason = "broken"    // the connection ended
	FailedError     FailReason = "error"     // anything else
)

var failReasons = []FailReason{
	FailedTimeout, FailedDial, FailedTLS, FailedALPN, FailedIdentity, FailedUnauth, FailedVersion,
	FailedRate, FailedBusy, FailedMalformed, FailedNotReady, FailedBroken, FailedError,
}

// FailReasons lists every reason, for counters that exist before they count.
func FailReasons() []FailReason { return slices.Clone(failReasons) }

// Counters are called when something happens. Any may be nil; none may block.
type Counters struct {
	Opened           func()
	Closed           func(CloseReason)
	HandshakeTimeout func()
	HandshakeFailed  func(FailReason)
	Negotiated       func(outcome string) // hybrid or classical: the group of a finished TLS handshake
	Rejected         func(oap.Reason)     // a frame that broke a rule
	Gossip           func(dir string, frames, bytes int)
	Timeout          func(op string)   // read, write, idle, handshake, connect
	IOFailed         func(op string)   // I/O that failed otherwise: read, write, connect
	Backpressure     func(size string) // gossip that found no room; tiny, small, med, large by the frames in the queue
	Expired          func(n int)       // frames that expired in the queue
	Retry            func()            // a peer is dialled again

	// RateLimited is called for each frame that was dropped because the peer sends
	// more than the limit.
	RateLimited func(s *Session, limit int)
}

// The directions of Counters.Gossip.
const (
	dirSent     = "tx"
	dirReceived = "rx"
)

// withDefaults replaces nil functions by ones that do nothing, so that callers
// need no check.
func (c Counters) withDefaults() Counters {
	for _, count := range []*func(){&c.Opened, &c.HandshakeTimeout, &c.Retry} {
		if *count == nil {
			*count = func() {}
		}
	}
	for _, count := range []*func(string){&c.Negotiated, &c.Timeout, &c.IOFailed, &c.Backpressure} {
		if *count == nil {
			*count = func(string) {}
		}
	}
	for _, count := range []*func(int){&c.Expired} {
		if *count == nil {
			*count = func(int) {}
		}
	}
	if c.RateLimited == nil {
		c.RateLimited = func(*Session, int) {}
	}
	if c.Closed == nil {
		c.Closed = func(CloseReason) {}
	}
	if c.HandshakeFailed == nil {
		c.HandshakeFailed = func(FailReason) {}
	}
	if c.Rejected == nil {
		c.Rejected = func(oap.Reason) {}
	}
	if c.Gossip == nil {
		c.Gossip = func(string, int, int) {}
	}
	return c
}

// backpressureSize maps a number of queued frames to the sizes of Backpressure.
func backpressureSize(waiting int) string {
	switch {
	case waiting < 8:
		return "tiny"
	case waiting < 64:
		return "small"
	case waiting < 256:
		return "med"
	}
	return "large"
}
