package fault

import (
	"net/http"
	"time"
)

// Kind classifies an error. The zero Kind means "no error"; every other value
// has a row in the table. A Kind is an error by itself, for use with errors.Is
// and for refusals that have nothing to add.
type Kind uint8

// The kinds, grouped by what the caller may do about them. The order is that
// of the exit codes: new kinds go to the end.
const (
	none Kind = iota

	// Internal is our own fault, and the kind of every unclassified error.
	Internal

	// The node is loaded; the same request may succeed in a moment.

	Busy          // a bounded queue or lane is full; the work was not accepted
	RateLimited   // this caller sends too many requests
	QuotaExceeded // this caller has used up what it was granted
	Backpressure  // no permit became free before the deadline
	StorageBusy   // the storage below pushes back
	BreakerOpen   // the target failed too often; its circuit breaker is open
	NotReady      // a dependency is missing, or the node is still starting
	Canceled      // the caller left, or the node is draining
	Timeout       // the deadline passed

	// The request is wrong and stays wrong.

	Malformed        // it does not parse, or breaks the schema
	InvalidSig       // a signature does not verify
	LengthRequired   // a Content-Length is needed here
	BodyTooLarge     // the body is over the cap
	FrameTooLarge    // the frame is over the cap
	RatioCap         // it inflates beyond what is allowed
	InvalidRange     // the byte range cannot be satisfied
	MethodNotAllowed // the route does not have this method

	// The caller lacks the right.

	Unauthorized  // no capability, or one that does not verify
	Forbidden     // a capability that does not cover this
	RejectPolicy  // the operator's policy says no
	UnknownSigner // the signer is not in the signer set in force
	RevokedKey    // the key was revoked

	// The current state does not allow it.

	NotFound          // no such thing exists here
	Expired           // it existed and has expired
	Conflict          // another change came first, or a precondition no longer holds
	ChainMismatch     // the head of the log is not the one the caller built on
	DuplicateApproval // this signer has approved already
	QuorumFailed      // not enough valid approvals
	StoreFull         // the byte budget is used up

	// Another party's bytes or services failed.

	IntegrityFail  // the bytes do not match their address
	UpstreamFailed // the origin answered with a failure, or not at all

	// Inside the node; these have no HTTP status of their own.

	Lagging    // a slow reader of a bus lost the oldest events
	BrokenPipe // the peer closed while we wrote
	Degraded   // restarted too often; works, but not at full strength
	Transient  // a passing failure of a peer
	NoRoute    // no peer to ask, or none that is reachable

	// More request errors, added later: the codes keep their order.

	RequestTimeout       // the client was too slow with its own bytes
	UnsupportedMediaType // the body has a type or a coding that is not read here

	kinds int = iota
)

// row is one row of the table.
type row struct {
	code      string
	title     string
	next      string
	status    int // 0: the kind has no status of its own
	exit      int
	retryable bool
	after     time.Duration // what Retry-After says unless the error knows better
}

// table is the one place that defines what a kind means on each surface. Exit
// codes start at 10 because 1 and 2 are the shell's "failed" and "used
// wrongly", and end well below 126, where the shell's own meanings begin.
var table = [kinds]row{
	Internal: {code: "Internal", title: "Internal error", status: http.StatusInternalServerError, exit: 10,
		next: "This is a bug in micronode. Report it with the corr_id and the log lines that carry it."},

	Busy: {code: "Busy", title: "Queue full", status: http.StatusTooManyRequests, exit: 11, retryable: true, after: time.Second,
		next: "Nothing was started. Wait for Retry-After, then send the same request again, with fewer at a time."},
	RateLimited: {code: "RateLimited", title: "Too many requests", status: http.StatusTooManyRequests, exit: 12, retryable: true, after: time.Second,
		next: "Slow down to the rate in limits.rate, or ask the operator to raise it."},
	QuotaExceeded: {code: "QuotaExceeded", title: "Quota used up", status: http.StatusTooManyRequests, exit: 13, retryable: true, after: 10 * time.Second,
		next: "Wait for Retry-After, or ask for a capability with a larger quota."},
	Backpressure: {code: "Backpressure", title: "Saturated", status: http.StatusServiceUnavailable, exit: 14, retryable: true, after: time.Second,
		next: "The part that does this work is saturated. Wait for Retry-After and try again, or allow a longer deadline."},
	StorageBusy: {code: "StorageBusy", title: "Storage busy", status: http.StatusServiceUnavailable, exit: 15, retryable: true, after: time.Second,
		next: "The storage is busy. Wait for Retry-After; if it persists, check the disk or the storage engine."},
	BreakerOpen: {code: "BreakerOpen", title: "Circuit breaker open", status: http.StatusServiceUnavailable, exit: 16, retryable: true, after: 10 * time.Second,
		next: "The target failed repeatedly; it is probed again after the cool-down. Wait for Retry-After."},
	NotReady: {code: "NotReady", title: "Not ready", status: http.StatusServiceUnavailable, exit: 17, retryable: true, after: time.Second,
		next: "Check /readyz or `micronode status` for the reasons and next steps."},
	Canceled: {code: "Canceled", title: "Canceled", status: http.StatusServiceUnavailable, exit: 18, after: time.Second,
		next: "The client disconnected, or this node is draining. Send the request to another node, or here again after Retry-After."},
	Timeout: {code: "Timeout", title: "Deadline passed", status: http.StatusGatewayTimeout, exit: 19, retryable: true,
		next: "Repeat the request only if it is idempotent, with a longer deadline if the route allows one."},

	Malformed: {code: "Malformed", title: "Malformed", status: http.StatusBadRequest, exit: 20,
		next: "Correct the request as the detail says; do not repeat it unchanged."},
	InvalidSig: {code: "InvalidSig", title: "Signature does not verify", status: http.StatusBadRequest, exit: 21,
		next: "Sign exactly the bytes that were given to sign, with the key that the signer ID names."},
	LengthRequired: {code: "LengthRequired", title: "Length required", status: http.StatusLengthRequired, exit: 22,
		next: "Send a Content-Length."},
	BodyTooLarge: {code: "BodyTooLarge", title: "Body too large", status: http.StatusRequestEntityTooLarge, exit: 23,
		next: "Send less than the cap, or use the streaming route (POST /o)."},
	FrameTooLarge: {code: "FrameTooLarge", title: "Frame too large", status: http.StatusRequestEntityTooLarge, exit: 24,
		next: "Keep the payload of a frame within 1 MiB; send larger content as a stream of chunks."},
	RatioCap: {code: "RatioCap", title: "Inflates too much", status: http.StatusRequestEntityTooLarge, exit: 25,
		next: "Send the body uncompressed, or compressed at less than the ratio cap."},
	InvalidRange: {code: "InvalidRange", title: "Range not satisfiable", status: http.StatusRequestedRangeNotSatisfiable, exit: 26,
		next: "Ask for one range inside the size that Content-Range gives."},
	MethodNotAllowed: {code: "MethodNotAllowed", title: "Method not allowed", status: http.StatusMethodNotAllowed, exit: 27,
		next: "Use one of the methods in the Allow header; GET /openapi.json lists them all."},

	Unauthorized: {code: "Unauthorized", title: "Not authorised", status: http.StatusUnauthorized, exit: 28,
		next: "Send a capability as `Authorization: Bearer …`; `micronode token mint --scope …` makes one."},
	Forbidden: {code: "Forbidden", title: "Not allowed", status: http.StatusForbidden, exit: 29,
		next: "The capability does not cover this. Ask for one with the scope that the detail names."},
	RejectPolicy: {code: "RejectPolicy", title: "Refused by policy", status: http.StatusForbidden, exit: 30,
		next: "The operator of the node must allow it first; the detail names the setting."},
	UnknownSigner: {code: "UnknownSigner", title: "Unknown signer", status: http.StatusForbidden, exit: 31,
		next: "Use a key of the signer set in force; `micronode registry show` lists them."},
	RevokedKey: {code: "RevokedKey", title: "Key revoked", status: http.StatusForbidden, exit: 32,
		next: "This key was removed. Approve with a key of the signer set in force."},

	NotFound: {code: "NotFound", title: "Not found", status: http.StatusNotFound, exit: 33,
		next: "Check the address or name; a RAM-only node loses everything at exit."},
	Expired: {code: "Expired", title: "Expired", status: http.StatusGone, exit: 34,
		next: "It has expired. Create a new one."},
	Conflict: {code: "Conflict", title: "Conflict", status: http.StatusConflict, exit: 35,
		next: "Read the current state, decide again, and send a new request."},
	ChainMismatch: {code: "ChainMismatch", title: "Head has moved", status: http.StatusConflict, exit: 36, retryable: true,
		next: "Read /registry/head and build on that version."},
	DuplicateApproval: {code: "DuplicateApproval", title: "Approved already", status: http.StatusConflict, exit: 37,
		next: "This signer's approval is counted. Another signer must approve."},
	QuorumFailed: {code: "QuorumFailed", title: "Not enough approvals", status: http.StatusConflict, exit: 38,
		next: "Collect the missing approvals, then commit again."},
	StoreFull: {code: "StoreFull", title: "Store full", status: http.StatusInsufficientStorage, exit: 39,
		next: "Remove objects, or raise store.ram_bytes (or the quota of the store in use)."},

	IntegrityFail: {code: "IntegrityFail", title: "Bytes do not match their address", status: http.StatusBadGateway, exit: 40,
		next: "No corrupt bytes were stored. Fetch from another provider, or put the object again."},
	UpstreamFailed: {code: "UpstreamFailed", title: "Origin failed", status: http.StatusBadGateway, exit: 41, retryable: true,
		next: "Check that the origin is up and reachable from this node, then try again."},

	Lagging: {code: "Lagging", title: "Reader too slow", exit: 42,
		next: "Events were lost. Read the current state once, then continue with the stream."},
	BrokenPipe: {code: "BrokenPipe", title: "Peer disconnected", exit: 43, retryable: true,
		next: "Reconnect; repeat the request only if it is idempotent."},
	Degraded: {code: "Degraded", title: "Degraded", exit: 44,
		next: "A service restarts too often. `micronode status` names it and its last error."},
	Transient: {code: "Transient", title: "Passing failure", exit: 45, retryable: true,
		next: "Try again after a moment."},
	NoRoute: {code: "NoRoute", title: "No route", exit: 46, retryable: true,
		next: "Add peers (`micronode peers add ID@HOST:PORT`) or wait until one is reachable."},

	RequestTimeout: {code: "RequestTimeout", title: "Request too slow", status: http.StatusRequestTimeout, exit: 47, retryable: true,
		next: "Nothing was done. Send the whole request again, without pauses in it."},
	UnsupportedMediaType: {code: "UnsupportedMediaType", title: "Type or coding not supported", status: http.StatusUnsupportedMediaType, exit: 48,
		next: "Send the body as the detail says; GET /openapi.json names the types that each route reads."},
}

// Kinds lists every kind in the order of the table.
func Kinds() []Kind {
	all := make([]Kind, 0, kinds-1)
	for k := Internal; int(k) < kinds; k++ {
		all = append(all, k)
	}
	return all
}

// ParseKind is the inverse of [Kind.Code], for programs that read a problem
// document. It returns false for a code that this version does not know, so
// that the reader can fall back on the HTTP status.
func ParseKind(code string) (Kind, bool) {
	for k := Internal; int(k) < kinds; k++ {
		if table[k].code == code {
			return k, true
		}
	}
	return Internal, false
}

// row returns the kind's row. A value outside the table is a bug of ours and
// reads as Internal.
func (k Kind) row() *row {
	if k == none || int(k) >= kinds {
		return &table[Internal]
	}
	return &table[k]
}

// Code is the stable name of the kind: the "code" of a problem document and
// the label value of metrics.
func (k Kind) Code() string { return k.row().code }

// String is Code.
func (k Kind) String() string { return k.Code() }

// Error makes a bare Kind an error.
func (k Kind) Error() string { return k.row().title }

// Title is a short phrase for people.
func (k Kind) Title() string { return k.row().title }

// Next is the next step, in one or two sentences.
func (k Kind) Next() string { return k.row().next }

// Retryable reports whether the same request may succeed later. It says
// nothing about whether repeating it is safe: only the caller can know that.
func (k Kind) Retryable() bool { return k.row().retryable }

// RetryAfter is the pause to suggest when nothing better is known; zero where
// a Retry-After header is not part of the contract.
func (k Kind) RetryAfter() time.Duration { return k.row().after }

// Exit is the exit code of a command that ends with this kind.
func (k Kind) Exit() int { return k.row().exit }

// HasStatus reports whether the contract gives the kind an HTTP status.
func (k Kind) HasStatus() bool { return k.row().status != 0 }

// Status is the HTTP status of the kind. A kind without one of its own is not
// meant for an HTTP answer; if one gets there anyway, it is 503 where a retry
// makes sense and 500 where it does not.
func (k Kind) Status() int {
	e := k.row()
	switch {
	case e.status != 0:
		return e.status
	case e.retryable:
		return http.StatusServiceUnavailable
	default:
		return http.StatusInternalServerError
	}
}
