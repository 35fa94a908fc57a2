package node

import (
	"context"
	"log/slog"
	"net/http"

	"micronode/internal/ingress"
	"micronode/internal/observe"
	"micronode/internal/supervise"
)

// note is a line for the log that its author does not wait for: whoever tells
// it may be the supervisor in the middle of a drain, and a terminal that does
// not scroll must not stop that.
type note struct {
	level   slog.Level
	message string
	args    []any
}

// tell queues a note. The oldest are dropped, and counted, if nobody writes
// them out fast enough.
func (n *Node) tell(level slog.Level, message string, args ...any) {
	_ = n.telemetry.TryPush(note{level, message, args}) // fails only when closed: the report says the rest
}

// serveTelemetry is the one consumer of what everybody tells in passing.
func (n *Node) serveTelemetry(ctx context.Context) error {
	for {
		line, err := n.telemetry.Pop(ctx)
		if err != nil {
			return nil // closed, and all of it written
		}
		n.log.Log(ctx, line.level, line.message, line.args...)
	}
}

// serveReadiness tells the bus whenever readiness is another than before.
func (n *Node) serveReadiness(ctx context.Context) error {
	return n.readiness.Watch(ctx, func(now observe.Verdict) {
		n.tell(slog.LevelInfo, "readiness", "ready", now.Ready, "write_ready", now.WriteReady, "degraded", now.Degraded, "missing", now.Missing)
		n.Tell(Event{Type: ReadyChanged})
	})
}

// Tell publishes an event on the node bus. A Shutdown is also kept as state,
// so that the one who must act on it finds it there even if the event itself
// is lost among too many others.
func (n *Node) Tell(event Event) {
	if event.Type == Shutdown {
		n.shutdown.Store(event.Detail)
	}
	_ = n.bus.Publish(event) // a closed bus means that the drain is under way
}

// serveBus acts on a Shutdown on the bus, so that a part of the node can ask
// for the same drain that a signal starts.
func (n *Node) serveBus(ctx context.Context) error {
	for {
		event, err := n.orders.Recv(ctx)
		if err != nil {
			return nil // closed by the drain
		}
		if event.Type == Shutdown {
			n.obey()
		}
	}
}

// reconcile catches up after events were lost.
func (n *Node) reconcile(ctx context.Context, missed uint64) error {
	n.lag.Lagged(ctx, "bus", "shutdown", missed)
	if _, orders := n.shutdown.Seen(); orders > 0 {
		n.obey()
	}
	return nil
}

func (n *Node) obey() { n.supervisor.Shutdown("asked for on the bus: " + n.shutdown.Load()) }

// observed turns what the supervisor sees into events and log lines. It is
// called outside every lock and never blocks.
func (n *Node) observed(event supervise.Event) {
	switch event.Type {
	case supervise.EventFailed, supervise.EventDegraded, supervise.EventDown, supervise.EventAborted, supervise.EventLeftRunning:
		n.tell(slog.LevelWarn, "service "+string(event.Type), "name", event.Name, "worker", event.Worker, "detail", event.Detail, "err", event.Err)
	case supervise.EventRestarting:
		n.tell(slog.LevelInfo, "service restarting", "name", event.Name, "worker", event.Worker, "delay", event.Delay)
		n.Tell(Event{Type: ServiceRestarted, Name: event.Name})
	case supervise.EventDraining:
		n.tell(slog.LevelInfo, "draining", "reason", event.Detail)
	}
	if n.readiness != nil {
		n.readiness.Recheck()
	}
}

// answered tells of a request: in detail for whoever debugs, and always if it
// was our own fault.
func (n *Node) answered(a ingress.Answer) {
	level := slog.LevelDebug
	if a.Status >= http.StatusInternalServerError && a.Status != http.StatusServiceUnavailable {
		level = slog.LevelWarn
	}
	if !n.log.Enabled(context.Background(), level) {
		return
	}
	n.tell(level, "request", "method", a.Method, "route", a.Route, "status", a.Status, "bytes", a.Bytes,
		"took", a.Took, "client", a.Client, "local", a.Local, "corr_id", a.CorrID)
}
