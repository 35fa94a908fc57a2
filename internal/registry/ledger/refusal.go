package ledger

import (
	"fmt"

	"micronode/fault"
)

// maxQuoted is how much of somebody else's text is repeated to them.
const maxQuoted = 64

// Next steps that more than one refusal names.
const (
	nextPropose = "Propose the change again: the new proposal is built on the present state, and has to be approved again."
	nextDamaged = "Do not go on with this copy of the log. Compare it with another copy, or restore it from a backup, and verify it with `micronode registry verify`."
	nextCorrect = "Correct the request as the detail says, and send it again."
)

// refuse makes an error of a kind with a next step that fits the case.
func refuse(op string, kind fault.Kind, next, format string, args ...any) *fault.Error {
	err := fault.New(op, kind, format, args...)
	err.Next = next
	return err
}

// malformed is for what breaks the schema and is still only a request.
func malformed(op, format string, args ...any) *fault.Error {
	return refuse(op, fault.Malformed, nextCorrect, format, args...)
}

// quote shows a stranger's text without control characters, and not too much
// of it.
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
