package mailbox

import (
	"encoding/binary"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"micronode/b3"
	"micronode/fault"
)

// Limits is what an engine lets itself be filled with. Zero is zero, except
// where it says otherwise.
type Limits struct {
	Bytes       int64 // of everything together
	Boxes       int
	BoxMessages int
	BoxBytes    int64
	MaxMessage  int // bytes of a body

	MaxDeliveries int           // of a message that does not say
	Visibility    time.Duration // of a lease that does not say
	MaxVisibility time.Duration

	Keys    int           // of idempotency that are remembered
	KeyLife time.Duration // for so long

	Dead     int           // dead letters of a box
	DeadLife time.Duration // how long one is kept

	Boards     int
	BoardNotes int
	Waiting    int // receivers that wait at a time
}

// The bounds of what anybody may name.
const (
	mostName       = 384 // bytes of the name of a box or a board
	mostKey        = 255
	mostReason     = 1024
	mostDeliveries = 1000
	mostBoards     = 10_000 // of one Post
	mostNote       = 64 << 10
	longestDelay   = 7 * 24 * time.Hour
)

// CheckName refuses what cannot be the name of a box or a board: it has 1 to
// 384 bytes of UTF-8 in NFC, without control characters.
func CheckName(op, name string) error {
	wrong := func(detail, next string) error {
		return &fault.Error{Op: op, Kind: fault.Malformed, Detail: detail, Next: next}
	}
	switch {
	case name == "":
		return wrong("the box has no name", "Name a box, such as jobs.")
	case len(name) > mostName:
		return wrong(fmt.Sprintf("the name of the box has %d bytes", len(name)), fmt.Sprintf("Choose one of %d bytes or fewer.", mostName))
	case !utf8.ValidString(name) || !norm.NFC.IsNormalString(name) || strings.ContainsFunc(name, unicode.IsControl):
		return wrong("the name of the box is no plain text", "Choose one of letters, digits and marks, as UTF-8 in NFC.")
	}
	return nil
}

// Check refuses a message that no engine would take, and fills in what it does
// not say.
func (l Limits) Check(op string, m *Message) error {
	if err := CheckName(op, m.Box); err != nil {
		return err
	}
	if m.MaxDeliveries == 0 {
		m.MaxDeliveries = l.MaxDeliveries
	}
	refused := &fault.Error{Op: op, Kind: fault.Malformed}
	switch {
	case len(m.Body) > l.MaxMessage:
		refused.Kind = fault.BodyTooLarge
		refused.Detail, refused.Next = fmt.Sprintf("the body has %d bytes", len(m.Body)),
			fmt.Sprintf("Send %d bytes or fewer. Store what is larger with `micronode put`, and send its address.", l.MaxMessage)
	case m.Delay < 0 || m.Delay > longestDelay:
		refused.Detail, refused.Next = fmt.Sprintf("a delay of %s", m.Delay), "Choose one from 0 to 7 days."
	case m.MaxDeliveries < 1 || m.MaxDeliveries > mostDeliveries:
		refused.Detail, refused.Next = fmt.Sprintf("%d deliveries", m.MaxDeliveries), fmt.Sprintf("Choose from 1 to %d.", mostDeliveries)
	case len(m.Key) > mostKey || !utf8.ValidString(m.Key):
		return badKey(op)
	default:
		return nil
	}
	return refused
}

// CheckLease refuses a visibility time-out that cannot be meant, and returns the
// one that holds.
func (l Limits) CheckLease(op string, visibility time.Duration) (time.Duration, error) {
	if visibility == 0 {
		return l.Visibility, nil
	}
	if visibility < 0 || visibility > l.MaxVisibility {
		return 0, &fault.Error{Op: op, Kind: fault.Malformed, Detail: fmt.Sprintf("a visibility time-out of %s", visibility),
			Next: fmt.Sprintf("Choose one above 0, and %s at most.", l.MaxVisibility)}
	}
	return visibility, nil
}

// CheckNack refuses a delay that cannot be meant.
func CheckNack(op string, delay time.Duration) error {
	if delay < 0 || delay > longestDelay {
		return &fault.Error{Op: op, Kind: fault.Malformed, Detail: fmt.Sprintf("a delay of %s", delay), Next: "Choose one from 0 to 7 days."}
	}
	return nil
}

// CheckPost refuses a note that no engine would take.
func CheckPost(op string, boards []string, n Note) error {
	for _, board := range boards {
		if err := CheckName(op, board); err != nil {
			return err
		}
	}
	refused := &fault.Error{Op: op, Kind: fault.Malformed}
	switch {
	case len(boards) > mostBoards:
		refused.Detail, refused.Next = fmt.Sprintf("%d boards", len(boards)), fmt.Sprintf("Post to %d or fewer at a time.", mostBoards)
	case n.ID == "" || len(n.ID) > mostKey || !utf8.ValidString(n.ID):
		refused.Detail, refused.Next = "the note has no ID, or none that can be kept", "Give it one of 1 to 255 characters."
	case len(n.Body) > mostNote:
		refused.Kind = fault.BodyTooLarge
		refused.Detail, refused.Next = fmt.Sprintf("the note has %d bytes", len(n.Body)), fmt.Sprintf("Post %d bytes or fewer.", mostNote)
	default:
		return nil
	}
	return refused
}

// Reason cuts the reason of a nack to what is kept of it: valid UTF-8, 1 KiB at
// most.
func Reason(text string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= mostReason {
		return text
	}
	cut := mostReason
	for !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut]
}

// TimedOut is the reason of a dead letter whose last lease ended by itself.
const TimedOut = "its lease ended before it was acknowledged"

// Fingerprint is what makes two messages with one key the same: box, body,
// delay and deliveries. A message that does not say how often it may be
// delivered is another one than one that does.
func Fingerprint(m Message) b3.Address {
	body := b3.Of(m.Body)
	all := make([]byte, 0, 24+mostName+len(body))
	all = binary.LittleEndian.AppendUint64(all, uint64(len(m.Box)))
	all = binary.LittleEndian.AppendUint64(all, uint64(m.Delay))
	all = binary.LittleEndian.AppendUint64(all, uint64(m.MaxDeliveries))
	return b3.Of(append(append(all, m.Box...), body[:]...))
}
