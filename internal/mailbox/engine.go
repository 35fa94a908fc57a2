package mailbox

import (
	"context"
	"time"
)

// Engine keeps messages until somebody has dealt with them, and notes for
// whoever looks. There are three: RAM, Disk, and the driver for NATS
// JetStream; mailboxtest holds all of them to the same promises.
//
// A box is a queue. A message in it is leased to one receiver at a time; one
// that is not acknowledged within its visibility time-out is leased again, and
// one that was leased too often becomes a dead letter. Messages of a box come
// in the order in which they were sent, as far as leases, delays and
// redeliveries let them; nothing is promised between boxes.
//
// A board is the newest notes under a name. Reading it takes nothing away;
// when it is full, the oldest note goes.
//
// Boxes and boards come into being when they are first written to.
type Engine interface {
	// Send takes a message in; when it returns, the message is kept. The same
	// key with the same message (box, body, delay and deliveries, see
	// Fingerprint) is the same answer, with Repeated set; with another message
	// it is fault.Conflict. A box or a mailbox without room is fault.Busy.
	Send(ctx context.Context, m Message) (Sent, error)

	// Receive leases the next message of a box for visibility (zero is the
	// mailbox's default), waiting for one for at most wait. Those who wait are
	// served in the order in which they came. No message is fault.NotFound.
	Receive(ctx context.Context, box string, visibility, wait time.Duration) (Delivery, error)

	// Ack says that a message was dealt with: it is gone for good. A receipt
	// that is late, foreign or used up is fault.NotFound.
	Ack(ctx context.Context, box, receipt string) error

	// Nack gives a message back, to be leased again after delay. Reason is kept
	// for the dead letter that it may become.
	Nack(ctx context.Context, box, receipt string, delay time.Duration, reason string) error

	// Extend makes a lease end visibility from now.
	Extend(ctx context.Context, box, receipt string, visibility time.Duration) error

	// Dead lists dead letters of a box, oldest first, at most limit of them
	// after the one with the given id ("" is from the start).
	Dead(ctx context.Context, box, after string, limit int) ([]DeadLetter, error)

	// Post pins a note to boards. A note whose ID is on a board already is left
	// as it is, so posting may be repeated.
	Post(ctx context.Context, boards []string, n Note) error

	// Board lists notes of a board, newest first, at most limit of them after
	// the one with the given id ("" is from the newest). Fewer are the last ones.
	// After a note that has gone there are none: those before it went, too.
	Board(ctx context.Context, name, after string, limit int) ([]Note, error)

	// Usage is how much is kept. It never waits for anything slow.
	Usage() Usage

	// Close lets go of everything. Receivers that wait are told
	// fault.Canceled.
	Close() error
}

// Message is what is sent.
type Message struct {
	Box           string
	Key           string // of idempotency; empty for none
	Body          []byte // not changed by anybody once it is sent
	Delay         time.Duration
	MaxDeliveries int // zero is the mailbox's default
}

// Sent is how a message was taken in.
type Sent struct {
	ID       string
	Repeated bool // it was sent before, with the same key
}

// Delivery is a message that was leased.
type Delivery struct {
	ID         string
	Receipt    string // gives it back or does away with it, as long as the lease holds
	Body       []byte
	Deliveries int // this one included
	SentAt     time.Time
}

// DeadLetter is a message that was leased too often.
type DeadLetter struct {
	ID         string
	Body       []byte
	Deliveries int
	Reason     string // of the last nack, or that its lease ended
	SentAt     time.Time
	DiedAt     time.Time
}

// Note is what is pinned to boards.
type Note struct {
	ID   string
	Body []byte
	At   time.Time
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
	Bytes    int64

	// since it was opened
	Timeouts int64 // leases that ended by themselves
	Died     int64 // messages that became dead letters
	Dropped  int64 // dead letters that made room for newer ones, or were old
}

// Task is something that an engine does by itself for as long as it is open.
type Task struct {
	Name  string // unique in the node
	Serve func(ctx context.Context) error
}

// Tasked is an engine that has tasks. They run from when the service is started
// until its context ends; nothing is lost if they do not, but nobody who waits
// is told that a lease has ended.
type Tasked interface{ Tasks() []Task }

// Examined is an engine that may fail as a whole: a disk that refuses, a server
// that cannot be reached. Nil is that all is well. It never waits.
type Examined interface{ Health() error }
