package top

import (
	"context"
	"time"

	"micronode/client"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/terminal"
)

// snapshotTimeout bounds one snapshot, so that a node that hangs is shown as
// one that does not answer.
const snapshotTimeout = 3 * time.Second

// Watcher takes snapshots of a node. It keeps only the last one. It is used by
// one goroutine.
type Watcher struct {
	// set at construction
	node     *client.Client
	interval time.Duration

	previous   *snapshot  // nil if the node did not answer
	lastAnswer *time.Time // when it last did; nil if never
}

// NewWatcher makes a watcher that takes a snapshot every interval.
func NewWatcher(node *client.Client, interval time.Duration) *Watcher {
	return &Watcher{node: node, interval: interval}
}

// Once returns one view. The rates need two snapshots.
func (w *Watcher) Once(ctx context.Context) (View, error) {
	if _, err := w.next(ctx); err != nil {
		return View{}, err
	}
	if err := flow.Sleep(ctx, w.interval); err != nil {
		return View{}, err
	}
	return w.next(ctx)
}

// Each calls show with one view after the other, until show returns false or
// the context ends, which is no error. If the node does not answer, the view
// says so. An error is one that a retry cannot help against.
func (w *Watcher) Each(ctx context.Context, show func(View) bool) error {
	for {
		view, err := w.nextOrUnreachable(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
		if !show(view) || flow.Sleep(ctx, w.interval) != nil {
			return nil
		}
	}
}

// nextOrUnreachable returns a view, even if the node does not answer. It
// returns an error only if a retry cannot help; a node that answered once may
// answer again, whatever answers at its address meanwhile.
func (w *Watcher) nextOrUnreachable(ctx context.Context) (View, error) {
	view, err := w.next(ctx)
	if err == nil || ctx.Err() != nil {
		return view, err
	}
	switch fault.KindOf(err) {
	case fault.Unauthorized, fault.Forbidden, fault.NotFound, fault.Malformed, fault.UpstreamFailed:
		if w.lastAnswer == nil {
			return View{}, err
		}
	}
	return View{At: time.Now(), Error: terminal.ErrorText(err), Next: fault.NextOf(err), LastAnswer: w.lastAnswer}, nil
}

// next takes a snapshot and compares it with the last one.
func (w *Watcher) next(ctx context.Context) (View, error) {
	ctx, cancel := context.WithTimeout(ctx, snapshotTimeout)
	defer cancel()
	now, err := takeSnapshot(ctx, w.node)
	if err != nil {
		w.previous = nil
		return View{}, err
	}
	view := newView(w.previous, now)
	w.previous, w.lastAnswer = now, &now.at
	return view, nil
}
