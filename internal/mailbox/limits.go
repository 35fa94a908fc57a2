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

// Limits bounds what an engine keeps. Zero means zero, except where it says
// otherwise.
type Limits struct {
	Bytes       int64 // of everything together
	Boxes       int
	BoxMessages int
	BoxBytes    int64
	MaxMessage  int // bytes of a body

	MaxDeliveries int           // of a message that does not set it
	Visibility    time.Duration // of a lease that does not set it
	MaxVisibility time.Duration

	Keys    int           // idempotency keys that are remembered
	KeyLife time.Duration // how long each is remembered

	DeadLetters int           // dead letters of a box
	DeadLife    time.Duration // how long one is kept

	Boards     int
	BoardNotes int
	Receivers  int // receivers that wait at a time
}

// The bounds of names, keys, reasons and notes.
const (
	maxNameBytes   = 384 // bytes of the name of a box or a board
	maxKeyBytes    = 255
	maxReasonBytes = 1024
	maxDeliveries  = 1000
	maxPostBoards  = 10_000 // of one Post
	maxNoteBytes   = 64 << 10
	longestDelay   = 7 * 24 * time.Hour
)

// CheckName refuses an invalid name of a box or a board: it must have 1 to 384
// bytes of UTF-8 in NFC, without control characters.
func CheckName(op, name string) error {
	wrong := func(detail, next string) error {
		return &fault.Error{Op: op, Kind: fault.Malformed, Detail: detail, Next: next}
	}
	switch {
	case name == "":
		return wrong("the box has no name", "Name a box, such as jobs.")
	case len(name) > maxNameBytes:
		return wrong(fmt.Sprintf("the name of the box has %d bytes", len(name)), fmt.Sprintf("Choose one of %d bytes or fewer.", maxNameBytes))
	case !utf8.ValidString(name) || !norm.NFC.IsNormalString(name) || strings.ContainsFunc(name, unicode.IsControl):
		return wrong("the name of the box is not plain text", "Use letters, digits and marks, as UTF-8 in NFC.")
	}
	return nil
}

// CheckBox refuses an invalid name of a box. What is in it must be visible,
// without spaces around it: two boxes whose names look the same would be taken
// for one. Boards are not shown to people, and are named after users.
func CheckBox(op, name string) error {
	if err := CheckName(op, name); err != nil {
		return err
	}
	if strings.ContainsFunc(name, isInvisible) || strings.TrimSpace(name) != name {
		return &fault.Error{Op: op, Kind: fault.Malformed, Detail: "the name of the box has invisible characters, or spaces around it",
			Next: "Use letters, digits and marks that can be seen."}
	}
	return nil
}

// isInvisible reports whether a character leaves no mark by itself: controls,
// formats and wide spaces, fillers, and what selects a variant of the one
// before.
func isInvisible(r rune) bool {
	const blankBraille = '\u2800'
	return !unicode.IsPrint(r) || r == blankBraille || unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

// CheckMessage refuses an invalid message, and fills in the defaults.
func (l Limits) CheckMessage(op string, m *Message) error {
	if err := CheckBox(op, m.Box); err != nil {
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
			fmt.Sprintf("Send %d bytes or fewer. Store larger content with `micronode put`, and send its address.", l.MaxMessage)
	case m.Delay < 0 || m.Delay > longestDelay:
		refused.Detail, refused.Next = fmt.Sprintf("a delay of %s", m.Delay), "Choose one from 0 to 7 days."
	case m.MaxDeliveries < 1 || m.MaxDeliveries > maxDeliveries:
		refused.Detail, refused.Next = fmt.Sprintf("%d deliveries", m.MaxDeliveries), fmt.Sprintf("Choose from 1 to %d.", maxDeliveries)
	case len(m.Key) > maxKeyBytes || len(m.Sender) > maxKeyBytes || !utf8.ValidString(m.Key):
		return badKey(op)
	default:
		return nil
	}
	return refused
}

// CheckLease refuses a visibility time-out out of range, and returns the
// effective one.
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

// CheckDelay refuses a delay out of range.
func CheckDelay(op string, delay time.Duration) error {
	if delay < 0 || delay > longestDelay {
		return &fault.Error{Op: op, Kind: fault.Malformed, Detail: fmt.Sprintf("a delay of %s", delay), Next: "Choose one from 0 to 7 days."}
	}
	return nil
}

// CheckPost refuses an invalid note or invalid boards.
func CheckPost(op string, boards []string, n Note) error {
	for _, board := range boards {
		if err := CheckName(op, board); err != nil {
			return err
		}
	}
	refused := &fault.Error{Op: op, Kind: fault.Malformed}
	switch {
	case len(boards) > maxPostBoards:
		refused.Detail, refused.Next = fmt.Sprintf("%d boards", len(boards)), fmt.Sprintf("Post to %d or fewer at a time.", maxPostBoards)
	case n.ID == "" || len(n.ID) > maxKeyBytes || !utf8.ValidString(n.ID):
		refused.Detail, refused.Next = "the note has no valid ID", "Give it one of 1 to 255 characters."
	case len(n.Body) > maxNoteBytes:
		refused.Kind = fault.BodyTooLarge
		refused.Detail, refused.Next = fmt.Sprintf("the note has %d bytes", len(n.Body)), fmt.Sprintf("Post %d bytes or fewer.", maxNoteBytes)
	default:
		return nil
	}
	return refused
}

// TruncateReason cuts the reason of a nack to what is kept of it: valid UTF-8,
// 1 KiB at most.
func TruncateReason(text string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= maxReasonBytes {
		return text
	}
	cut := maxReasonBytes
	for !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut]
}

// ReasonTimedOut is the reason of a dead letter whose last lease expired.
const ReasonTimedOut = "its lease ended before it was acknowledged"

// Fingerprint identifies a message with a key: its box, body, delay and
// deliveries. A message that leaves MaxDeliveries zero differs from one that
// sets it.
func Fingerprint(m Message) b3.Address {
	body := b3.Of(m.Body)
	all := make([]byte, 0, 24+maxNameBytes+len(body))
	all = binary.LittleEndian.AppendUint64(all, uint64(len(m.Box)))
	all = binary.LittleEndian.AppendUint64(all, uint64(m.Delay))
	all = binary.LittleEndian.AppendUint64(all, uint64(m.MaxDeliveries))
	return b3.Of(append(append(all, m.Box...), body[:]...))
}
