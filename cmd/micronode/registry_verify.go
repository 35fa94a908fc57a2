package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"

	"micronode/b3"
	"micronode/client"
	"micronode/fault"
	"micronode/internal/observe"
	"micronode/internal/registry"
)

type registryVerify struct {
	What     string `arg:"" optional:"" complete:"file" help:"A bundle (- is standard input), the folder of a node that was run with --persist, or the URL of a node. Without it, the node of this user."`
	Registry string `placeholder:"b3:…" help:"The ID of the registry, as registry init printed it."`
	LogKey   string `placeholder:"KEY" help:"The key that signs the log, as registry init printed it."`
	target
	printing
}

// Help is shown by registry verify --help.
func (registryVerify) Help() string {
	return `Every version is checked here, from the first one on: that it follows the one before it, that enough of those who were signers at its time have signed it, that its operations fit, and that the signed checkpoint is about these very versions. Nobody is believed. What a log says of itself proves nothing, so give the registry's ID and the log's key from where you wrote them down; without them, what was taken on trust is told.

Of a node whose oldest versions were pruned, the last version is checked with its proofs; its folder can be checked as a whole.

The exit code is 0 only if all of it holds.

Examples:

    micronode registry verify --registry b3:… --log-key micronode/registry/…
    micronode registry verify ~/node --registry b3:… --log-key micronode/registry/…
    micronode registry verify version-7.json --registry b3:… --log-key micronode/registry/…
    micronode registry verify https://node.example:8080`
}

const (
	verifyOp  = "registry.verify"
	maxBundle = 64 << 20
)

// verdict is what came of it.
type verdict struct {
	What     string     `json:"what"`
	OK       bool       `json:"ok"`
	Registry b3.Address `json:"registry"`
	Version  uint64     `json:"version"` // the last one that was verified
	Hash     b3.Address `json:"hash"`
	Claims   []string   `json:"claims"`   // what was checked, and holds
	OnTrust  []string   `json:"on_trust"` // what nobody here could check
}

// Run verifies a bundle, a folder or a node.
func (r *registryVerify) Run(ctx context.Context, c *console) error {
	trust := registry.Trust{Key: r.LogKey}
	if r.Registry != "" {
		id, err := parseAddress(r.Registry)
		if err != nil {
			return err
		}
		trust.Registry = &id
	}
	found, err := r.verify(ctx, c, trust)
	if err != nil {
		return err
	}
	c.verdict(found)
	return nil
}

// verify finds out what it is, and checks it.
func (r *registryVerify) verify(ctx context.Context, c *console, trust registry.Trust) (verdict, error) {
	info, err := os.Stat(r.What)
	switch {
	case r.What == "", strings.HasPrefix(r.What, "http://"), strings.HasPrefix(r.What, "https://"):
		return r.node(ctx, c, trust)
	case err == nil && info.IsDir():
		bar := c.newCounter("verifying")
		defer bar.clear()
		report, err := registry.VerifyFolder(ctx, r.What, trust, func(done, total uint64) { bar.count(done, total) })
		if err != nil {
			return verdict{}, about(verifyOp, r.What, err)
		}
		return reported(r.What, report), nil
	default:
		raw, err := c.readAll(ctx, r.What, maxBundle)
		if err != nil {
			return verdict{}, about(verifyOp, r.What, err)
		}
		return bundled(r.What, raw, trust)
	}
}

// reported is the verdict on a whole log.
func reported(what string, report registry.Report) verdict {
	claims := []string{fmt.Sprintf("%s, from %d to %d", counted(int(report.Versions), "version"), report.First, report.Head.Version)}
	return verdict{What: what, OK: true, Registry: report.Registry, Version: report.Head.Version, Hash: report.Head.Hash,
		Claims: append(claims, report.Claims...), OnTrust: append([]string{}, report.OnTrust...)}
}

// bundled is the verdict on a bundle.
func bundled(what string, raw []byte, trust registry.Trust) (verdict, error) {
	report, err := registry.VerifyBundle(raw, trust)
	if err != nil {
		return verdict{}, about(verifyOp, what, err)
	}
	return verdict{What: what, OK: true, Registry: report.Registry, Version: report.Head.Version, Hash: report.Head.Hash,
		Claims: report.Claims, OnTrust: append([]string{}, report.Caveats...)}, nil
}

// verdict prints what was found.
func (c *console) verdict(v verdict) {
	if c.json {
		c.printJSON(v)
		return
	}
	for _, claim := range v.Claims {
		c.print("%s %s\n", c.paint(green, "✓"), visible([]byte(claim)))
	}
	c.print("\nregistry  %s\nversion   %d\nhash      %s\n", v.Registry, v.Version, v.Hash)
	if len(v.OnTrust) > 0 {
		c.print("\nTaken on trust:\n")
	}
	for _, doubt := range v.OnTrust {
		c.print("  %s\n", visible([]byte(doubt)))
	}
}

// node verifies the log of a node that runs, over the network.
func (r *registryVerify) node(ctx context.Context, c *console, trust registry.Trust) (verdict, error) {
	node, err := r.dialAny()
	if err != nil {
		return verdict{}, err
	}
	defer node.Close()
	own, err := node.RegistryLogKey(ctx)
	if err != nil {
		return verdict{}, err
	}
	believed := trust
	if trust.Key == "" {
		believed.Key = own.Key
	}
	bar := c.newCounter("verifying")
	defer bar.clear()
	report, err := walk(ctx, node, believed, bar)
	if errors.Is(err, fault.Expired) {
		return r.pruned(ctx, node, trust)
	}
	if err != nil {
		return verdict{}, err
	}
	found := reported(r.name(), report)
	found.Claims = append(found.Claims, "the head that the node shows is in this log")
	if trust.Key == "" {
		found.OnTrust = append(found.OnTrust, "that "+own.Key+" is the key of this log: the node says so")
	}
	return found, nil
}

// dialAny connects to the node that was named. A token is for the node of
// MICRO_URL, and for no other.
func (r *registryVerify) dialAny() (*client.Client, error) {
	if r.What == "" || r.What == os.Getenv("MICRO_URL") {
		return r.dial()
	}
	return client.New(client.Options{URL: r.What, UserAgent: "micronode/" + observe.ReadBuild("micronode").Version})
}

func (r *registryVerify) name() string {
	if r.What == "" {
		return "the node"
	}
	return r.What
}

// pruned verifies a log that cannot be walked any more: by the proofs of its
// last version.
func (r *registryVerify) pruned(ctx context.Context, node *client.Client, trust registry.Trust) (verdict, error) {
	head, err := node.RegistryHead(ctx)
	if err != nil {
		return verdict{}, err
	}
	raw, err := node.RegistryBundle(ctx, head.Version)
	if err != nil {
		return verdict{}, err
	}
	found, err := bundled(r.name(), raw, trust)
	found.OnTrust = append(found.OnTrust, "what the oldest versions did: they were pruned, so only the last version was verified, with its proofs")
	return found, err
}

// walk verifies every version of a node that its checkpoint covers, as a
// stranger would.
func walk(ctx context.Context, node *client.Client, trust registry.Trust, bar *counter) (registry.Report, error) {
	head, err := node.RegistryHead(ctx)
	if err != nil {
		return registry.Report{}, err
	}
	checkpoint, err := node.RegistryLog(ctx, "checkpoint")
	if err != nil {
		return registry.Report{}, err
	}
	size, err := registry.CheckpointSize(checkpoint)
	if err != nil {
		return registry.Report{}, err
	}
	if size <= head.Version {
		return registry.Report{}, unlike("the checkpoint covers %d versions, and the head is version %d", size, head.Version)
	}
	auditor := registry.NewAuditor(trust, size)
	for version := range size {
		one, err := node.RegistryVersion(ctx, version, false)
		if err != nil {
			return registry.Report{}, err
		}
		if version == head.Version && one.Hash != head.Hash {
			return registry.Report{}, unlike("the head is %s, and version %d in the log is %s", head.Hash, version, one.Hash)
		}
		if err := auditor.Add(one.Header, one.Payload, one.Preconditions); err != nil {
			return registry.Report{}, about(verifyOp, fmt.Sprintf("version %d", version), err)
		}
		bar.count(version+1, size)
	}
	return auditor.Finish(checkpoint)
}

func unlike(format string, args ...any) error {
	return &fault.Error{Op: verifyOp, Kind: fault.IntegrityFail, Detail: fmt.Sprintf(format, args...),
		Next: "The node contradicts itself. Do not use it; compare it with another copy of the log."}
}

// counter shows how many of many are done, to a person who looks.
type counter struct {
	*meter
	console *console
	name    string
}

func (c *console) newCounter(name string) *counter { return &counter{&meter{}, c, name} }

// count tells how far it is.
func (m *counter) count(done, total uint64) {
	if m.bar == nil && m.console.errTerminal && !m.console.json {
		m.bar = progressbar.NewOptions64(int64(total),
			progressbar.OptionSetDescription(m.name),
			progressbar.OptionSetWriter(m.console.err),
			progressbar.OptionShowCount(),
			progressbar.OptionSetWidth(30),
			progressbar.OptionThrottle(100*time.Millisecond),
			progressbar.OptionSetSpinnerChangeInterval(0), // it would keep a goroutine
			progressbar.OptionClearOnFinish(),
		)
	}
	m.set(int64(done), int64(total))
}
