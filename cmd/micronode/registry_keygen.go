package main

import (
	"context"
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
