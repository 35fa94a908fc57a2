package main

import (
	"context"
	"strings"

	"micronode/client"
	"micronode/fault"
	"micronode/internal/registry/keyfile"
)

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
