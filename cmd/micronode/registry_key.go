package main

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"micronode/fault"
	"micronode/internal/registry/keyfile"
)

// passphraseFlags is the source of a passphrase.
type passphraseFlags struct {
	PassphraseFile string `placeholder:"FILE" complete:"file" env:"MICRO_PASSPHRASE_FILE" help:"Read the passphrase from the first line of this file; - is standard input. Without it, the terminal prompts for it."`
}

const (
	maxKey        = 64 << 10 // bytes of a key file
	maxPassphrase = 1024
)

// openKey reads a signer's key from a file, or from standard input if it is -.
func (p passphraseFlags) openKey(ctx context.Context, c *console, name string) (ed25519.PrivateKey, error) {
	const op = "registry.key"
	if name == "-" && p.PassphraseFile == "-" {
		return nil, &fault.Error{Op: op, Kind: fault.Malformed, Detail: "the key and its passphrase cannot both come from standard input",
			Next: "Put one of them into a file with mode 0600."}
	}
	raw, err := c.readAll(ctx, name, maxKey)
	if err != nil {
		return nil, withSubject(op, name, err)
	}
	key, err := keyfile.Open(raw, func() (string, error) { return p.passphrase(ctx, c, name) })
	if err != nil {
		return nil, withSubject(op, name, err)
	}
	return key, nil
}

// passphrase reads the passphrase of an existing key.
func (p passphraseFlags) passphrase(ctx context.Context, c *console, name string) (string, error) {
	if p.PassphraseFile != "" || name == "-" || !c.inTerminal {
		return p.readPassphraseFile(ctx, c)
	}
	return c.prompt(ctx, "passphrase of "+name+": ", true)
}

// newPassphrase reads one for a new key, twice if it is typed.
func (p passphraseFlags) newPassphrase(ctx context.Context, c *console) (string, error) {
	if p.PassphraseFile != "" || !c.inTerminal {
		return p.readPassphraseFile(ctx, c)
	}
	first, err := c.prompt(ctx, "new passphrase: ", true)
	if err != nil {
		return "", err
	}
	second, err := c.prompt(ctx, "the same again: ", true)
	if err != nil {
		return "", err
	}
	if first != second {
		return "", &fault.Error{Op: "registry.passphrase", Kind: fault.Malformed, Detail: "the two passphrases differ",
			Next: "Nothing was written. Run the command again."}
	}
	return first, nil
}

// readPassphraseFile reads the passphrase from a file.
func (p passphraseFlags) readPassphraseFile(ctx context.Context, c *console) (string, error) {
	const op = "registry.passphrase"
	if p.PassphraseFile == "" {
		return "", &fault.Error{Op: op, Kind: fault.Unauthorized, Detail: "a passphrase is needed, and there is no terminal to ask for it",
			Next: "Run the command in a terminal, or name a file with --passphrase-file FILE or MICRO_PASSPHRASE_FILE."}
	}
	raw, err := c.readAll(ctx, p.PassphraseFile, maxPassphrase)
	if err != nil {
		return "", withSubject(op, p.PassphraseFile, err)
	}
	line, _, _ := bytes.Cut(raw, []byte("\n"))
	return string(bytes.TrimSuffix(line, []byte("\r"))), nil
}

// prompt reads a line from the terminal. A hidden one is not echoed.
func (c *console) prompt(ctx context.Context, prompt string, hidden bool) (string, error) {
	const op = "ask"
	if file, ok := c.in.(*os.File); ok && hidden {
		show, err := disableEcho(int(file.Fd()))
		if err != nil {
			return "", fault.Wrap(op, err)
		}
		defer show()
	}
	fmt.Fprint(c.err, prompt) // after the echo is off
	in, err := c.openStdin(ctx)
	if err != nil {
		return "", err
	}
	defer in.Close()
	line, char := []byte{}, make([]byte, 1)
	for len(line) <= maxPassphrase {
		n, err := in.Read(char)
		if n == 1 && char[0] == '\n' || err == io.EOF && len(line) > 0 {
			return strings.TrimSuffix(string(line), "\r"), nil
		}
		if err != nil {
			return "", wrapPromptError(op, err)
		}
		line = append(line, char[:n]...)
	}
	return "", &fault.Error{Op: op, Kind: fault.Malformed, Detail: "the line is too long", Next: "Type less."}
}

func wrapPromptError(op string, err error) error {
	if _, typed := errors.AsType[*fault.Error](err); typed {
		return err
	}
	return &fault.Error{Op: op, Kind: fault.Canceled, Detail: "there was no answer", Err: err, Next: "Nothing was done. Run the command again."}
}

// disableEcho turns off the echo of a terminal, except for the line break.
// restore brings the settings back.
func disableEcho(terminal int) (restore func(), err error) {
	saved, err := unix.IoctlGetTermios(terminal, unix.TCGETS)
	if err != nil {
		return nil, err
	}
	quiet := *saved
	quiet.Lflag = quiet.Lflag&^unix.ECHO | unix.ECHONL
	if err := unix.IoctlSetTermios(terminal, unix.TCSETS, &quiet); err != nil {
		return nil, err
	}
	return func() { _ = unix.IoctlSetTermios(terminal, unix.TCSETS, saved) }, nil // if the terminal is gone, there is nothing to restore
}

// publicMode is for files that every user may read.
const publicMode = 0o644

// writeFileAtomic writes a file, whole or not at all. An existing one is
// replaced.
func writeFileAtomic(op, path string, data []byte, mode os.FileMode) error {
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return newWriteError(op, path, err)
	}
	defer func() { _ = os.Remove(file.Name()) }()
	_, err = file.Write(data)
	if err == nil {
		err = file.Chmod(mode)
	}
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		return newWriteError(op, path, err)
	}
	return nil
}
