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
)

// layout names what lies in JetStream.
type layout struct{ name string }

func (l layout) mail() string   { return l.name + "-mail" }
func (l layout) boards() string { return l.name + "-boards" }

// letters is the subjects of all letters, and letter that of one.
func (l layout) letters() string            { return l.letter("*") }
func (l layout) letter(token string) string { return l.name + ".mail." + token }

// notes is the subjects of all boards, and board that of one. A board may be
// named as it likes, so its subject is a hash of the name.
func (l layout) notes() string            { return l.name + ".board.*" }
func (l layout) board(name string) string { return l.name + ".board." + hashed("board", name) }

// tokenOf returns the token of a letter from the subject of it.
func (l layout) tokenOf(subject string) string { return strings.TrimPrefix(subject, l.letter("")) }

// hashed makes a token of any text. What it is for keeps hashes of one text for
// different things apart.
func hashed(what, text string) string {
	sum := b3.Of([]byte(what + "\x00" + text))
	return hex.EncodeToString(sum[:20])
}

// newToken names a letter. One with a key is named after the key: that makes a
// second one with the same key impossible, whatever node it is sent to. There is
// more than one name for the case that the first is taken by a letter whose key
// is forgotten.
func newToken(key string, n int) string {
	if key == "" {
		return "r" + strings.ToLower(rand.Text())
	}
	return "k" + hashed("key "+strconv.Itoa(n), key)
}

// A receipt names the letter, and the lease by a number that nobody can guess.
func receiptOf(token, lease string) string { return token + "." + lease }

func readReceipt(receipt string) (token, lease string, ok bool) {
	token, lease, ok = strings.Cut(receipt, ".")
	return token, lease, ok && len(lease) >= 16 && isToken(token)
}

// isToken tells whether a text may be the token of a letter: what clients say
// must not become another subject.
func isToken(text string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789"
	return len(text) > 1 && len(text) <= 64 && strings.Trim(text, letters) == ""
}

// stage is where a letter stands.
type stage string

const (
	waiting stage = "waiting" // to be leased, from Due on
	leased  stage = "leased"  // until Due
	dead    stage = "dead"    // and kept until Due
	gone    stage = "gone"    // only its key is remembered, until Due
)

// record is everything about a letter but its body. It is the newest message of
// the letter's subject, in a header of it; the body is that of the message.
type record struct {
	ID         string `json:"id"`
	Box        string `json:"box,omitempty"`
	Stage      stage  `json:"stage"`
	Order      uint64 `json:"order,omitempty"` // the sequence with which it came; zero for that of this record
	Deliveries int    `json:"deliveries,omitempty"`
	Most       int    `json:"most,omitempty"`
	Due        int64  `json:"due,omitempty"` // nanoseconds since 1970
	Lease      string `json:"lease,omitempty"`
	Reason     string `json:"reason,omitempty"`
	SentAt     int64  `json:"sent,omitempty"`
	DiedAt     int64  `json:"died,omitempty"`
	Print      string `json:"print,omitempty"` // of a letter with a key
	Mark       string `json:"mark"`            // of the change that made this record
}

// The headers that are ours.
const (
	recordHeader = "Mbox-Record"
	noteHeader   = "Mbox-Note"
)

func (r record) encode() string { return encodeHeader(r) }

func decodeRecord(text string) (r record, err error) {
	if err := decodeHeader(text, &r); err != nil {
		return record{}, err
	}
	switch r.Stage {
	case waiting, leased, dead, gone:
		return r, nil
	}
	return record{}, fmt.Errorf("the stage %q is not known", r.Stage)
}

// pin is a note, but for the body.
type pin struct {
	ID string `json:"id"`
	At int64  `json:"at"`
}

// encodeHeader makes one line of plain letters of it, as headers have to be.
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

func at(nanos int64) time.Time {
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

// entry is a record as it lies in the stream.
type entry struct {
	token string
	record
	seq  uint64
	size int64 // of the body
	body []byte
	mine bool // its lease was given by this node
}
