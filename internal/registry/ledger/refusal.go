package ledger

import (
	"fmt"

	"micronode/fault"
)

// maxQuoted is how much foreign text an error message repeats.
const maxQuoted = 64

// Next steps that more than one refusal names.
const (
	nextPropose = "Propose the change again: the new proposal is based on the current state, and needs new approvals."
	nextDamaged = "Do not use this copy of the log. Compare it with another copy, or restore it from a backup, and verify it with `micronode registry verify`."
	nextCorrect = "Correct the request as the detail says, and send it again."
)

// refuse makes an error of a kind with a next step that fits the case.
func refuse(op string, kind fault.Kind, next, format string, args ...any) *fault.Error {
	return fault.New(op, kind, format, args...).Advise(next)
}

// malformed is the error for a request that breaks the schema.
func malformed(op, format string, args ...any) *fault.Error {
	return refuse(op, fault.Malformed, nextCorrect, format, args...)
}

// quote shows foreign text without control characters, shortened.
func quote(text string) string {
	if len(text) > maxQuoted {
		return fmt.Sprintf("%q…", text[:maxQuoted])
	}
	return fmt.Sprintf("%q", text)
}

// shorten is quote for ASCII that needs no quotes.
func shorten(text string) string {
	if len(text) > maxQuoted {
		return text[:maxQuoted] + "…"
	}
	return text
}
