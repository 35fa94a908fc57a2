package nats

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"micronode/internal/mailbox"
)

// Post implements mailbox.Engine. Each board gets a copy of the note, on a
// subject of its own, on which JetStream accepts one message only.
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
	if err := m.checkBoardRoom(ctx, op, boards); err != nil {
		return err
	}
	for batch := range slices.Chunk(boards, postBatchSize) {
		if err := m.postBatch(ctx, op, batch, n); err != nil {
			return err
		}
	}
	if time.Since(m.boardStats.Load().readAt) > minStatsInterval {
		m.signalMaintain()
	}
	return nil
}

// checkBoardRoom refuses boards beyond the limit. How many there are is known
// only roughly, so near the limit it is looked up whether a board is a new one.
func (m *Mailbox) checkBoardRoom(ctx context.Context, op string, boards []string) error {
	have := m.boardStats.Load().boards
	if have+int64(len(boards)) <= int64(m.spec.Limits.Boards) {
		return nil
	}
	for _, name := range boards {
		found, err := m.rangeFrom(ctx, op, m.client.layout.boardSubjects(name), 1)
		if err != nil {
			return err
		}
		if found.count > 0 {
			continue
		}
		if have++; have > int64(m.spec.Limits.Boards) {
			return mailbox.NoRoom(op, "boards", "the maximum of %d noticeboards is reached", have-1)
		}
	}
	return nil
}

// postBatch posts a note to some boards at a time, and renews the marks and
// trims the boards that are due.
func (m *Mailbox) postBatch(ctx context.Context, op string, boards []string, n mailbox.Note) error {
	unmarked, overdue := m.boardTracker.countPosts(boards, m.boardStats.Load().midSequence, m.spec.Limits.BoardNotes)
	err := m.client.retry(ctx, op, func(ctx context.Context) error { return m.client.publishNote(ctx, boards, n) })
	if err != nil {
		return err
	}
	err = m.client.retry(ctx, op, func(ctx context.Context) error {
		marks, err := m.client.publishMarks(ctx, unmarked)
		m.boardTracker.setMarks(marks)
		return err
	})
	if err != nil {
		return err
	}
	for _, board := range overdue {
		err := m.client.retry(ctx, op, func(ctx context.Context) error { return m.client.trim(ctx, board) })
		if err != nil {
			return err
		}
		m.boardTracker.resetPosts(board)
	}
	return nil
}

// minStatsInterval is the shortest time between two counts of the boards,
// whatever is posted: counting is work for the servers.
const minStatsInterval = time.Second

// boardTracker is what a node remembers of boards that it has posted to, to
// know when they are due. If it forgets, they are due earlier than necessary.
type boardTracker struct {
	mu sync.Mutex

	// guarded by mu
	byHash map[string]trackedBoard // by a hash of the name, which may be long
}

// trackedBoard is one of them.
type trackedBoard struct {
	mark  uint64 // the sequence of the mark of the board; zero if not known
	posts int    // since it was trimmed
}

// maxTracked is how many boards are remembered.
const maxTracked = 1 << 16

// countPosts counts a post to boards. It returns those whose mark must be
// renewed, before it is old enough to be evicted, and those that have to be
// trimmed. Where counting begins is random, so that nodes that are restarted
// often trim, too.
func (b *boardTracker) countPosts(boards []string, middle uint64, notes int) (unmarked, overdue []string) {
	every := max(1, notes/8)
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, name := range boards {
		key := hashToken("board", name)
		board, found := b.byHash[key]
		if !found {
			if len(b.byHash) >= maxTracked {
				clear(b.byHash)
			}
			board.posts = rand.N(every)
		}
		board.posts++
		b.byHash[key] = board
		if board.mark == 0 || board.mark < middle {
			unmarked = append(unmarked, name)
		}
		if board.posts >= every {
			overdue = append(overdue, name)
		}
	}
	return unmarked, overdue
}

// setMarks remembers where the marks of boards are.
func (b *boardTracker) setMarks(marks map[string]uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for name, seq := range marks {
		key := hashToken("board", name)
		if board, found := b.byHash[key]; found {
			board.mark = seq
			b.byHash[key] = board
		}
	}
}

// resetPosts restarts the count.
func (b *boardTracker) resetPosts(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	key := hashToken("board", name)
	if board, found := b.byHash[key]; found {
		board.posts = 0
		b.byHash[key] = board
	}
}

// publishNote posts a note to boards. One that is on a board already is left as
// it is.
func (j *jsClient) publishNote(ctx context.Context, boards []string, n mailbox.Note) error {
	note := encodeHeader(noteMetadata{ID: n.ID, At: nanos(n.At)})
	acks := make([]jetstream.PubAckFuture, 0, len(boards))
	for _, name := range boards {
		ack, err := j.js.PublishMsgAsync(&nats.Msg{Subject: j.layout.noteSubject(name, n.ID), Header: nats.Header{noteHeader: {note}}, Data: n.Body},
			jetstream.WithExpectStream(j.layout.notesStream()), jetstream.WithExpectLastSequencePerSubject(0))
		if err != nil {
			return err
		}
		acks = append(acks, ack)
	}
	for _, ack := range acks {
		if _, err := awaitAck(ctx, ack); err != nil && !isAlreadyPosted(err) {
			return err
		}
	}
	return nil
}

// isAlreadyPosted reports whether JetStream refused a note because it has it.
// While another node is writing it, that is not yet so.
func isAlreadyPosted(err error) bool {
	answer, ok := errors.AsType[*jetstream.APIError](err)
	return ok && answer.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence
}

// publishMarks writes the marks of boards, and returns their sequences; after a
// failure, those of some.
func (j *jsClient) publishMarks(ctx context.Context, boards []string) (map[string]uint64, error) {
	acks := make([]jetstream.PubAckFuture, 0, len(boards))
	for _, name := range boards {
		future, err := j.js.PublishMsgAsync(&nats.Msg{Subject: j.layout.boardSubject(name)}, jetstream.WithExpectStream(j.layout.notesStream()))
		if err != nil {
			return nil, err
		}
		acks = append(acks, future)
	}
	marks := map[string]uint64{}
	for i, future := range acks {
		ack, err := awaitAck(ctx, future)
		if err != nil {
			return marks, err
		}
		marks[boards[i]] = ack.Sequence
	}
	return marks, nil
}

// trim removes the oldest notes of a board that has too many.
func (j *jsClient) trim(ctx context.Context, board string) error {
	notes, err := j.js.Stream(ctx, j.layout.notesStream())
	if err != nil {
		return err
	}
	return notes.Purge(ctx, jetstream.WithPurgeSubject(j.layout.boardSubjects(board)), jetstream.WithPurgeKeep(uint64(max(1, j.limits.BoardNotes))))
}

// awaitAck waits for the acknowledgement of a publish.
func awaitAck(ctx context.Context, future jetstream.PubAckFuture) (*jetstream.PubAck, error) {
	select {
	case ack := <-future.Ok():
		return ack, nil
	case err := <-future.Err():
		return nil, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
