package nats

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"micronode/internal/mailbox"
)

// Post implements mailbox.Engine. Each board gets a copy of the note. What was
// posted a moment before is not taken again by JetStream; what was posted longer
// ago is left out when the board is read.
func (m *Mailbox) Post(ctx context.Context, boards []string, n mailbox.Note) error {
	const op = "mailbox.post"
	if err := mailbox.CheckPost(op, boards, n); err != nil || len(boards) == 0 {
		return err
	}
	ctx, cancel, err := m.begin(ctx, op)
	if err != nil {
		return err
	}
	defer cancel()
	if err := m.boardRoom(ctx, op, boards); err != nil {
		return err
	}
	note := encodeHeader(pin{ID: n.ID, At: nanos(n.At)})
	for some := range slices.Chunk(boards, pinBatch) {
		err := m.line.call(ctx, op, func(ctx context.Context) error { return m.line.pin(ctx, some, n, note) })
		if err != nil {
			return err
		}
	}
	m.hurry()
	return nil
}

// boardRoom refuses boards beyond the limit. How many there are is known only
// roughly, so near the limit it is looked up whether a board is a new one.
func (m *Mailbox) boardRoom(ctx context.Context, op string, boards []string) error {
	have := m.state.Load().boards
	if have+int64(len(boards)) <= int64(m.spec.Limits.Boards) {
		return nil
	}
	for _, name := range boards {
		notes, err := m.read(ctx, op, name)
		if err != nil {
			return err
		}
		if len(notes) > 0 {
			continue
		}
		if have++; have > int64(m.spec.Limits.Boards) {
			return mailbox.NoRoom(op, "there are %d boards already", have-1)
		}
	}
	return nil
}

// pin posts a note to some boards at a time.
func (l *line) pin(ctx context.Context, boards []string, n mailbox.Note, note string) error {
	var answers []jetstream.PubAckFuture
	for _, name := range boards {
		subject := l.layout.board(name)
		answer, err := l.js.PublishMsgAsync(&nats.Msg{Subject: subject, Header: nats.Header{noteHeader: {note}}, Data: n.Body},
			jetstream.WithMsgID(hashed(subject, n.ID)), jetstream.WithExpectStream(l.layout.boards()))
		if err != nil {
			return err
		}
		answers = append(answers, answer)
	}
	for _, answer := range answers {
		select {
		case <-answer.Ok():
		case err := <-answer.Err():
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// Board implements mailbox.Engine.
func (m *Mailbox) Board(ctx context.Context, name, after string, limit int) ([]mailbox.Note, error) {
	const op = "mailbox.board"
	if err := mailbox.CheckName(op, name); err != nil {
		return nil, err
	}
	ctx, cancel, err := m.begin(ctx, op)
	if err != nil {
		return nil, err
	}
	defer cancel()
	notes, err := m.read(ctx, op, name)
	if err != nil {
		return nil, err
	}
	slices.Reverse(notes)
	notes = notes[:min(len(notes), m.spec.Limits.BoardNotes)]
	if after != "" {
		last := slices.IndexFunc(notes, func(n mailbox.Note) bool { return n.ID == after })
		if last < 0 {
			return nil, nil
		}
		notes = notes[last+1:]
	}
	return notes[:min(len(notes), max(0, limit))], nil
}

// read reads the notes of a board, oldest first. Of those with one ID, the
// oldest counts.
func (m *Mailbox) read(ctx context.Context, op, name string) (notes []mailbox.Note, err error) {
	err = m.line.call(ctx, op, func(ctx context.Context) error {
		notes, err = m.line.notes(ctx, m.line.layout.board(name))
		return err
	})
	seen := map[string]bool{}
	notes = slices.DeleteFunc(notes, func(n mailbox.Note) bool {
		again := seen[n.ID]
		seen[n.ID] = true
		return again
	})
	return notes, err
}

// The answers of JetStream to a request for many messages.
const (
	statusHeader = "Status"
	statusEnd    = "204"
	statusNone   = "404"
)

// notes asks for all messages of a board at once. The client library has no call
// for that yet.
func (l *line) notes(ctx context.Context, subject string) (notes []mailbox.Note, err error) {
	request, _ := json.Marshal(map[string]any{"seq": 1, "next_by_subj": subject, "batch": max(1, 2*l.limits.BoardNotes)}) // numbers and text only
	inbox := l.conn.NewInbox()
	answers, err := l.conn.SubscribeSync(inbox)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answers.Unsubscribe() }() // with the connection, it is gone anyway
	if err := l.conn.PublishRequest("$JS.API.DIRECT.GET."+l.layout.boards(), inbox, request); err != nil {
		return nil, err
	}
	for {
		m, err := answers.NextMsgWithContext(ctx)
		if err != nil {
			return nil, err
		}
		switch status := m.Header.Get(statusHeader); status {
		case "":
			n, err := noteIn(m)
			if err != nil {
				return nil, err
			}
			notes = append(notes, n)
		case statusEnd, statusNone:
			return notes, nil
		default:
			return nil, errors.New("nats: status " + status)
		}
	}
}

func noteIn(m *nats.Msg) (mailbox.Note, error) {
	var p pin
	if err := decodeHeader(m.Header.Get(noteHeader), &p); err != nil {
		return mailbox.Note{}, damaged(m.Subject, err)
	}
	return mailbox.Note{ID: p.ID, Body: m.Data, At: at(p.At)}, nil
}
