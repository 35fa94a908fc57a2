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
	Key []string `required:"" placeholder:"FILE" complete:"file" sep:"none" help:"The public key of a signer: a .pub file, or NAME=FILE, or NAME=ed25519:…. Repeat for each."`
	target
	printing
}

// Help is shown by registry init --help.
func (registryInit) Help() string {
	return `What is printed is how others can tell this registry from any other: its ID and the key that signs its log. Write both down, outside of the node. A node has one registry, and a registry that is lost cannot be made again with the same ID.

Examples:

    micronode registry init --m 2 --key alice.key.pub --key bob.key.pub --key carol.key.pub
    micronode registry init --m 1 --key ops=ed25519:…`
}

// Run begins a registry.
func (r *registryInit) Run(ctx context.Context, c *console) error {
	first := client.InitRequest{M: r.M}
	for _, text := range r.Key {
		key, err := c.publicKey(ctx, text)
		if err != nil {
			return about("registry.init", text, err)
		}
		first.Keys = append(first.Keys, key)
	}
	node, err := r.dial()
	if err != nil {
		return err
	}
	defer node.Close()
	made, err := node.InitRegistry(ctx, first)
	if err != nil {
		return err
	}
	if c.json {
		c.printJSON(made)
		return nil
	}
	c.print("registry  %s\nlog key   %s\n", made.Registry, visible([]byte(made.Key)))
	c.print("\nWrite both down, outside of this node. With them anybody can check that nothing was rewritten:\n\n")
	c.print("  micronode registry verify --registry %s --log-key %s\n", made.Registry, visible([]byte(made.Key)))
	return nil
}

// publicKey reads a signer as it is named on the command line. A file that is
// called like the private key would be refused by what it says.
func (c *console) publicKey(ctx context.Context, text string) (client.RegistryKey, error) {
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
			Next: "Say whose it is: --key NAME=" + text}
	}
	return client.RegistryKey{SignerID: name, Public: keyfile.FormatPublic(public)}, nil
}
