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

// secrecy is where a passphrase comes from.
type secrecy struct {
	PassphraseFile string `placeholder:"FILE" complete:"file" env:"MICRO_PASSPHRASE_FILE" help:"Read the passphrase from the first line of this file; - is standard input. Without it, it is asked for on the terminal."`
}

const (
	maxKey        = 64 << 10 // bytes of a key file
	maxPassphrase = 1024
)

// openKey reads a signer's key from a file, or from standard input if it is -.
func (s secrecy) openKey(ctx context.Context, c *console, name string) (ed25519.PrivateKey, error) {
	const op = "registry.key"
	if name == "-" && s.PassphraseFile == "-" {
		return nil, &fault.Error{Op: op, Kind: fault.Malformed, Detail: "the key and its passphrase cannot both come from standard input",
			Next: "Put one of them into a file that only you can read."}
	}
	raw, err := c.readAll(ctx, name, maxKey)
	if err != nil {
		return nil, about(op, name, err)
	}
	key, err := keyfile.Open(raw, func() (string, error) { return s.passphrase(ctx, c, name) })
	if err != nil {
		return nil, about(op, name, err)
	}
	return key, nil
}

// passphrase reads the passphrase of a key that is there already.
func (s secrecy) passphrase(ctx context.Context, c *console, name string) (string, error) {
	if s.PassphraseFile != "" || name == "-" || !c.inTerminal {
		return s.given(ctx, c)
	}
	return c.ask(ctx, "passphrase of "+name+": ", true)
}

// newPassphrase reads one for a new key, twice if somebody types it.
func (s secrecy) newPassphrase(ctx context.Context, c *console) (string, error) {
	if s.PassphraseFile != "" || !c.inTerminal {
		return s.given(ctx, c)
	}
	first, err := c.ask(ctx, "new passphrase: ", true)
	if err != nil {
		return "", err
	}
	second, err := c.ask(ctx, "the same again: ", true)
	if err != nil {
		return "", err
	}
	if first != second {
		return "", &fault.Error{Op: "registry.passphrase", Kind: fault.Malformed, Detail: "the two passphrases differ",
			Next: "Nothing was written. Type the command again."}
	}
	return first, nil
}

// given is the passphrase that nobody has to type.
func (s secrecy) given(ctx context.Context, c *console) (string, error) {
	const op = "registry.passphrase"
	if s.PassphraseFile == "" {
		return "", &fault.Error{Op: op, Kind: fault.Unauthorized, Detail: "a passphrase is needed, and there is no terminal to ask for it",
			Next: "Run the command in a terminal, or name a file with --passphrase-file FILE or MICRO_PASSPHRASE_FILE."}
	}
	raw, err := c.readAll(ctx, s.PassphraseFile, maxPassphrase)
	if err != nil {
		return "", about(op, s.PassphraseFile, err)
	}
	line, _, _ := bytes.Cut(raw, []byte("\n"))
	return string(bytes.TrimSuffix(line, []byte("\r"))), nil
}

// ask reads a line from the terminal. A hidden one is not shown as it is typed.
func (c *console) ask(ctx context.Context, prompt string, hidden bool) (string, error) {
	const op = "ask"
	if file, ok := c.in.(*os.File); ok && hidden {
		show, err := hide(int(file.Fd()))
		if err != nil {
			return "", fault.Wrap(op, err)
		}
		defer show()
	}
	fmt.Fprint(c.err, prompt) // whoever sees it may type
	in, err := c.input(ctx)
	if err != nil {
		return "", err
	}
	defer in.Close()
	line, letter := []byte{}, make([]byte, 1)
	for len(line) <= maxPassphrase {
		n, err := in.Read(letter)
		if n == 1 && letter[0] == '\n' || err == io.EOF && len(line) > 0 {
			return strings.TrimSuffix(string(line), "\r"), nil
		}
		if err != nil {
			return "", unanswered(op, err)
		}
		line = append(line, letter[:n]...)
	}
	return "", &fault.Error{Op: op, Kind: fault.Malformed, Detail: "the line is too long", Next: "Type less."}
}

func unanswered(op string, err error) error {
	if _, typed := errors.AsType[*fault.Error](err); typed {
		return err
	}
	return &fault.Error{Op: op, Kind: fault.Canceled, Detail: "there was no answer", Err: err, Next: "Nothing was done. Type the command again."}
}

// hide turns off the echo of a terminal, but for the line break. The settings
// come back when show is called.
func hide(terminal int) (show func(), err error) {
	was, err := unix.IoctlGetTermios(terminal, unix.TCGETS)
	if err != nil {
		return nil, err
	}
	quiet := *was
	quiet.Lflag = quiet.Lflag&^unix.ECHO | unix.ECHONL
	if err := unix.IoctlSetTermios(terminal, unix.TCSETS, &quiet); err != nil {
		return nil, err
	}
	return func() { _ = unix.IoctlSetTermios(terminal, unix.TCSETS, was) }, nil // a terminal that went away has nothing to show
}

// publicMode is for files that everybody may read.
const publicMode = 0o644

// saveFile writes a file, whole or not at all. One that is there is replaced.
func saveFile(op, path string, data []byte, mode os.FileMode) error {
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return unwritten(op, path, err)
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
		return unwritten(op, path, err)
	}
	return nil
}
