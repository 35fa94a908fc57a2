package mailbox

import "micronode/fault"

// What every engine refuses, in the same words.

// NoMessage says that a box is empty.
func NoMessage(op string) error {
	return &fault.Error{Op: op, Kind: fault.NotFound, Detail: "there is no message that can be had",
		Next: "Ask again later, or wait longer for one."}
}

// NoLease says that a receipt stands for nothing any more.
func NoLease(op string) error {
	return &fault.Error{Op: op, Kind: fault.NotFound, Detail: "the receipt is late, foreign or used up",
		Next: "Receive the message again; to have more time for it, ask for a longer visibility time-out, or extend the lease."}
}

// NoRoom says that something is full.
func NoRoom(op, format string, args ...any) error {
	err := fault.New(op, fault.Busy, format, args...)
	err.Next = "Try again when messages were received and acknowledged, or raise the limits in [mailbox]."
	return err
}

// badKey says that a key cannot be kept.
func badKey(op string) error {
	return &fault.Error{Op: op, Kind: fault.Malformed, Detail: "the Idempotency-Key is too long, or no text", Next: "Send 255 characters or fewer, such as a UUID."}
}

// SameKey says that a key was used for something else.
func SameKey(op string) error {
	return &fault.Error{Op: op, Kind: fault.Conflict, Detail: "this Idempotency-Key was sent with another message",
		Next: "Use a new key for each message, and the same one only to repeat it."}
}
