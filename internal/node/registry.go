package node

import (
	"context"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/sha256"
	"log/slog"
	"strconv"
	"time"

	"micronode/fault"
	"micronode/internal/registry"
)

// registryStages are the stages of the registry's services.
var registryStages = registry.Stages{State: stageState, Workers: stageWorkers, Intake: stageIntake}

// openRegistry opens the journal, and makes the registry.
func (n *Node) openRegistry(ctx context.Context, c Config) error {
	key, err := n.logKey(c.Registry.Storage)
	if err != nil {
		return err
	}
	n.registryKey = key // closeKeys wipes it
	spec := registry.Spec{
		Config: c.Registry, Key: key, Skew: time.Duration(c.Node.ClockSkew), Announce: n.onCommit,
		Shared: c.Registry.Storage.URL != "", Metrics: n.metrics, Readiness: n.readiness, Tracer: n.tracing.Tracer(),
	}
	switch {
	case spec.Shared:
		spec.Journal, err = openEtcd(ctx, c.Registry.Storage)
	case n.folder != nil:
		spec.Journal, err = c.Registry.Storage.InFolder(n.folder.join(registryFolder))
	default:
		spec.Journal = c.Registry.Storage.InMemory()
	}
	if err != nil {
		return err
	}
	n.openCommitMessages()
	if n.registry, err = registry.New(ctx, n.inventory, spec); err != nil {
		n.registry = nil
		_ = spec.Journal.Close() // nothing was written
	}
	return err
}

// logKey is the key that signs checkpoints: a configured one, or one that is
// derived from the node's own, so that a signature for one purpose can never be
// used for the other.
func (n *Node) logKey(s registry.Storage) (ed25519.PrivateKey, error) {
	if s.LogKey.IsSet() {
		given, err := LoadIdentity(s.LogKey.Reveal())
		if err != nil {
			return nil, fault.Wrap("node.registry", err)
		}
		return given.private, nil
	}
	own := n.identity.private.Seed()
	seed, err := hkdf.Key(sha256.New, own, nil, "micronode registry log key v1", ed25519.SeedSize)
	clear(own)
	if err != nil {
		return nil, fault.Wrap("node.registry", err)
	}
	return ed25519.NewKeyFromSeed(seed), nil
}

// onCommit publishes a new version on the node bus.
func (n *Node) onCommit(commit registry.Committed) {
	n.onRegistryChange()
	n.publishCommit(commit)
	n.PublishEvent(Event{Type: RegistryUpdated, Name: strconv.FormatUint(commit.Version, 10), Detail: commit.Hash.String()})
}

// onRegistryEvent logs requests to the registry and their results.
func (n *Node) onRegistryEvent(event registry.Event) {
	level := slog.LevelInfo
	switch event.Type {
	case registry.EventRefused, registry.EventStorageFailed, registry.EventDropped:
		level = slog.LevelWarn
	case registry.EventDamaged:
		level = slog.LevelError
	case registry.EventCheckpointed:
		level = slog.LevelDebug
	}
	n.logAsync(level, string(event.Type), registryEventArgs(event)...)
}

// registryEventArgs are the log attributes of an event.
func registryEventArgs(event registry.Event) (args []any) {
	add := func(present bool, key string, value any) {
		if present {
			args = append(args, key, value)
		}
	}
	add(event.Proposal != "", "proposal", event.Proposal)
	add(event.Signer != "", "signer", event.Signer)
	add(event.Version != 0, "version", event.Version)
	add(len(event.Diff) > 0 && event.Type != registry.EventCommitted, "diff", event.Diff) // it was logged when it was proposed
	add(event.Detail != "", "detail", event.Detail)
	return args
}

// closeRegistry closes the registry.
func (n *Node) closeRegistry() error {
	if n.registry == nil {
		return nil
	}
	return n.registry.Close()
}
