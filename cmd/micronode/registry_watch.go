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
	After     *uint64       `placeholder:"VERSION" help:"Begin with the version after this one, as far as the node still has it at hand. Without it, with the next commit."`
	Count     uint          `placeholder:"N" help:"End after so many versions."`
	Reconnect time.Duration `default:"1m" placeholder:"DURATION" help:"How long to wait for a node that went away, ${default} unless said otherwise; 0s does not wait."`
	target
	printing
}

// Help is shown by registry watch --help.
func (registryWatch) Help() string {
	return `A line is the version, when it was committed, and its hash. After a connection was lost, it goes on where it was. If versions are missing here all the same, that is told on standard error; the log has them. Ctrl-C ends it.

Examples:

    micronode registry watch
    micronode registry watch --after 41 --json`
}

const watchOp = "registry.watch"

// Run prints versions until it was enough.
func (r *registryWatch) Run(ctx context.Context, c *console) error {
	node, err := r.dial()
	if err != nil {
		return err
	}
	defer node.Close()
	w := &watcher{console: c, registryWatch: r, node: node, last: r.After}
	err = w.run(ctx)
	if ctx.Err() != nil && r.Count == 0 {
		return nil // it was ended from outside
	}
	return err
}

// watcher prints what is committed. It belongs to the command.
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
		w.remark("waiting for commits; Ctrl-C ends it")
	}
	for {
		err := w.follow(ctx, in)
		_ = in.Close() // nothing was written to it
		if err == nil || ctx.Err() != nil || w.Reconnect <= 0 || !fault.KindOf(err).Retryable() {
			return err
		}
		w.tell(&fault.Error{Op: watchOp, Kind: fault.KindOf(err), Detail: "the connection was lost", Err: err,
			Next: "Connecting again. Nothing is missed that the node still has."})
		if in, err = w.reconnect(ctx); err != nil {
			return err
		}
		w.remark("connected again")
	}
}

// follow prints what comes until it was enough, or the stream ends.
func (w *watcher) follow(ctx context.Context, in *client.RegistryWatch) error {
	for {
		update, err := in.Next(ctx)
		if _, behind := errors.AsType[*client.Lagged](err); behind {
			w.lagged(ctx, err)
			continue
		}
		if err != nil {
			return err
		}
		w.show(update)
		if w.seen++; w.seen == w.Count || w.unwritten != nil {
			return nil
		}
	}
}

// lagged says that versions are missing here, and up to where the log has them.
func (w *watcher) lagged(ctx context.Context, lag error) {
	detail := "versions are missing here: they came faster than they were read"
	if head, err := w.node.RegistryHead(ctx); err == nil {
		detail += fmt.Sprintf("; the last one is %d", head.Version)
	}
	w.tell(&fault.Error{Op: watchOp, Kind: fault.Lagging, Detail: detail, Err: told{lag}, Next: "See them with: micronode registry log"})
}

// reconnect waits for the node to come back.
func (w *watcher) reconnect(ctx context.Context) (*client.RegistryWatch, error) {
	for end := time.Now().Add(w.Reconnect); ; {
		if err := flow.Sleep(ctx, reconnectPause); err != nil {
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
		w.print("%d  %s  %s\n", update.Version, stamp(update.CommittedAt), update.B3)
	}
}
