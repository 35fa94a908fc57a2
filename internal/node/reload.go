package node

import (
	"context"
	"log/slog"
	"strings"

	"micronode/internal/config"
	"micronode/internal/ingress"
)

// Reload asks for the configuration to be read again, as SIGHUP does.
func (n *Node) Reload(cause string) { _ = n.config.Trigger(cause) } // it fails only while the node drains

// reload reads the configuration anew, from the same sources.
func (n *Node) reload() (*config.Loaded[Config], error) {
	return load(n.options)
}

// participant is what the node takes from a new configuration: the log level,
// where spans go, the TLS keys, what the edge serves, whom the overlay talks to,
// how the registry is kept, and how the index looks things up. The rest needs a restart.
func (n *Node) participant() config.Participant[Config] {
	return config.Participant[Config]{Name: "node", Verify: n.verify, Commit: n.commit}
}

// verify tries what commit will do, without doing it.
func (n *Node) verify(_, next Config) error {
	if err := n.checkExposure(next); err != nil {
		return err
	}
	if n.keyring == nil {
		return nil
	}
	_, err := ingress.LoadTLS(next.HTTP.Files())
	return err
}

func (n *Node) commit(next Config) {
	if err := n.setLevel(next.Log.Level); err != nil {
		n.tell(slog.LevelError, "log level", "err", err)
	}
	if err := n.tracing.Set(context.Background(), next.Trace.traces()); err != nil {
		n.tell(slog.LevelError, "traces", "err", err)
	}
	for part, take := range map[string]func() error{
		"edge":     func() error { return n.edge.Reconfigure(next.Edge) },
		"overlay":  func() error { return n.overlay.Reconfigure(next.Overlay) },
		"registry": func() error { return n.registry.Reconfigure(next.Registry) },
		"index":    func() error { return n.index.Reconfigure(next.Index) },
	} {
		if err := n.here(part, take); err != nil {
			n.tell(slog.LevelError, part, "err", err)
		}
	}
	if n.keyring == nil {
		return
	}
	keys, err := ingress.LoadTLS(next.HTTP.Files())
	if err != nil { // verified a moment ago: somebody is writing the files right now
		n.tell(slog.LevelError, "TLS keys", "err", err)
		return
	}
	n.keyring.Store(keys)
}

// reloaded counts and tells what became of a reload.
func (n *Node) reloaded(result config.Result) {
	n.metrics.ConfigReloads.WithLabelValues(string(result.Outcome)).Inc()
	cause := strings.Join(result.Causes, ", ")
	switch result.Outcome {
	case config.Rejected:
		n.tell(slog.LevelError, "config rejected, the old one stays", "cause", cause, "err", result.Err)
	case config.Unchanged:
		n.tell(slog.LevelInfo, "config unchanged", "cause", cause)
	default:
		n.metrics.ConfigUpdates.Inc()
		n.tell(slog.LevelInfo, "config applied", "cause", cause, "changed", result.Changed, "need_restart", result.NeedRestart)
		n.Tell(Event{Type: ConfigUpdated, Detail: cause})
	}
}
