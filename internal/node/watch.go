package node

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"micronode/internal/ingress"
	"micronode/internal/observe"
	"micronode/internal/supervise"
)

// logLine is a line for the log that its author does not wait for: the author
// may be the supervisor in the middle of a drain, and a terminal that does not
// scroll must not block that.
type logLine struct {
	level   slog.Level
	message string
	args    []any
}

// logAsync queues a line. If they are not written fast enough, the oldest are
// dropped and counted.
func (n *Node) logAsync(level slog.Level, message string, args ...any) {
	_ = n.telemetry.TryPush(logLine{level, message, args}) // fails only when closed: the report has the rest
}

// serveLogLines is the one consumer of the queued lines.
func (n *Node) serveLogLines(ctx context.Context) error {
	for {
		line, err := n.telemetry.Pop(ctx)
		if err != nil {
			return nil // closed, and all of it written
		}
		n.log.Log(ctx, line.level, line.message, line.args...)
	}
}

// serveReadiness publishes every change of readiness on the bus, and writes it
// to the log with its reasons.
func (n *Node) serveReadiness(ctx context.Context) error {
	log := observe.NewReadinessLog(n.logAsync)
	var last *observe.Verdict
	return n.readiness.Follow(ctx, func(now observe.Verdict) {
		log.Look(now, time.Now())
		if last == nil || !now.Equal(*last) {
			last = &now
			n.PublishEvent(Event{Type: ReadyChanged})
		}
	})
}

// PublishEvent publishes an event on the node bus. A Shutdown is also kept as
// state, so that serveBus finds it even if the event itself is lost among too
// many others.
func (n *Node) PublishEvent(event Event) {
	event.At = time.Now().UTC()
	if event.Type == Shutdown {
		n.shutdownReason.Store(event.Detail)
	}
	_ = n.bus.Publish(n.recent.add(event)) // a closed bus means that the drain is under way
}

// serveBus acts on a Shutdown on the bus, so that a part of the node can
// request the same drain that a signal starts.
func (n *Node) serveBus(ctx context.Context) error {
	for {
		event, err := n.busReader.Recv(ctx)
		if err != nil {
			return nil // closed by the drain
		}
		if event.Type == Shutdown {
			n.startDrain()
		}
	}
}

// reconcile catches up after events were lost.
func (n *Node) reconcile(context.Context, uint64) error {
	if _, stores := n.shutdownReason.LoadVersion(); stores > 0 {
		n.startDrain()
	}
	return nil
}

func (n *Node) startDrain() {
	n.supervisor.Shutdown("asked for on the bus: " + n.shutdownReason.Load())
}

// keepNext is how not to lose anything.
const keepNext = "Run the node with --persist DIR to keep what it has accepted."

// onSupervisorEvent turns events of the supervisor into bus events and log
// lines. It is called outside every lock and never blocks. A service that fails
// again and again for the same reason has one line a minute.
func (n *Node) onSupervisorEvent(event supervise.Event) {
	switch event.Type {
	case supervise.EventFailed, supervise.EventDegraded, supervise.EventDown, supervise.EventAborted, supervise.EventLeftRunning:
		args := []any{"name", event.Name, "worker", event.Worker, "detail", event.Detail, "err", event.Err}
		n.logRepeated(slog.LevelWarn, fmt.Sprint(event.Type, event.Name, event.Detail, event.Err), "service "+string(event.Type), args)
	case supervise.EventRestarting:
		n.logRepeated(slog.LevelInfo, fmt.Sprint(event.Type, event.Name), "service restarting",
			[]any{"name", event.Name, "worker", event.Worker, "delay", event.Delay.Round(time.Millisecond)})
		n.PublishEvent(Event{Type: ServiceRestarted, Name: event.Name})
	case supervise.EventDraining:
		if lost := n.noteLosses(); lost != "" {
			n.logAsync(slog.LevelWarn, "draining", "reason", event.Detail, "lost", lost, "next", keepNext)
		} else {
			n.logAsync(slog.LevelInfo, "draining", "reason", event.Detail)
		}
	}
	if n.readiness != nil {
		n.readiness.Recheck()
	}
}

// logRepeated queues a line, unless one about the same thing was written within
// the last minute.
func (n *Node) logRepeated(level slog.Level, about, message string, args []any) {
	held, ok := n.repeated.Admit(about, time.Now())
	if !ok {
		return
	}
	if held > 0 {
		args = append(args, "also", fmt.Sprintf("%d times since the last line", held))
	}
	n.logAsync(level, message, args...)
}

// logRequest logs a request: at debug level, and always if it failed on our
// side.
func (n *Node) logRequest(a ingress.RequestSummary) {
	level := slog.LevelDebug
	if a.Status >= http.StatusInternalServerError && a.Status != http.StatusServiceUnavailable {
		level = slog.LevelWarn
	}
	if !n.log.Enabled(context.Background(), level) {
		return
	}
	n.logAsync(level, "request", "method", a.Method, "route", a.Route, "status", a.Status, "bytes", a.Bytes,
		"took", a.Took, "client", a.Client, "local", a.Local, "corr_id", a.CorrID)
}
