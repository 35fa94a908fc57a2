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
	"micronode/internal/terminal"
)

type registryVerify struct {
	What     string `arg:"" optional:"" complete:"file" help:"A bundle (- is standard input), the --persist folder of a node, or the URL of a node. Without it, the node of this user."`
	Registry string `placeholder:"b3:…" help:"The ID of the registry, as registry init printed it."`
	LogKey   string `placeholder:"KEY" help:"The key that signs the log, as registry init printed it."`
	nodeFlags
	outputFlags
}

// Help is shown by registry verify --help.
func (registryVerify) Help() string {
	return `Every version is verified on this machine, from the first one on: it follows its predecessor, a quorum of the signers of that time signed it, its operations apply, and the signed checkpoint covers exactly these versions. The node is not trusted. A log cannot prove its own identity, so give the registry's ID and the log's key as registry init printed them; without them, the output lists what was taken on trust.

If the node has pruned its oldest versions, all that are left are verified, and the tree that covers the others, too. What they contained is taken on trust.

The exit code is 0 only if everything is verified.

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

// verifyOutput is the result of a verification.
type verifyOutput struct {
	What     string     `json:"what"`
	OK       bool       `json:"ok"`
	Registry b3.Address `json:"registry"`
	Version  uint64     `json:"version"` // the last one that was verified
	Hash     b3.Address `json:"hash"`
	Claims   []string   `json:"claims"`   // what was verified
	OnTrust  []string   `json:"on_trust"` // what could not be verified here
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
	c.printVerification(found)
	return nil
}

// verify finds out what the target is, and verifies it.
func (r *registryVerify) verify(ctx context.Context, c *console, trust registry.Trust) (verifyOutput, error) {
	info, err := os.Stat(r.What)
	switch {
	case r.What == "", strings.HasPrefix(r.What, "http://"), strings.HasPrefix(r.What, "https://"):
		return r.verifyNode(ctx, c, trust)
	case err == nil && info.IsDir():
		bar := c.newCountProgress("verifying")
		defer bar.clear()
		report, err := registry.VerifyFolder(ctx, r.What, trust, func(done, total uint64) { bar.count(done, total) })
		if err != nil {
			return verifyOutput{}, withSubject(verifyOp, r.What, err)
		}
		return logOutput(r.What, report), nil
	default:
		raw, err := c.readAll(ctx, r.What, maxBundle)
		if err != nil {
			return verifyOutput{}, withSubject(verifyOp, r.What, err)
		}
		return verifyBundle(r.What, raw, trust)
	}
}

// logOutput is the result for a whole log.
func logOutput(what string, report registry.Report) verifyOutput {
	claims := []string{fmt.Sprintf("%s, from %d to %d", terminal.Pluralize(int(report.Versions), "version"), report.First, report.Head.Version)}
	return verifyOutput{What: what, OK: true, Registry: report.Registry, Version: report.Head.Version, Hash: report.Head.Hash,
		Claims: append(claims, report.Claims...), OnTrust: append([]string{}, report.Assumptions...)}
}

// verifyBundle verifies a bundle.
func verifyBundle(what string, raw []byte, trust registry.Trust) (verifyOutput, error) {
	report, err := registry.VerifyBundle(raw, trust)
	if err != nil {
		return verifyOutput{}, withSubject(verifyOp, what, err)
	}
	return verifyOutput{What: what, OK: true, Registry: report.Registry, Version: report.Head.Version, Hash: report.Head.Hash,
		Claims: report.Claims, OnTrust: append([]string{}, report.Caveats...)}, nil
}

// printVerification prints the result.
func (c *console) printVerification(v verifyOutput) {
	if c.json {
		c.printJSON(v)
		return
	}
	for _, claim := range v.Claims {
		c.print("%s %s\n", c.paint(terminal.Green, "✓"), sanitize([]byte(claim)))
	}
	c.print("\nregistry  %s\nversion   %d\nhash      %s\n", v.Registry, v.Version, v.Hash)
	if len(v.OnTrust) > 0 {
		c.print("\nTaken on trust:\n")
	}
	for _, doubt := range v.OnTrust {
		c.print("  %s\n", sanitize([]byte(doubt)))
	}
}

// verifyNode verifies the log of a running node, over the network.
func (r *registryVerify) verifyNode(ctx context.Context, c *console, trust registry.Trust) (verifyOutput, error) {
	node, err := r.dialAny()
	if err != nil {
		return verifyOutput{}, err
	}
	defer node.Close()
	own, err := node.RegistryLogKey(ctx)
	if err != nil {
		return verifyOutput{}, err
	}
	effective := trust
	if trust.Key == "" {
		effective.Key = own.Key
	}
	bar := c.newCountProgress("verifying")
	defer bar.clear()
	report, err := auditLog(ctx, node, effective, bar)
	if errors.Is(err, fault.Expired) {
		return r.verifyKept(ctx, node, trust, bar)
	}
	if err != nil {
		return verifyOutput{}, err
	}
	found := logOutput(r.displayName(), report)
	found.Claims = append(found.Claims, "the node's head is in this log")
	if trust.Key == "" {
		found.OnTrust = append(found.OnTrust, "that "+own.Key+" is the key of this log: the node says so")
	}
	return found, nil
}

// dialAny makes a client of the given node. The token is sent only to the node
// of MICRO_URL.
func (r *registryVerify) dialAny() (*client.Client, error) {
	if r.What == "" || r.What == os.Getenv("MICRO_URL") {
		return r.dial()
	}
	return client.New(client.Options{URL: r.What, UserAgent: "micronode/" + observe.ReadBuild("micronode").Version})
}

func (r *registryVerify) displayName() string {
	if r.What == "" {
		return "the node"
	}
	return r.What
}

// verifyKept verifies a log whose oldest versions were pruned: all that are left.
// If more of them are pruned meanwhile, it begins again.
func (r *registryVerify) verifyKept(ctx context.Context, node *client.Client, trust registry.Trust, bar *countProgress) (verifyOutput, error) {
	for attempt := 1; ; attempt++ {
		report, err := auditKept(ctx, node, trust, bar)
		switch {
		case err == nil:
			found := logOutput(r.displayName(), report)
			found.Claims = append(found.Claims, "the node's head is in this log")
			return found, nil
		case !errors.Is(err, fault.Expired) || attempt == verifyAttempts:
			return verifyOutput{}, err
		}
	}
}

// verifyAttempts is how often a verification begins again because versions were
// pruned while it ran.
const verifyAttempts = 3

// auditKept verifies every version that a node has left, without trust in the
// node.
func auditKept(ctx context.Context, node *client.Client, trust registry.Trust, bar *countProgress) (registry.Report, error) {
	head, err := node.RegistryHead(ctx)
	if err != nil {
		return registry.Report{}, err
	}
	first, err := firstKept(ctx, node, head.Version)
	if err != nil {
		return registry.Report{}, err
	}
	raw, err := node.RegistryBundle(ctx, first)
	if err != nil {
		return registry.Report{}, err
	}
	auditor, err := registry.NewKeptAuditor(raw, trust)
	if err != nil {
		return registry.Report{}, err
	}
	size := auditor.Size()
	switch {
	case auditor.Head().Version != first:
		return registry.Report{}, newContradictionError("the bundle of version %d is that of version %d", first, auditor.Head().Version)
	case size <= head.Version:
		return registry.Report{}, newContradictionError("the checkpoint covers %d versions, but the head is version %d", size, head.Version)
	}
	for version := first; ; {
		if version == head.Version && auditor.Head().Hash != head.Hash {
			return registry.Report{}, newContradictionError("the head is %s, but version %d in the log is %s", head.Hash, version, auditor.Head().Hash)
		}
		bar.count(version+1-first, size-first)
		if version++; version == size {
			return auditor.Finish()
		}
		one, err := node.RegistryVersion(ctx, version, false)
		if err != nil {
			return registry.Report{}, err
		}
		if err := auditor.Add(one.Header, one.Payload, one.Preconditions); err != nil {
			return registry.Report{}, withSubject(verifyOp, fmt.Sprintf("version %d", version), err)
		}
	}
}

// firstKept finds the first version that is not pruned, up to the head.
func firstKept(ctx context.Context, node *client.Client, head uint64) (uint64, error) {
	pruned, kept := uint64(0), head // version 0 is pruned, or this would not be asked
	for kept-pruned > 1 {
		middle := pruned + (kept-pruned)/2
		_, err := node.RegistryVersion(ctx, middle, false)
		switch {
		case err == nil:
			kept = middle
		case errors.Is(err, fault.Expired):
			pruned = middle
		default:
			return 0, err
		}
	}
	return kept, nil
}

// auditLog verifies every version of a node that its checkpoint covers,
// without trust in the node.
func auditLog(ctx context.Context, node *client.Client, trust registry.Trust, bar *countProgress) (registry.Report, error) {
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
		return registry.Report{}, newContradictionError("the checkpoint covers %d versions, but the head is version %d", size, head.Version)
	}
	auditor := registry.NewAuditor(trust, size)
	for version := range size {
		one, err := node.RegistryVersion(ctx, version, false)
		if err != nil {
			return registry.Report{}, err
		}
		if version == head.Version && one.Hash != head.Hash {
			return registry.Report{}, newContradictionError("the head is %s, but version %d in the log is %s", head.Hash, version, one.Hash)
		}
		if err := auditor.Add(one.Header, one.Payload, one.Preconditions); err != nil {
			return registry.Report{}, withSubject(verifyOp, fmt.Sprintf("version %d", version), err)
		}
		bar.count(version+1, size)
	}
	return auditor.Finish(checkpoint)
}

func newContradictionError(format string, args ...any) error {
	return &fault.Error{Op: verifyOp, Kind: fault.IntegrityFail, Detail: fmt.Sprintf(format, args...),
		Next: "The node contradicts itself. Do not use it; compare it with another copy of the log."}
}

// countProgress shows on a terminal how many versions are done.
type countProgress struct {
	*progressBar
	console *console
	name    string
}

func (c *console) newCountProgress(name string) *countProgress {
	return &countProgress{&progressBar{}, c, name}
}

// count updates the progress.
func (c *countProgress) count(done, total uint64) {
	if c.bar == nil && c.console.errTerminal && !c.console.json {
		c.bar = progressbar.NewOptions64(int64(total),
			progressbar.OptionSetDescription(c.name),
			progressbar.OptionSetWriter(c.console.err),
			progressbar.OptionShowCount(),
			progressbar.OptionSetWidth(30),
			progressbar.OptionThrottle(100*time.Millisecond),
			progressbar.OptionSetSpinnerChangeInterval(0), // it would keep a goroutine
			progressbar.OptionClearOnFinish(),
		)
	}
	c.set(int64(done), int64(total))
}
