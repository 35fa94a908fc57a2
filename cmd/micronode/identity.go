package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"micronode/fault"
	"micronode/internal/node"
)

type identityCommand struct {
	New  identityNew  `cmd:"" help:"Create a key and print its peer ID."`
	Show identityShow `cmd:"" help:"Print the peer ID of a key, or of the running node."`
}

type identityNew struct {
	Out   string `required:"" placeholder:"FILE" complete:"file" help:"The file for the key. Only its owner can read it."`
	Force bool   `help:"Replace an existing key. Its peer ID is then lost."`
	outputFlags
}

// Help is shown by identity new --help.
func (identityNew) Help() string {
	return `The key is Ed25519, written as PKCS #8 PEM, which other tools can read too.

Example:

    micronode identity new --out node.key
    micronode run --identity file:node.key`
}

// identityOutput is the output for an identity.
type identityOutput struct {
	PeerID string `json:"peer_id"`
	File   string `json:"file,omitempty"`
}

// Run makes a key.
func (i *identityNew) Run(c *console) error {
	identity, err := node.NewIdentity()
	if err != nil {
		return err
	}
	var pem bytes.Buffer
	if err := identity.WritePEM(&pem); err != nil {
		return err
	}
	if err := writeSecret(i.Out, pem.Bytes(), i.Force); err != nil {
		return err
	}
	c.printIdentity(identityOutput{identity.PeerID(), i.Out})
	return nil
}

func (c *console) printIdentity(one identityOutput) {
	if c.json {
		c.printJSON(one)
	} else {
		c.print("%s\n", one.PeerID)
	}
}

// writeSecret writes a file that only its owner can read, whole or not at all.
// An existing file is replaced only if replace is set.
func writeSecret(path string, secret []byte, replace bool) error {
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*") // of mode 0600
	if err != nil {
		return wrapSaveError(path, err)
	}
	defer func() { _ = os.Remove(file.Name()) }()
	_, err = file.Write(secret)
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return wrapSaveError(path, err)
	}
	if replace {
		return wrapSaveError(path, os.Rename(file.Name(), path))
	}
	return wrapSaveError(path, os.Link(file.Name(), path)) // unlike a rename, it never replaces
}

// wrapSaveError is nil if there was no error.
func wrapSaveError(path string, err error) error {
	if err == nil {
		return nil
	}
	failed := newWriteError("identity.new", path, err)
	if fault.KindOf(failed) == fault.Conflict {
		return &fault.Error{Op: "identity.new", Kind: fault.Conflict, Detail: fault.DetailOf(failed),
			Next: "Choose another file, or replace the key with --force; its peer ID is then lost."}
	}
	return failed
}

type identityShow struct {
	Key string `arg:"" optional:"" complete:"file" help:"A file with a key, or file:PATH, env:VARIABLE, fd:NUMBER. Without it, the key of the running node."`
	nodeFlags
	outputFlags
}

// Help is shown by identity show --help.
func (identityShow) Help() string {
	return `Examples:

    micronode identity show
    micronode identity show node.key`
}

// Run prints a peer ID.
func (i *identityShow) Run(ctx context.Context, c *console) error {
	if i.Key != "" {
		identity, err := node.LoadIdentity(identitySpec(i.Key))
		if err != nil {
			return err
		}
		c.printIdentity(identityOutput{PeerID: identity.PeerID()})
		return nil
	}
	running, err := i.dial()
	if err != nil {
		return err
	}
	defer running.Close()
	status, err := running.Status(ctx)
	if err != nil {
		return err
	}
	c.printIdentity(identityOutput{PeerID: status.PeerID})
	return nil
}

// identitySpec turns a bare file name into a file spec.
func identitySpec(text string) string {
	for _, scheme := range []string{"file:", "env:", "fd:"} {
		if strings.HasPrefix(text, scheme) {
			return text
		}
	}
	return "file:" + text
}
