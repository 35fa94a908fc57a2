package mailbox

import (
	"context"
	"time"
	"unicode/utf8"

	"micronode/client"
)

// Remote is the mailbox in another process of the same node, with the methods
// that other parts need. It keeps nothing itself: each call is one to the other
// side, bounded by the caller's context, and is never retried. The caller knows
// what may be repeated, and how: a message by its key, a note by its ID, a
// lease by its receipt. Names that are not valid text are refused here: JSON
// would change them on the way.
//
// If the response to Receive is lost, its message stays leased, without a
// receiver, until the lease expires.
type Remote struct {
	client *client.Client // set at construction
}

// NewRemote returns the mailbox that a client reaches.
func NewRemote(to *client.Client) *Remote { return &Remote{to} }

// Send stores a message.
func (r *Remote) Send(ctx context.Context, m Message) (Sent, error) {
	const op = "mailbox.send"
	if err := CheckName(op, m.Box); err != nil {
		return Sent{}, err
	}
	if !utf8.ValidString(m.Key) {
		return Sent{}, badKey(op)
	}
	var sent Sent
	err := r.client.CallPart(ctx, op, service, partSendPath, m, &sent)
	return sent, err
}

// Receive leases the next message of a box. It waits for at most longestWait.
func (r *Remote) Receive(ctx context.Context, box string, visibility, wait time.Duration) (Delivery, error) {
	const op = "mailbox.receive"
	if err := CheckName(op, box); err != nil {
		return Delivery{}, err
	}
	var response receiveResponse
	if err := r.client.CallPart(ctx, op, service, partReceivePath, receiveRequest{box, visibility, min(wait, longestWait)}, &response); err != nil {
		return Delivery{}, err
	}
	if response.Delivery == nil {
		return Delivery{}, NoMessage(op)
	}
	return *response.Delivery, nil
}

// Ack acknowledges a message.
func (r *Remote) Ack(ctx context.Context, box, receipt string) error {
	return r.client.CallPart(ctx, "mailbox.ack", service, partAckPath, leaseRequest{Box: box, Receipt: receipt}, nil)
}

// Nack returns a message to its box.
func (r *Remote) Nack(ctx context.Context, box, receipt string, delay time.Duration, reason string) error {
	return r.client.CallPart(ctx, "mailbox.nack", service, partNackPath, leaseRequest{Box: box, Receipt: receipt, Delay: delay, Reason: TruncateReason(reason)}, nil)
}

// Extend makes a lease end visibility from now.
func (r *Remote) Extend(ctx context.Context, box, receipt string, visibility time.Duration) error {
	return r.client.CallPart(ctx, "mailbox.extend", service, partExtendPath, leaseRequest{Box: box, Receipt: receipt, Visibility: visibility}, nil)
}

// Post posts a note to boards, as many of them at a time as fit into a request.
// If it fails half-way, the note is on some of them; posting it again is
// harmless.
func (r *Remote) Post(ctx context.Context, boards []string, n Note) error {
	const op = "mailbox.post"
	if err := CheckPost(op, boards, n); err != nil {
		return err
	}
	for len(boards) > 0 {
		count := countFitting(boards)
		if err := r.client.CallPart(ctx, op, service, partPostPath, postRequest{boards[:count], n}, nil); err != nil {
			return err
		}
		boards = boards[count:]
	}
	return nil
}

// countFitting returns how many of these names fit into one request, whatever
// JSON makes of their characters. One always does.
func countFitting(boards []string) int {
	const worst, marks = 6, 3 // the longest encoding of a byte; what is around a name
	remaining := maxBoardNameBytes
	for i, name := range boards {
		if remaining -= worst*len(name) + marks; remaining < 0 {
			return i
		}
	}
	return len(boards)
}

// Notes lists notes of a board, in as many pages as it takes.
func (r *Remote) Notes(ctx context.Context, name, after string, limit int) (notes []Note, err error) {
	const op = "mailbox.board"
	if err := CheckName(op, name); err != nil {
		return nil, err
	}
	for more := true; more && len(notes) < limit; {
		var response notesResponse
		if err := r.client.CallPart(ctx, op, service, partNotesPath, notesRequest{name, after, limit - len(notes)}, &response); err != nil {
			return nil, err
		}
		for _, n := range response.Notes {
			notes, after = append(notes, n), n.ID
		}
		more = response.More && len(response.Notes) > 0
	}
	return notes, nil
}
