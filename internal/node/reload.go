package node

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"micronode/fault"
	"micronode/internal/config"
	"micronode/internal/ingress"
)

// Reload requests that the configuration is read again, as SIGHUP does.
func (n *Node) Reload(cause string) { _ = n.config.Trigger(cause) } // it fails only while the node drains

// loadConfig reads the configuration again, from the same sources.
func (n *Node) loadConfig() (*config.Loaded[Config], error) {
	return load(n.options)
}

// participant is what the node applies from a new configuration: the log level,
// the target of spans, the TLS keys, what the edge serves, the peers of the
// overlay, how the registry is kept, and how the index looks things up. The
// rest needs a restart.
func (n *Node) participant() config.Participant[Config] {
	return config.Participant[Config]{Name: "node", Verify: n.verifyConfig, Commit: n.applyConfig}
}

// verifyConfig checks everything that commit will do, without doing it.
func (n *Node) verifyConfig(_, next Config) error {
	if err := n.checkExposure(next); err != nil {
		return err
	}
	if n.tlsSource == nil || n.certificates != nil {
		return nil
	}
	_, err := ingress.LoadTLS(next.HTTP.TLSFiles())
	return err
}

func (n *Node) applyConfig(next Config) {
	if err := n.setLevel(next.Log.Level); err != nil {
		n.logAsync(slog.LevelError, "log level", "err", err)
	}
	if err := n.tracing.Set(context.Background(), next.Trace.traces()); err != nil {
		n.logAsync(slog.LevelError, "traces", "err", err)
	}
	n.bandwidth.Set(next.Node.Bandwidth.settings())
	n.gateway.Reconfigure(next.HTTP)
	n.setSites(next)
	for part, reconfigure := range map[string]func() error{
		"edge":     func() error { return n.edge.Reconfigure(next.Edge) },
		"overlay":  func() error { return n.overlay.Reconfigure(next.Overlay) },
		"registry": func() error { return n.registry.Reconfigure(next.Registry) },
		"index":    func() error { return n.index.Reconfigure(next.Index) },
	} {
		if err := n.ifLocal(part, reconfigure); err != nil {
			n.logAsync(slog.LevelError, part, "err", err)
		}
	}
	if err := n.reloadTLS(next); err != nil { // verified a moment ago: the files are being written right now
		n.logAsync(slog.LevelError, "TLS keys", "err", err)
	}
}

// reloadTLS reads the files of keys and certificates again. Their names seldom
// change; what is in them does.
func (n *Node) reloadTLS(c Config) error {
	if n.tlsSource == nil || n.certificates != nil {
		return nil
	}
	keys, err := ingress.LoadTLS(c.HTTP.TLSFiles())
	if err == nil {
		n.tlsSource.Store(keys)
	}
	return err
}

// onReload counts and logs the result of a reload. What the operator has to do
// about it stays among the reasons of readiness until it is done: a rejected
// file until one is accepted, settings that need a restart until they are back
// at what the process was started with, or it is restarted. Neither changes
// readiness: the node works as before.
func (n *Node) onReload(result config.Result) {
	if result.Outcome == config.Unchanged { // a renewed certificate changes no setting
		if err := n.reloadTLS(n.config.Current().Value); err != nil {
			result.Outcome, result.Err = config.Rejected, err
		}
	}
	n.announceReloaded(result)
	n.metrics.ConfigReloads.WithLabelValues(string(result.Outcome)).Inc()
	n.metrics.ConfigCoalesced(result.Coalesced)
	cause := strings.Join(result.Causes, ", ")
	if result.Outcome == config.Rejected {
		_ = n.ifLocal("registry", func() error { n.registry.CountRejectedConfig(); return nil }) // counting cannot fail
		n.logAsync(slog.LevelError, "config rejected, the old one stays in effect", "cause", cause, "err", result.Err)
		n.rejectedConfig.UpWithRemark(fmt.Sprintf("a reload was rejected at %s, and the old configuration stays in effect: %s",
			time.Now().UTC().Format(time.TimeOnly+" UTC"), rejectionText(result.Err)),
			"Correct it; the file is read again when it changes, or on SIGHUP. `micronode config check FILE` shows all problems.")
		return
	}
	n.rejectedConfig.Up()
	switch keys := strings.Join(result.NeedRestart, ", "); keys {
	case "":
		n.pendingConfig.Up()
	default:
		n.pendingConfig.UpWithRemark("these settings have changed and wait for a restart: "+keys, "Restart the node when it suits you.")
	}
	if result.Outcome == config.Unchanged {
		n.logAsync(slog.LevelInfo, "config unchanged", "cause", cause)
		return
	}
	n.metrics.ConfigUpdates.Inc()
	n.logAsync(slog.LevelInfo, "config applied", "cause", cause, "changed", result.Changed, "need_restart", result.NeedRestart)
	n.PublishEvent(Event{Type: ConfigUpdated, Detail: cause})
}

// rejectionText names what is wrong with a configuration by its settings.
// Their values and files are in the log only, because anyone may read a reason.
func rejectionText(err error) string {
	var keys []string
	for _, problem := range config.ProblemsOf(err) {
		if key := problem.Key; key != "" && !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 {
		return fault.KindOf(err).Title()
	}
	return "see " + strings.Join(keys, ", ")
}
