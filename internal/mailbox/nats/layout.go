package nats

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"micronode/b3"
	"micronode/internal/mailbox"
)

// layout names what is stored in JetStream.
type layout struct{ name string }

func (l layout) mailStream() string  { return l.name + "-mail" }
func (l layout) notesStream() string { return l.name + "-notes" }

// messageSubjects is the subjects of all messages, and messageSubject that of
// one.
func (l layout) messageSubjects() string            { return l.messageSubject("*") }
func (l layout) messageSubject(token string) string { return l.name + ".mail." + token }

// noteSubject is the subject of one note of a board, and boardSubjects those of
// all of them. Names of boards and notes are free text, so their subjects are
// hashes.
func (l layout) noteSubject(board, id string) string {
	return l.name + ".notes." + hashToken("board", board) + "." + hashToken("note", id)
}
func (l layout) boardSubjects(board string) string {
	return l.name + ".notes." + hashToken("board", board) + ".*"
}

// boardSubject is the subject of the mark of a board, by which boards are
// counted.
func (l layout) boardSubject(name string) string {
	return l.name + ".boards." + hashToken("board", name)
}

// tokenOf returns the token of a message from its subject.
func (l layout) tokenOf(subject string) string {
	return strings.TrimPrefix(subject, l.messageSubject(""))
}

// hashToken makes a token of any text. The prefix keeps hashes of one text for
// different purposes apart.
func hashToken(what, text string) string {
	sum := b3.Of([]byte(what + "\x00" + text))
	return hex.EncodeToString(sum[:20])
}

// newToken names a message. One with a key is named after its sender, its box
// and the key: that makes a second one impossible, whatever node it is sent to. There
// is more than one name for the case that the first is taken by a message whose
// key is forgotten.
func newToken(m mailbox.Message, n int) string {
	if m.Key == "" {
		return "r" + strings.ToLower(rand.Text())
	}
	return "k" + hashToken("key "+strconv.Itoa(n), fmt.Sprintf("%d %s%d %s%s", len(m.Sender), m.Sender, len(m.Box), m.Box, m.Key))
}

// makeReceipt makes a receipt. It names the message, and the lease by an
// unguessable text.
func makeReceipt(token, lease string) string { return token + "." + lease }

func parseReceipt(receipt string) (token, lease string, ok bool) {
	token, lease, ok = strings.Cut(receipt, ".")
	return token, lease, ok && len(lease) >= 16 && isToken(token)
}

// isToken reports whether a text may be the token of a message: input of
// clients must not become another subject.
func isToken(text string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789"
	return len(text) > 1 && len(text) <= 64 && strings.Trim(text, letters) == ""
}

// messageState is the state of a message.
type messageState string

const (
	stateWaiting messageState = "waiting" // to be leased, from Due on
	stateLeased  messageState = "leased"  // until Due
	stateDead    messageState = "dead"    // and kept until Due
	stateGone    messageState = "gone"    // only its key is remembered, until Due
)

// metadata is everything about a message but its body. It is in a header of the
// newest JetStream message of the subject, whose body is that of the message.
type metadata struct {
	ID            string       `json:"id"`
	Box           string       `json:"box,omitempty"`
	State         messageState `json:"stage"`
	Order         uint64       `json:"order,omitempty"` // the sequence with which it came; zero for that of this record
	Deliveries    int          `json:"deliveries,omitempty"`
	MaxDeliveries int          `json:"most,omitempty"`
	Due           int64        `json:"due,omitempty"` // nanoseconds since 1970
	Lease         string       `json:"lease,omitempty"`
	Reason        string       `json:"reason,omitempty"`
	SentAt        int64        `json:"sent,omitempty"`
	DiedAt        int64        `json:"died,omitempty"`
	Fingerprint   string       `json:"print,omitempty"`  // of a message with a key
	Sender        string       `json:"sender,omitempty"` // whose key it is
	ChangeID      string       `json:"mark"`             // of the change that made this record
}

// The headers of this package.
const (
	metadataHeader = "Mbox-Record"
	noteHeader     = "Mbox-Note"
)

func (m metadata) encode() string { return encodeHeader(m) }

func decodeMetadata(text string) (r metadata, err error) {
	if err := decodeHeader(text, &r); err != nil {
		return metadata{}, err
	}
	switch r.State {
	case stateWaiting, stateLeased, stateDead, stateGone:
		return r, nil
	}
	return metadata{}, fmt.Errorf("the stage %q is not known", r.State)
}

// noteMetadata is a note, but for the body.
type noteMetadata struct {
	ID string `json:"id"`
	At int64  `json:"at"`
}

// encodeHeader encodes a value as one line of plain ASCII, as headers have to
// be.
func encodeHeader(v any) string {
	text, _ := json.Marshal(v) // strings and numbers only
	return base64.StdEncoding.EncodeToString(text)
}

func decodeHeader(text string, v any) error {
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, v)
}

func fromNanos(nanos int64) time.Time {
	if nanos == 0 {
		return time.Time{}
	}
	return time.Unix(0, nanos)
}

func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// storedMessage is a record as it is stored in the stream.
type storedMessage struct {
	token string
	metadata
	seq        uint64
	size       int64 // of the body
	body       []byte
	leasedHere bool // its lease was given by this node
}
