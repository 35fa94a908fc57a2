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

// registryStages is where the parts of the registry run.
var registryStages = registry.Stages{State: stageState, Workers: stageWorkers, Intake: stageIntake}

// openRegistry opens the log where it is kept, and makes the registry.
func (n *Node) openRegistry(ctx context.Context, c Config) error {
	key, err := n.logKey(c.Registry.Storage)
	if err != nil {
		return err
	}
	spec := registry.Spec{
		Config: c.Registry, Key: key, Skew: time.Duration(c.Node.ClockSkew), Announce: n.announce,
		Shared: c.Registry.Storage.URL != "", Metrics: n.metrics, Readiness: n.readiness, Tracer: n.tracing.Tracer(),
	}
	switch {
	case spec.Shared:
		spec.Journal, err = openEtcd(ctx, c.Registry.Storage)
	case n.folder != nil:
		spec.Journal, err = c.Registry.Storage.InFolder(n.folder.in(registryFolder))
	default:
		spec.Journal = c.Registry.Storage.InMemory()
	}
	if err != nil {
		return err
	}
	n.openLetters()
	if n.registry, err = registry.New(ctx, n.inventory, spec); err != nil {
		n.registry = nil
		_ = spec.Journal.Close() // nothing was written
	}
	return err
}

// logKey is the key that signs checkpoints: one that was given, or one that is
// made from the node's own, so that no signature for the one purpose can ever
// be taken for one of the other.
func (n *Node) logKey(s registry.Storage) (ed25519.PrivateKey, error) {
	if s.LogKey.IsSet() {
		given, err := LoadIdentity(s.LogKey.Reveal())
		if err != nil {
			return nil, fault.Wrap("node.registry", err)
		}
		return given.private, nil
	}
	seed, err := hkdf.Key(sha256.New, n.identity.private.Seed(), nil, "micronode registry log key v1", ed25519.SeedSize)
	if err != nil {
		return nil, fault.Wrap("node.registry", err)
	}
	return ed25519.NewKeyFromSeed(seed), nil
}

// announce passes a new version on to the node bus.
func (n *Node) announce(news registry.Committed) {
	n.governed()
	n.publish(news)
	n.Tell(Event{Type: RegistryUpdated, Name: strconv.FormatUint(news.Head.Version, 10), Detail: news.Head.Hash.String()})
}

// heardRegistry writes down who asked for what, and what came of it.
func (n *Node) heardRegistry(event registry.Event) {
	level := slog.LevelInfo
	switch event.Type {
	case registry.Refused, registry.Failed:
		level = slog.LevelWarn
	case registry.Damaged:
		level = slog.LevelError
	case registry.Checkpointed:
		level = slog.LevelDebug
	}
	n.tell(level, string(event.Type), aboutRegistry(event)...)
}

// aboutRegistry is what an event says of itself.
func aboutRegistry(event registry.Event) (args []any) {
	add := func(said bool, key string, value any) {
		if said {
			args = append(args, key, value)
		}
	}
	add(event.Proposal != "", "proposal", event.Proposal)
	add(event.Signer != "", "signer", event.Signer)
	add(event.Version != 0, "version", event.Version)
	add(len(event.Diff) > 0 && event.Type != registry.CommittedNow, "diff", event.Diff) // it was told when it was proposed
	add(event.Detail != "", "detail", event.Detail)
	return args
}

// closeRegistry lets go of the log.
func (n *Node) closeRegistry() error {
	if n.registry == nil {
		return nil
	}
	return n.registry.Close()
}
