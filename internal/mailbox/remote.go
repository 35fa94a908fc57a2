package mailbox

import (
	"context"
	"time"
	"unicode/utf8"

	"micronode/client"
	"micronode/fault"
)

// Remote is the mailbox in another process of the same node, as far as others
// need it. It keeps nothing itself: each call is one to the other side, as long
// as the caller's context allows, and nothing is tried twice. What may be
// repeated, and how, is known to whoever asks: a message by its key, a note by
// its ID, a lease by its receipt. Names that are no text are refused here, where
// it can still be seen: on the way, JSON would make another text of them.
//
// A message that was leased in the very moment in which the answer was lost is
// leased to nobody until its lease ends.
type Remote struct {
	client *client.Client // set at construction
}

// NewRemote makes a mailbox of the one that a client reaches.
func NewRemote(to *client.Client) *Remote { return &Remote{to} }

// Send takes a message in.
func (r *Remote) Send(ctx context.Context, m Message) (Sent, error) {
	const op = "mailbox.send"
	if err := CheckName(op, m.Box); err != nil {
		return Sent{}, err
	}
	if !utf8.ValidString(m.Key) {
		return Sent{}, badKey(op)
	}
	var told toldSent
	err := r.call(ctx, op, seamSend, toldMessage(m), &told)
	return Sent(told), err
}

// Receive leases the next message of a box. It waits no longer than any mailbox
// lets receivers wait.
func (r *Remote) Receive(ctx context.Context, box string, visibility, wait time.Duration) (Delivery, error) {
	const op = "mailbox.receive"
	if err := CheckName(op, box); err != nil {
		return Delivery{}, err
	}
	var told toldMail
	if err := r.call(ctx, op, seamReceive, toldWish{box, visibility, min(wait, longestWait)}, &told); err != nil {
		return Delivery{}, err
	}
	if told.Delivery == nil {
		return Delivery{}, NoMessage(op)
	}
	return Delivery(*told.Delivery), nil
}

// Ack says that a message was dealt with.
func (r *Remote) Ack(ctx context.Context, box, receipt string) error {
	return r.call(ctx, "mailbox.ack", seamAck, toldLease{Box: box, Receipt: receipt}, nil)
}

// Nack gives a message back.
func (r *Remote) Nack(ctx context.Context, box, receipt string, delay time.Duration, reason string) error {
	return r.call(ctx, "mailbox.nack", seamNack, toldLease{Box: box, Receipt: receipt, Delay: delay, Reason: Reason(reason)}, nil)
}

// Extend makes a lease end visibility from now.
func (r *Remote) Extend(ctx context.Context, box, receipt string, visibility time.Duration) error {
	return r.call(ctx, "mailbox.extend", seamExtend, toldLease{Box: box, Receipt: receipt, Visibility: visibility}, nil)
}

// Post pins a note to boards, as many of them at a time as fit into a request.
// If it fails half-way, the note is on some of them; to post it again does no
// harm.
func (r *Remote) Post(ctx context.Context, boards []string, n Note) error {
	const op = "mailbox.post"
	if err := CheckPost(op, boards, n); err != nil {
		return err
	}
	for len(boards) > 0 {
		some := fitting(boards)
		if err := r.call(ctx, op, seamPost, toldPost{boards[:some], toldNote(n)}, nil); err != nil {
			return err
		}
		boards = boards[some:]
	}
	return nil
}

// fitting is how many of these names fit into one request, whatever JSON makes
// of their letters. One always does.
func fitting(boards []string) int {
	const worst, marks = 6, 3 // what a letter becomes at the most; what is around a name
	room := seamBoards
	for i, name := range boards {
		if room -= worst*len(name) + marks; room < 0 {
			return i
		}
	}
	return len(boards)
}

// Board lists notes of a board, in as many pages as it takes.
func (r *Remote) Board(ctx context.Context, name, after string, limit int) (notes []Note, err error) {
	const op = "mailbox.board"
	if err := CheckName(op, name); err != nil {
		return nil, err
	}
	for more := true; more && len(notes) < limit; {
		var told toldBoard
		if err := r.call(ctx, op, seamBoard, toldGlance{name, after, limit - len(notes)}, &told); err != nil {
			return nil, err
		}
		for _, n := range told.Notes {
			notes, after = append(notes, Note(n)), n.ID
		}
		more = told.More && len(told.Notes) > 0
	}
	return notes, nil
}

// call asks the other process.
func (r *Remote) call(ctx context.Context, op, path string, in, out any) error {
	err := r.client.Call(ctx, "POST", path, in, out)
	if fault.KindOf(err) == fault.Canceled && ctx.Err() == nil {
		// It is the other process that drains: for us, it is away. We go on.
		return &fault.Error{Op: op, Kind: fault.NotReady, Detail: "the mailbox is going away", RetryAfter: time.Second, Err: err,
			Next: "Start it again with `micronode run --only mailbox`; it is asked again by itself."}
	}
	return fault.Wrap(op, err)
}
