package main

import (
	"context"
	"strings"
	"time"

	"micronode/b3"
	"micronode/client"
	"micronode/fault"
	"micronode/internal/registry/keyfile"
	"micronode/internal/terminal"
)

type registryCommand struct {
	Keygen    registryKeygen    `cmd:"" help:"Create a signer's key, encrypted with a passphrase."`
	Init      registryInit      `cmd:"" help:"Create a registry with its first signers."`
	Propose   registryPropose   `cmd:"" help:"Propose a change from a JSON or TOML file."`
	Proposals registryProposals `cmd:"" help:"List the open proposals."`
	Approve   registryApprove   `cmd:"" help:"Review a proposal, and sign it."`
	Commit    registryCommit    `cmd:"" help:"Commit a proposal that has enough approvals."`
	Supersede registrySupersede `cmd:"" help:"Propose to undo the last version."`
	Head      registryHead      `cmd:"" help:"Print the last version and its hash."`
	Show      registryShow      `cmd:"" help:"Show a version: its approvals, its operations and its items."`
	Log       registryLog       `cmd:"" help:"List the versions, one per line, newest first."`
	Watch     registryWatch     `cmd:"" help:"Print versions as they are committed."`
	Bundle    registryBundle    `cmd:"" help:"Export a version with its proofs."`
	Verify    registryVerify    `cmd:"" help:"Verify a node, a data folder or a bundle, from the first version to the last."`
}

// Help is shown by registry --help.
func (registryCommand) Help() string {
	return `A registry is a list that a team governs together: nodes, names, regions, and the signers themselves. A change is proposed, approved by M of N signers, and committed. Each commit is a version in a tamper-evident log.

Examples:

    micronode registry keygen --out alice.key
    micronode registry init --m 2 --key alice.key.pub --key bob.key.pub --key carol.key.pub
    micronode registry propose change.toml
    micronode registry approve ID --key alice.key
    micronode registry commit ID
    micronode registry verify`
}

// formatTime formats a time of the log.
func formatTime(at time.Time) string { return at.UTC().Format("2006-01-02T15:04:05.000Z") }

// formatRemaining is the time left until a moment, in words.
func formatRemaining(at, now time.Time) string {
	left := at.Sub(now).Round(time.Second)
	if left <= 0 {
		return "it has expired"
	}
	return "in " + left.String()
}

// shortHash is the beginning of a hash, enough to tell a few apart.
func shortHash(hash b3.Address) string { return hash.String()[:len(b3.Prefix)+12] + "…" }

// joinNames joins untrusted texts on one line.
func joinNames(list []string) string {
	shown := make([]string, 0, len(list))
	for _, one := range list {
		shown = append(shown, sanitize([]byte(one)))
	}
	return strings.Join(shown, ", ")
}

// printProposal prints a new proposal and the next command.
func (c *console) printProposal(p client.Proposed, socket string) {
	if c.json {
		c.printJSON(p)
		return
	}
	c.printChanges(p.Diff)
	c.print("\n  proposal  %s\n  expires   %s (%s)\n", sanitize([]byte(p.ProposalID)), formatTime(p.ExpiresAt), formatRemaining(p.ExpiresAt, time.Now()))
	c.print("\nNothing has changed yet. Each signer now types:\n\n  micronode registry approve %s --key FILE%s\n",
		sanitize([]byte(p.ProposalID)), terminal.SocketFlag(socket))
}

type registryInit struct {
	M   int      `name:"m" required:"" placeholder:"M" help:"How many signers must approve a change."`
	Key []string `required:"" placeholder:"FILE" complete:"file" sep:"none" help:"The public key of a signer: a .pub file, or NAME=FILE, or NAME=ed25519:…. Repeat for each signer."`
	nodeFlags
	outputFlags
}

// Help is shown by registry init --help.
func (registryInit) Help() string {
	return `The output identifies this registry: its ID and the key that signs its log. Keep both outside of the node. A node has one registry, and a lost registry cannot be created again with the same ID.

Examples:

    micronode registry init --m 2 --key alice.key.pub --key bob.key.pub --key carol.key.pub
    micronode registry init --m 1 --key ops=ed25519:…`
}

// Run begins a registry.
func (r *registryInit) Run(ctx context.Context, c *console) error {
	first := client.InitRequest{M: r.M}
	for _, text := range r.Key {
		key, err := c.readPublicKey(ctx, text)
		if err != nil {
			return withSubject("registry.init", text, err)
		}
		first.Keys = append(first.Keys, key)
	}
	node, err := r.dial()
	if err != nil {
		return err
	}
	defer node.Close()
	created, err := node.InitRegistry(ctx, first)
	if err != nil {
		return err
	}
	if c.json {
		c.printJSON(created)
		return nil
	}
	c.print("registry  %s\nlog key   %s\n", created.Registry, sanitize([]byte(created.Key)))
	c.print("\nKeep both outside of this node. With them anyone can verify that the log was not rewritten:\n\n")
	c.print("  micronode registry verify --registry %s --log-key %s\n", created.Registry, sanitize([]byte(created.Key)))
	return nil
}

// readPublicKey reads a signer as the command line gives it. A private key is
// rejected by its content, whatever its file is called.
func (c *console) readPublicKey(ctx context.Context, text string) (client.RegistryKey, error) {
	name, source, named := strings.Cut(text, "=")
	if !named || strings.ContainsRune(name, '/') || strings.HasPrefix(name, "ed25519:") {
		name, source = "", text // base64 ends with = too
	}
	line := source
	if !strings.HasPrefix(source, "ed25519:") {
		raw, err := c.readAll(ctx, source, maxKey)
		if err != nil {
			return client.RegistryKey{}, err
		}
		line = string(raw)
		if name == "" {
			name = keyfile.SignerName(source)
		}
	}
	public, err := keyfile.ParsePublic(line)
	if err != nil {
		return client.RegistryKey{}, err
	}
	if name == "" {
		return client.RegistryKey{}, &fault.Error{Op: "registry.init", Kind: fault.Malformed, Detail: "the key has no name",
			Next: "Name its signer: --key NAME=" + text}
	}
	return client.RegistryKey{SignerID: name, Public: keyfile.FormatPublic(public)}, nil
}
