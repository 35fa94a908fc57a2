package oap

import (
	"errors"

	"micronode/fault"
)

// Code is what an error message on the wire says. It is text, because a newer
// peer may send one that we do not know, and its words are worth passing on
// all the same.
//
// A Code is an error, so that it can stand among the causes of one: what the
// peer said is kept even where several codes map to one kind of fault.
type Code string

// The codes of OAP/1.
const (
	BadVersion    Code = "BadVersion"
	FrameTooLarge Code = "FrameTooLarge"
	RatioCap      Code = "RatioCap"
	QuotaExceeded Code = "QuotaExceeded"
	Busy          Code = "Busy"
	NotReady      Code = "NotReady"
	Unauth        Code = "Unauth"
	Timeout       Code = "Timeout"
	Malformed     Code = "Malformed"
)

// kindOfCode gives every code its nearest kind of fault. Two are not the same
// word: a version that we do not speak is a message that we cannot read, and
// Unauth is short for Unauthorized.
var kindOfCode = map[Code]fault.Kind{
	BadVersion:    fault.Malformed,
	FrameTooLarge: fault.FrameTooLarge,
	RatioCap:      fault.RatioCap,
	QuotaExceeded: fault.QuotaExceeded,
	Busy:          fault.Busy,
	NotReady:      fault.NotReady,
	Unauth:        fault.Unauthorized,
	Timeout:       fault.Timeout,
	Malformed:     fault.Malformed,
}

// Known tells whether this is one of the codes of OAP/1.
func (c Code) Known() bool { return kindOfCode[c] != 0 }

// Kind is the nearest kind of fault. A code that we do not know is a passing
// failure of the peer: we cannot tell more.
func (c Code) Kind() fault.Kind {
	if kind, known := kindOfCode[c]; known {
		return kind
	}
	return fault.Transient
}

// Error is the code itself.
func (c Code) Error() string { return string(c) }

// CodeOf is what to tell the peer about an error: the code that it carries, or
// the nearest one to its kind. The code of nil is empty.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	if code, ok := errors.AsType[Code](err); ok && code.Known() {
		return code
	}
	if reason, ok := errors.AsType[Reason](err); ok {
		return reasons[reason].code
	}
	return codeOfKind(fault.KindOf(err))
}

// codeOfKind serves the kinds that never came from a frame. The rule for those
// without a code of their own: what may pass is NotReady, so the peer comes
// back; what stays wrong is Malformed, so it does not.
func codeOfKind(kind fault.Kind) Code {
	switch kind {
	case fault.Busy, fault.Backpressure, fault.StorageBusy, fault.Lagging:
		return Busy
	case fault.QuotaExceeded, fault.RateLimited, fault.StoreFull:
		return QuotaExceeded
	case fault.Timeout:
		return Timeout
	case fault.FrameTooLarge, fault.BodyTooLarge:
		return FrameTooLarge
	case fault.RatioCap:
		return RatioCap
	case fault.Unauthorized, fault.Forbidden, fault.RejectPolicy, fault.UnknownSigner, fault.RevokedKey:
		return Unauth
	case fault.Internal, fault.Canceled, fault.Degraded:
		return NotReady
	}
	if kind.Retryable() {
		return NotReady
	}
	return Malformed
}

// Reason says which rule a frame or message broke. The set is fixed and small,
// so that it can label a counter. A Reason is an error, for errors.Is.
type Reason uint8

// The reasons, in the order in which a frame meets them.
const (
	_ Reason = iota

	TooLarge     // the length is over the cap
	TooShort     // the length does not even cover the header
	WrongVersion // the version is not 1
	WrongTenant  // the tenant is not zero
	CompEarly    // compressed although nobody agreed on compression
	Bomb         // inflates to more than is allowed, or than it declares
	Damaged      // the compressed payload is no zstd frame
	BadMessage   // the payload is not a message of OAP/1
	BadLetter    // a gossip's inner message is not in its one encoding
	BadTopic     // a topic that breaks the rules of topics
	Unsigned     // a signature is wanted, and there is none
	BadSig       // a signature that does not verify
	Stale        // gossip that is older than it may be
	Future       // gossip from further ahead than clocks may differ

	reasonCount int = iota
)

var reasons = [reasonCount]struct {
	label string
	text  string
	kind  fault.Kind
	code  Code
}{
	TooLarge:     {"size", "frame too large", fault.FrameTooLarge, FrameTooLarge},
	TooShort:     {"short", "frame too short", fault.Malformed, Malformed},
	WrongVersion: {"version", "wrong version", fault.Malformed, BadVersion},
	WrongTenant:  {"tenant", "wrong tenant", fault.Malformed, Malformed},
	CompEarly:    {"comp", "compressed without agreement", fault.Malformed, Malformed},
	Bomb:         {"ratio", "inflates too much", fault.RatioCap, RatioCap},
	Damaged:      {"zstd", "compressed payload is damaged", fault.Malformed, Malformed},
	BadMessage:   {"message", "not a message", fault.Malformed, Malformed},
	BadLetter:    {"letter", "gossip in another encoding", fault.Malformed, Malformed},
	BadTopic:     {"topic", "bad topic", fault.Malformed, Malformed},
	Unsigned:     {"unsigned", "not signed", fault.InvalidSig, Malformed},
	BadSig:       {"sig", "bad signature", fault.InvalidSig, Malformed},
	Stale:        {"expired", "too old", fault.Expired, Malformed},
	Future:       {"future", "from the future", fault.Malformed, Malformed},
}

// Label is what the reason is called in frame_reject_total{reason}.
func (r Reason) Label() string { return reasons[r].label }

// Error says what is wrong in a few words.
func (r Reason) Error() string { return reasons[r].text }

// Reasons lists every reason, for counters that exist before they count.
func Reasons() []Reason {
	all := make([]Reason, 0, reasonCount-1)
	for r := TooLarge; int(r) < reasonCount; r++ {
		all = append(all, r)
	}
	return all
}

// ReasonOf finds the rule that was broken among the causes of an error. It is
// zero for an error that is not about the bytes of the peer.
func ReasonOf(err error) Reason {
	reason, _ := errors.AsType[Reason](err)
	return reason
}

// refuse makes the error for a broken rule.
func refuse(op string, reason Reason, format string, args ...any) error {
	err := fault.New(op, reasons[reason].kind, format, args...)
	err.Err = reason
	return err
}
