package mailbox

import (
	"context"
	"time"

	"micronode/fault"
)

// Engine keeps messages until they are acknowledged, and notes for readers.
// There are three: RAM, Disk, and the driver for NATS JetStream; mailboxtest
// holds all of them to the same promises.
//
// A box is a queue. A message in it is leased to one receiver at a time; one
// that is not acknowledged within its visibility time-out is leased again, and
// one that was leased too often becomes a dead letter. Messages of a box come
// in the order in which they were sent, as far as leases, delays and
// redeliveries let them; nothing is promised between boxes.
//
// A board is the newest notes under a name. Reading it removes nothing; when it
// is full, the oldest note is evicted.
//
// Boxes and boards are created when they are first written to.
type Engine interface {
	// Send stores a message; when it returns, the message is kept. The same key
	// of the same sender for the same box, with the same message (body, delay
	// and deliveries, see Fingerprint), is the same answer, with Repeated set;
	// with another message it is fault.Conflict. A box or a mailbox without room
	// is fault.Busy. However many keys some senders use, the others keep theirs.
	Send(ctx context.Context, m Message) (Sent, error)

	// Receive leases the next message of a box for visibility (zero is the
	// mailbox's default), waiting for one for at most wait. Waiting receivers
	// are served in the order in which they came. No message is fault.NotFound.
	Receive(ctx context.Context, box string, visibility, wait time.Duration) (Delivery, error)

	// Ack acknowledges a message: it is removed for good. A receipt that has
	// expired, belongs to another box or was used already is fault.NotFound.
	Ack(ctx context.Context, box, receipt string) error

	// Nack returns a message to its box, to be leased again after delay. Reason
	// is kept for the dead letter that it may become.
	Nack(ctx context.Context, box, receipt string, delay time.Duration, reason string) error

	// Extend makes a lease end visibility from now.
	Extend(ctx context.Context, box, receipt string, visibility time.Duration) error

	// Dead lists dead letters of a box, oldest first, at most limit of them
	// after the one with the given id ("" is from the start).
	Dead(ctx context.Context, box, after string, limit int) ([]DeadLetter, error)

	// Resend puts a dead letter back into its box, at its old position. It can
	// be leased at once, and its deliveries are counted anew. A box without
	// room is fault.Busy; an ID without a dead letter is fault.NotFound.
	Resend(ctx context.Context, box, id string) error

	// Drop removes a dead letter for good. An ID without one is fault.NotFound.
	Drop(ctx context.Context, box, id string) error

	// Post posts a note to boards. A note whose ID is on a board already is
	// left as it is, so posting may be repeated.
	Post(ctx context.Context, boards []string, n Note) error

	// Notes lists notes of a board, newest first, at most limit of them after
	// the one with the given id ("" is from the newest). Fewer than limit means
	// that the list is complete. After an evicted note there are none: the
	// older ones were evicted, too.
	Notes(ctx context.Context, name, after string, limit int) ([]Note, error)

	// Usage returns how much is kept. It never waits for anything slow.
	Usage() Usage

	// Close releases everything. Waiting receivers get fault.Canceled.
	Close() error
}

// Message is what is sent.
type Message struct {
	Box           string        `json:"box"`
	Key           string        `json:"key,omitempty"`    // idempotency key; empty for none
	Sender        string        `json:"sender,omitempty"` // whose key that is: the same key of another sender, or for another box, is another key
	Body          []byte        `json:"body"`             // must not be changed once it is sent
	Delay         time.Duration `json:"delay,omitempty"`
	MaxDeliveries int           `json:"max_deliveries,omitempty"` // zero is the mailbox's default
}

// Sent is the result of sending a message.
type Sent struct {
	ID       string `json:"id"`
	Repeated bool   `json:"repeated,omitempty"` // it was already sent with this key
}

// Delivery is a message that was leased.
type Delivery struct {
	ID         string    `json:"id"`
	Receipt    string    `json:"receipt"` // for Ack, Nack and Extend, while the lease holds
	Body       []byte    `json:"body"`
	Deliveries int       `json:"deliveries"` // this one included
	SentAt     time.Time `json:"sent_at"`
}

// DeadLetter is a message that was leased too often.
type DeadLetter struct {
	ID         string    `json:"id"`
	Body       []byte    `json:"body"`
	Deliveries int       `json:"deliveries"`
	Reason     string    `json:"reason"` // of the last nack, or that its lease ended
	SentAt     time.Time `json:"sent_at"`
	DiedAt     time.Time `json:"died_at"`
}

// Note is what is posted to boards.
type Note struct {
	ID   string    `json:"id"`
	Body []byte    `json:"body"`
	At   time.Time `json:"at"`
}

// Usage is how much an engine keeps, and what it has counted.
type Usage struct {
	// at the moment
	Boxes    int64
	Messages int64 // that wait or are leased
	Leased   int64
	Dead     int64
	Boards   int64
	Notes    int64
	Bytes    int64 // that messages, dead letters and notes take where they are kept
	Memory   int64 // that they take in memory

	// since it was opened
	Timeouts     int64 // leases that expired
	Died         int64 // messages that became dead letters
	Dropped      int64 // dead letters that were evicted by newer ones, or expired
	ReadFailures int64 // deliveries that failed because the body could not be read from disk
	Damaged      int64 // messages whose body is damaged on disk

	KeysDisplaced int64 // idempotency keys that were forgotten before their time, for newer ones
}

// Prober is an engine on other machines, which may be away while nothing is
// sent. It is probed by what it must be able to do.
type Prober interface {
	// Probe writes something that is gone soon, and returns when the engine has
	// accepted it.
	Probe(ctx context.Context) error

	// Address is where it is, for operators.
	Address() string

	// Calls counts the results of calls to it. The counters only increase.
	Calls() Calls
}

// Calls counts the results of calls to an engine on other machines.
type Calls struct {
	Retries  uint64 // calls that were retried
	Timeouts uint64 // calls that were not answered in time
	Failures uint64 // calls that failed in another way
}

// Task is something that an engine runs for as long as it is open.
type Task struct {
	Name  string // unique in the node
	Serve func(ctx context.Context) error
}

// Tasker is an engine that has tasks. They run from when the service is started
// until its context ends. Without them no message is lost, but waiting
// receivers do not see leases that expire.
type Tasker interface{ Tasks() []Task }

// HealthChecker is an engine that may fail as a whole: a disk that refuses, a
// server that cannot be reached. Nil means healthy. Health never waits.
type HealthChecker interface{ Health() error }

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

// NoRoom is the error for something that is full: a setting of [mailbox] bounds
// it.
func NoRoom(op, setting, format string, args ...any) error {
	return fault.New(op, fault.Busy, format, args...).
		Advise("Retry after messages were acknowledged, or raise mailbox." + setting + ".")
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
