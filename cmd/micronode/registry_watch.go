package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"micronode/client"
	"micronode/fault"
	"micronode/internal/flow"
)

type registryWatch struct {
	After     *uint64       `placeholder:"VERSION" help:"Start with the version after this one, if the node still has it in memory. Without it, start with the next commit."`
	Count     uint          `placeholder:"N" help:"Stop after N versions."`
	Reconnect time.Duration `default:"1m" placeholder:"DURATION" help:"The time to wait for a node that disconnected; 0s does not wait (default ${default})."`
	nodeFlags
	outputFlags
}

// Help is shown by registry watch --help.
func (registryWatch) Help() string {
	return `Each line is the version, its time and its hash. After a lost connection the output continues with the next version. If versions are missing, a message on standard error says so; the log has them. Ctrl-C stops it.

Examples:

    micronode registry watch
    micronode registry watch --after 41 --json`
}

const watchOp = "registry.watch"

// Run prints versions until the count is reached or the stream ends.
func (r *registryWatch) Run(ctx context.Context, c *console) error {
	node, err := r.dial()
	if err != nil {
		return err
	}
	defer node.Close()
	w := &watcher{console: c, registryWatch: r, node: node, last: r.After}
	err = w.run(ctx)
	if ctx.Err() != nil && r.Count == 0 {
		return nil // it was interrupted
	}
	return err
}

// watcher prints committed versions. It is used by one goroutine.
type watcher struct {
	*console
	*registryWatch
	node *client.Client
	last *uint64 // the version that was printed last
	seen uint
}

// run follows the stream over as many connections as it takes.
func (w *watcher) run(ctx context.Context) error {
	in, err := w.node.WatchRegistry(ctx, w.last)
	if err != nil {
		return err
	}
	if w.errTerminal {
		w.notice("waiting for commits; Ctrl-C stops it")
	}
	for {
		err := w.follow(ctx, in)
		_ = in.Close() // nothing was written to it
		if err == nil || ctx.Err() != nil || w.Reconnect <= 0 || !fault.KindOf(err).Retryable() {
			return err
		}
		w.reportError(&fault.Error{Op: watchOp, Kind: fault.KindOf(err), Detail: "the connection was lost", Err: err,
			Next: "Reconnecting. Versions that the node still has in memory follow."})
		if in, err = w.reconnect(ctx); err != nil {
			return err
		}
		w.notice("connected again")
	}
}

// follow prints versions until the count is reached, or the stream ends.
func (w *watcher) follow(ctx context.Context, in *client.RegistryWatch) error {
	for {
		update, err := in.Next(ctx)
		if _, behind := errors.AsType[*client.Lagged](err); behind {
			w.reportLag(ctx, err)
			continue
		}
		if err != nil {
			return err
		}
		w.show(update)
		if w.seen++; w.seen == w.Count || w.outputErr != nil {
			return nil
		}
	}
}

// reportLag reports that versions are missing here, and the last one in the
// log.
func (w *watcher) reportLag(ctx context.Context, lag error) {
	detail := "versions were lost: the reader is too slow"
	if head, err := w.node.RegistryHead(ctx); err == nil {
		detail += fmt.Sprintf("; the last one is %d", head.Version)
	}
	w.reportError(&fault.Error{Op: watchOp, Kind: fault.Lagging, Detail: detail, Err: reportedError{lag}, Next: "See them with: micronode registry log"})
}

// reconnect retries until the node answers again.
func (w *watcher) reconnect(ctx context.Context) (*client.RegistryWatch, error) {
	for end := time.Now().Add(w.Reconnect); ; {
		if err := flow.Sleep(ctx, reconnectInterval); err != nil {
			return nil, err
		}
		in, err := w.node.WatchRegistry(ctx, w.last)
		if err == nil || !fault.KindOf(err).Retryable() || !time.Now().Before(end) {
			return in, err
		}
	}
}

// show prints one version on one line.
func (w *watcher) show(update client.RegistryUpdated) {
	w.last = &update.Version
	if w.json {
		w.printJSON(update)
	} else {
		w.print("%d  %s  %s\n", update.Version, formatTime(update.CommittedAt), update.B3)
	}
}
