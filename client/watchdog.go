package client

import (
	"context"
	"errors"
	"io"
	"time"
)

// errStalled is the cause when a watchdog ends a try.
var errStalled = errors.New("the transfer made no progress")

// watchdog ends a try when the node sends nothing for too long. The clock runs
// only while the client waits for the node: a program that reads its answer
// slowly, or whose source is slow, does not count.
type watchdog struct {
	// set at construction
	limit  time.Duration
	timer  *time.Timer
	cancel context.CancelCauseFunc
}

// newWatchdog returns a context for one try, and the watchdog that may end it.
// Its clock runs.
func newWatchdog(ctx context.Context, limit time.Duration) (context.Context, *watchdog) {
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(limit, func() { cancel(errStalled) }) //lockblock:allow like the timer of context.WithTimeout, it only ends a context, and stop stops it
	return ctx, &watchdog{limit: limit, timer: timer, cancel: cancel}
}

// start restarts the clock.
func (w *watchdog) start() { w.timer.Reset(w.limit) }

// pause stops the clock.
func (w *watchdog) pause() { w.timer.Stop() }

// stop ends the try.
func (w *watchdog) stop() {
	w.timer.Stop()
	w.cancel(nil)
}

// watchedBody is the body of an answer. Closing it ends the try.
type watchedBody struct {
	io.ReadCloser
	watchdog *watchdog
}

func (b *watchedBody) Read(p []byte) (int, error) {
	b.watchdog.start()
	defer b.watchdog.pause()
	return b.ReadCloser.Read(p)
}

func (b *watchedBody) Close() error {
	defer b.watchdog.stop()
	return b.ReadCloser.Close()
}
