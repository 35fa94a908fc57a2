package main

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"os"

	"micronode/fault"
	"micronode/internal/registry/keyfile"
)

type registryKeygen struct {
	Out          string `required:"" placeholder:"FILE" complete:"file" help:"The file for the key. The public key goes to FILE.pub."`
	NoPassphrase bool   `help:"Do not encrypt the key. Read access to the file is then enough to sign."`
	passphraseFlags
	outputFlags
}

// Help is shown by registry keygen --help.
func (registryKeygen) Help() string {
	return `The key is Ed25519. The file is encrypted with a passphrase, in the age format, with mode 0600. FILE.pub is public: give it to registry init. The name of the signer is the name of the file without its extensions. An existing file is never replaced.

Examples:

    micronode registry keygen --out alice.key
    micronode registry keygen --out robot.key --passphrase-file robot.pass`
}

const keygenOp = "registry.keygen"

// signerKey is the output for a key.
type signerKey struct {
	SignerID string `json:"signer_id"`
	Public   string `json:"public"`
	File     string `json:"file"`
}

// Run makes a key.
func (k *registryKeygen) Run(ctx context.Context, c *console) error {
	for _, path := range []string{k.Out, k.Out + keyfile.PublicSuffix} { // before the passphrase is asked for
		if _, err := os.Lstat(path); err == nil {
			return &fault.Error{Op: keygenOp, Kind: fault.Conflict, Detail: path + " is there already", Next: "Choose another file. A key is never replaced."}
		}
	}
	key, err := keyfile.Generate(rand.Reader)
	if err != nil {
		return err
	}
	sealed := keyfile.FormatPlain(key)
	if !k.NoPassphrase {
		passphrase, err := k.newPassphrase(ctx, c)
		if err != nil {
			return err
		}
		if sealed, err = keyfile.Seal(key, passphrase); err != nil {
			return err
		}
	}
	public := keyfile.PublicOf(key)
	if err := keyfile.Write(k.Out, sealed, public); err != nil {
		return err
	}
	made := signerKey{keyfile.SignerName(k.Out), keyfile.FormatPublic(public), k.Out}
	if c.json {
		c.printJSON(made)
	} else {
		c.print("%s  %s\n", made.SignerID, made.Public)
	}
	return nil
}

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
