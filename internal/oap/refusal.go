package oap

import (
	"errors"

	"micronode/fault"
)

// Code is what an error message on the wire says. It is text, because a newer
// peer may send one that we do not know, which is worth passing on all the
// same.
//
// A Code is an error, so that it can be a cause of one: what the peer said is
// kept even where several codes map to one kind of fault.
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

// kindOfCode maps every code to its nearest kind of fault. Two have another
// name: a version that we do not speak is a message that we cannot read, and
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

// Known reports whether this is one of the codes of OAP/1.
func (c Code) Known() bool { return kindOfCode[c] != 0 }

// Kind is the nearest kind of fault. An unknown code is a transient failure of
// the peer: we cannot know more.
func (c Code) Kind() fault.Kind {
	if kind, known := kindOfCode[c]; known {
		return kind
	}
	return fault.Transient
}

// Error is the code itself.
func (c Code) Error() string { return string(c) }

// CodeOf is the code to send to the peer for an error: the code that it
// carries, or the nearest one to its kind. The code of nil is empty.
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

// codeOfKind maps the kinds that never came from a frame. The rule for those
// without a code of their own: a transient one is NotReady, so the peer
// retries; a permanent one is Malformed, so it does not.
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

// The reasons, in the order in which a frame is checked.
const (
	_ Reason = iota

	TooLarge       // the length is over the cap
	TooShort       // the length does not even cover the header
	WrongVersion   // the version is not 1
	WrongTenant    // the tenant is not zero
	UnexpectedComp // compressed although compression was not agreed on
	Bomb           // decompresses to more than is allowed, or than it declares
	Damaged        // the compressed payload is no zstd frame
	BadMessage     // the payload is not a message of OAP/1
	BadGossip      // a gossip message that is not in its one encoding
	BadTopic       // a topic that breaks the rules of topics
	Unsigned       // a signature is required, and there is none
	BadSig         // a signature that does not verify
	Expired        // gossip that is older than it may be
	Future         // gossip from further ahead than clocks may differ

	reasonCount int = iota
)

var reasons = [reasonCount]struct {
	label string
	text  string
	kind  fault.Kind
	code  Code
}{
	TooLarge:       {"size", "frame too large", fault.FrameTooLarge, FrameTooLarge},
	TooShort:       {"short", "frame too short", fault.Malformed, Malformed},
	WrongVersion:   {"version", "wrong version", fault.Malformed, BadVersion},
	WrongTenant:    {"tenant", "wrong tenant", fault.Malformed, Malformed},
	UnexpectedComp: {"comp", "compressed without agreement", fault.Malformed, Malformed},
	Bomb:           {"ratio", "inflates too much", fault.RatioCap, RatioCap},
	Damaged:        {"zstd", "compressed payload is damaged", fault.Malformed, Malformed},
	BadMessage:     {"message", "not a message", fault.Malformed, Malformed},
	BadGossip:      {"letter", "gossip in another encoding", fault.Malformed, Malformed},
	BadTopic:       {"topic", "bad topic", fault.Malformed, Malformed},
	Unsigned:       {"unsigned", "not signed", fault.InvalidSig, Malformed},
	BadSig:         {"sig", "bad signature", fault.InvalidSig, Malformed},
	Expired:        {"expired", "too old", fault.Expired, Malformed},
	Future:         {"future", "from the future", fault.Malformed, Malformed},
}

// Label is the name of the reason in frame_reject_total{reason}.
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
