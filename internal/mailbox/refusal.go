package mailbox

import "micronode/fault"

// Errors that all engines share.

// NoMessage is the error for a box without a message that can be leased.
func NoMessage(op string) error {
	return &fault.Error{Op: op, Kind: fault.NotFound, Detail: "the box has no message that can be leased",
		Next: "Retry later, or wait longer."}
}

// NoLease is the error for a receipt that is not valid any more.
func NoLease(op string) error {
	return &fault.Error{Op: op, Kind: fault.NotFound, Detail: "the receipt has expired, belongs to another box, or was already used",
		Next: "Receive the message again. For more time, use a longer visibility time-out, or extend the lease."}
}

// NoDeadLetter is the error for an ID without a dead letter.
func NoDeadLetter(op string) error {
	return &fault.Error{Op: op, Kind: fault.NotFound, Detail: "the box has no dead letter with this ID",
		Next: "List them with `micronode mbox dlq BOX`. The letter may have been resent or dropped."}
}

// damagedBody is the error for a message whose body is damaged on disk.
func damagedBody(op string) error {
	return &fault.Error{Op: op, Kind: fault.IntegrityFail, Detail: "the body of the message is damaged on disk",
		Next: "Receive again for the next message. This one is now a dead letter without a body: drop it, have it sent again, and check the disk."}
}

// diskNotResponding is the error for a read that the disk does not answer.
func diskNotResponding(op string) error {
	return &fault.Error{Op: op, Kind: fault.StorageBusy, Detail: "the disk does not answer",
		Next: "Retry later: the message is kept. Check the disk of the --persist folder."}
}

// NoRoom is the error for something that is full.
func NoRoom(op, format string, args ...any) error {
	return fault.New(op, fault.Busy, format, args...).
		Advise("Retry after messages were acknowledged, or raise the limits in [mailbox].")
}

// badKey is the error for an invalid key.
func badKey(op string) error {
	return &fault.Error{Op: op, Kind: fault.Malformed, Detail: "the Idempotency-Key is too long, or not text", Next: "Send 255 characters or fewer, such as a UUID."}
}

// KeyReused is the error for a key that was used for another message.
func KeyReused(op string) error {
	return &fault.Error{Op: op, Kind: fault.Conflict, Detail: "this Idempotency-Key was sent with another message",
		Next: "Use a new key for each message, and the same key only to repeat it."}
}
