package nats

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"

	"github.com/nats-io/nats.go"

	"micronode/internal/mailbox"
)

// Notes implements mailbox.Engine.
//
// JetStream returns the messages of a board from a sequence on, and with each
// how many are left. It cannot read backwards. So the start of a page is found
// by requests for single notes, and then the page is read.
func (m *Mailbox) Notes(ctx context.Context, name, after string, limit int) ([]mailbox.Note, error) {
	const op = "mailbox.board"
	if err := mailbox.CheckName(op, name); err != nil {
		return nil, err
	}
	ctx, cancel, err := m.begin(ctx, op)
	if err != nil {
		return nil, err
	}
	defer cancel()
	ctx, stop := context.WithTimeout(ctx, m.spec.Timeout)
	defer stop()
	if after == "" && limit >= m.spec.Limits.BoardNotes {
		all, err := m.readNotes(ctx, op, m.client.layout.boardSubjects(name), 1, 2*m.spec.Limits.BoardNotes)
		if err != nil || len(all) == 0 || all[len(all)-1].remaining == 0 {
			return newestFirst(all, m.spec.Limits.BoardNotes), err
		}
	}
	end, err := m.pageEnd(ctx, op, name, after)
	if err != nil {
		return nil, err
	}
	want := min(limit, m.spec.Limits.BoardNotes-end.count)
	if want <= 0 || end.from == 0 {
		return nil, nil
	}
	return m.readPage(ctx, op, name, end, want)
}

// errNoteMoved says that servers do not agree yet on where a note is.
var errNoteMoved = errors.New("nats: a note is gone, or not everywhere yet")

// pageEnd finds the note after which a page begins, or the position behind the
// newest one. Its sequence is zero if there is none.
func (m *Mailbox) pageEnd(ctx context.Context, op, name, after string) (end noteRange, err error) {
	board := m.client.layout.boardSubjects(name)
	err = m.client.retry(ctx, op, func(ctx context.Context) error {
		subject := board
		if after != "" {
			subject = m.client.layout.noteSubject(name, after)
		}
		last, err := m.client.directGet(ctx, map[string]any{"last_by_subj": subject})
		if err != nil || len(last) == 0 {
			end = noteRange{}
			return err
		}
		seq := headerUint(last[0], seqHeader)
		if after == "" {
			end = noteRange{from: seq + 1}
			return nil
		}
		end, err = m.client.rangeFrom(ctx, board, seq)
		if err == nil && end.from != seq {
			return errNoteMoved
		}
		return err
	})
	return end, err
}

// maxPageTries is how often a page is looked for on a board with concurrent
// posts. After that, all of the board is read.
const maxPageTries = 3

// readPage reads the notes before the end of a page, newest first.
func (m *Mailbox) readPage(ctx context.Context, op, name string, end noteRange, want int) ([]mailbox.Note, error) {
	subject := m.client.layout.boardSubjects(name)
	for try := 1; ; try++ {
		oldest, err := m.rangeFrom(ctx, op, subject, 1)
		if err != nil {
			return nil, err
		}
		start := oldest
		if try <= maxPageTries {
			start, err = pageStart(oldest, end, want, func(from uint64) (noteRange, error) { return m.rangeFrom(ctx, op, subject, from) })
			if err != nil {
				return nil, err
			}
		}
		found, err := m.readNotes(ctx, op, subject, start.from, start.count-end.count)
		if err != nil {
			return nil, err
		}
		if end.count > 0 {
			found = slices.DeleteFunc(found, func(n storedNote) bool { return n.seq >= end.from })
		}
		if len(found) >= want || start.from == oldest.from {
			return newestFirst(found, want), nil
		}
		end.count = start.count - len(found) // so many are newer by now
	}
}

// newestFirst reverses notes and leaves out the oldest, beyond limit.
func newestFirst(found []storedNote, limit int) (notes []mailbox.Note) {
	for _, n := range slices.Backward(found[max(0, len(found)-limit):]) {
		notes = append(notes, n.Note)
	}
	return notes
}

// noteRange is the notes of a board from a sequence on.
type noteRange struct {
	from  uint64
	count int
}

// pageStart finds a sequence between the oldest note and the end of a page,
// with at least so many notes from there to the end, and not many more. It
// interpolates as if the notes were spread evenly, and every other time halves
// what is left, so that it terminates however they are spread.
func pageStart(oldest, end noteRange, want int, probe func(from uint64) (noteRange, error)) (noteRange, error) {
	spare := want/4 + 2
	low, high := oldest, end
	for halve := false; low.count-end.count > want+2*spare && high.from > low.from+1; halve = !halve {
		step := (high.from - low.from) / 2
		if !halve && low.count > high.count {
			wanted := max(0, end.count+want+spare-high.count)
			step = uint64(float64(high.from-low.from) * float64(wanted) / float64(low.count-high.count))
		}
		at := high.from - min(max(1, step), high.from-low.from-1)
		found, err := probe(at)
		if err != nil {
			return noteRange{}, err
		}
		switch before := found.count - end.count; {
		case before > want+2*spare:
			low = found
		case before >= want:
			return found, nil
		default:
			high = noteRange{from: at, count: found.count}
		}
	}
	return low, nil
}

// storedNote is a note as it is kept in the stream.
type storedNote struct {
	mailbox.Note
	seq       uint64
	remaining int // how many come after it
}

// rangeFrom counts the messages of a subject from a sequence on. The range
// begins with the first of them; with zero if there is none.
func (m *Mailbox) rangeFrom(ctx context.Context, op, subject string, from uint64) (found noteRange, err error) {
	err = m.client.retry(ctx, op, func(ctx context.Context) error {
		found, err = m.client.rangeFrom(ctx, subject, from)
		return err
	})
	return found, err
}

// readNotes reads so many notes from a sequence on, oldest first.
func (m *Mailbox) readNotes(ctx context.Context, op, subject string, from uint64, most int) (all []storedNote, err error) {
	for len(all) < most {
		var some []storedNote
		err := m.client.retry(ctx, op, func(ctx context.Context) error {
			some, err = m.client.readNotes(ctx, subject, from, most-len(all))
			return err
		})
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
		if len(some) == 0 || some[len(some)-1].remaining == 0 {
			break
		}
		from = some[len(some)-1].seq + 1
	}
	return all, nil
}

func (j *jsClient) rangeFrom(ctx context.Context, subject string, from uint64) (noteRange, error) {
	answers, err := j.directGet(ctx, map[string]any{"seq": from, "next_by_subj": subject, batchKey: 1})
	if err != nil || len(answers) == 0 {
		return noteRange{}, err
	}
	return noteRange{from: headerUint(answers[0], seqHeader), count: int(headerUint(answers[0], pendingHeader)) + 1}, nil
}

// maxReadBytes is about how much one request asks for. The client can buffer
// more than that, and drops what it cannot buffer.
const maxReadBytes = 8 << 20

func (j *jsClient) readNotes(ctx context.Context, subject string, from uint64, most int) (notes []storedNote, err error) {
	answers, err := j.directGet(ctx, map[string]any{"seq": from, "next_by_subj": subject, batchKey: most, "max_bytes": maxReadBytes})
	if err != nil {
		return nil, err
	}
	for _, answer := range answers {
		n, err := decodeNote(answer)
		if err != nil {
			return nil, err
		}
		notes = append(notes, n)
	}
	return notes, nil
}

// The headers and statuses of JetStream's responses to a request for messages.
const (
	batchKey      = "batch"
	statusHeader  = "Status"
	statusEnd     = "204"
	statusNone    = "404"
	seqHeader     = "Nats-Sequence"
	pendingHeader = "Nats-Num-Pending"
)

// directGet requests messages of the boards, one or a batch. The client library
// has no call for a batch yet.
func (j *jsClient) directGet(ctx context.Context, want map[string]any) (found []*nats.Msg, err error) {
	request, _ := json.Marshal(want) // numbers and text only
	inbox := j.conn.NewInbox()
	answers, err := j.conn.SubscribeSync(inbox)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answers.Unsubscribe() }() // it ends with the connection anyway
	if err := j.conn.PublishRequest("$JS.API.DIRECT.GET."+j.layout.notesStream(), inbox, request); err != nil {
		return nil, err
	}
	for {
		m, err := answers.NextMsgWithContext(ctx)
		if err != nil {
			return nil, err
		}
		switch status := m.Header.Get(statusHeader); status {
		case "":
			found = append(found, m)
			if want[batchKey] == nil {
				return found, nil
			}
		case statusEnd, statusNone:
			return found, nil
		default:
			return nil, errors.New("nats: status " + status)
		}
	}
}

func decodeNote(m *nats.Msg) (storedNote, error) {
	var p noteMetadata
	if err := decodeHeader(m.Header.Get(noteHeader), &p); err != nil {
		return storedNote{}, damagedRecord(m.Header.Get("Nats-Subject"), err)
	}
	return storedNote{Note: mailbox.Note{ID: p.ID, Body: m.Data, At: fromNanos(p.At)}, seq: headerUint(m, seqHeader), remaining: int(headerUint(m, pendingHeader))}, nil
}

// headerUint parses a number in a header of JetStream.
func headerUint(m *nats.Msg, name string) uint64 {
	n, _ := strconv.ParseUint(m.Header.Get(name), 10, 64)
	return n
}
