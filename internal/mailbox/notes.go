package mailbox

import (
	"context"
	"runtime"
	"slices"

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/wal"
)

// Post implements Engine.
func (q *queueServer) Post(ctx context.Context, names []string, n Note) error {
	const op = "mailbox.post"
	if err := CheckPost(op, names, n); err != nil || len(names) == 0 {
		return err
	}
	if q.posts != nil {
		if err := q.posts.Enter(ctx); err != nil {
			return fault.Wrap(op, err)
		}
		defer q.posts.Leave()
	}
	now, err := q.lock(ctx, op)
	if err != nil {
		return err
	}
	err = q.state.noticeboards.checkRoom(op, names, n)
	q.unlock()
	if err != nil {
		return err
	}
	if q.appender == nil {
		return fault.Wrap(op, q.applyPost(names, n))
	}
	defer q.onAppend()
	return fault.Wrap(op, q.appender.CommitAt(ctx, func(_ []wal.Position, err error) {
		if err == nil {
			_ = q.applyPost(names, n) // a closed server needs no notes: they are in the log
		}
	}, postedRecord(now, names, n).encode()))
}

// boardsAtOnce is how many boards a note is posted to before others have a turn
// at the state: a note may go to thousands, and a reader waits for microseconds.
const boardsAtOnce = 64

// applyPost posts a note, to some of the boards at a time.
func (q *queueServer) applyPost(names []string, n Note) error {
	for some := range slices.Chunk(names, boardsAtOnce) {
		q.mu.Lock()
		if q.closed {
			q.mu.Unlock()
			return flow.ErrClosed
		}
		q.state.post(some, n)
		q.unlock()
		runtime.Gosched() // to whoever waited for the state: its wake alone does not overtake who is running
	}
	return nil
}

// Notes implements Engine.
func (q *queueServer) Notes(ctx context.Context, name, after string, limit int) ([]Note, error) {
	const op = "mailbox.board"
	if err := CheckName(op, name); err != nil {
		return nil, err
	}
	if _, err := q.lock(ctx, op); err != nil {
		return nil, err
	}
	defer q.unlock()
	return q.state.listNotes(name, after, limit), nil
}
