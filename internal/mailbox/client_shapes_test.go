package mailbox

import (
	"testing"

	"micronode/client"
	"micronode/internal/testkit"
)

func TestTheClientReadsWhatTheMailboxAnswers(t *testing.T) {
	testkit.SameJSON[Delivery, client.Mail](t)
	testkit.SameJSON[deadLetters, client.DeadLetters](t)
}
