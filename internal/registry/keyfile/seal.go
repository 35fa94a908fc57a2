package keyfile

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"io"

	"filippo.io/age"
	"filippo.io/age/armor"

	"micronode/fault"
)

const (
	// WorkFactor is the cost of trying one passphrase: 2^18 rounds of scrypt, a
	// second and 256 MiB.
	WorkFactor = 18

	// maxWorkFactor is the most that Open accepts. A file can demand more than
	// any machine has.
	maxWorkFactor = 20

	maxFile = 64 << 10
)

// Seal encrypts a private key with a passphrase.
func Seal(key ed25519.PrivateKey, passphrase string) ([]byte, error) {
	return SealWith(key, passphrase, WorkFactor)
}

// SealWith is Seal with another work factor, from 1 to 20: tests need a low one.
func SealWith(key ed25519.PrivateKey, passphrase string, work int) ([]byte, error) {
	const op = "keyfile.seal"
	recipient, err := age.NewScryptRecipient(passphrase)
	if err != nil {
		return nil, fault.New(op, fault.Malformed, "the passphrase is empty").
			Advise("Choose a passphrase, or use --no-passphrase to keep the key in plain text.")
	}
	recipient.SetWorkFactor(min(max(work, 1), maxWorkFactor))

	var sealed bytes.Buffer
	armored := armor.NewWriter(&sealed)
	encrypted, err := age.Encrypt(armored, recipient)
	if err != nil {
		return nil, fault.Wrap(op, err)
	}
	_, err = encrypted.Write(FormatPlain(key))
	if err = errors.Join(err, encrypted.Close(), armored.Close()); err != nil {
		return nil, fault.Wrap(op, err)
	}
	return sealed.Bytes(), nil
}

// Open reads a private key, encrypted or not. It calls passphrase only for an
// encrypted one; nil means that no passphrase can be asked for.
func Open(data []byte, passphrase func() (string, error)) (ed25519.PrivateKey, error) {
	const op = "keyfile.open"
	if key, ok := openPlain(data); ok {
		return key, nil
	}
	if len(data) > maxFile {
		return nil, notKeyFile(op, "it has %d bytes", len(data))
	}
	if !bytes.HasPrefix(data, []byte(armor.Header)) {
		return nil, notKeyFile(op, "it does not have the header of a key file")
	}
	line, err := age.Decrypt(armor.NewReader(bytes.NewReader(data)), passphraseIdentity{passphrase})
	if err != nil {
		return nil, refusal(op, err)
	}
	plain, err := io.ReadAll(line)
	if err != nil {
		return nil, refusal(op, err)
	}
	key, ok := openPlain(plain)
	if !ok {
		return nil, notKeyFile(op, "the passphrase is right, but the content is not a key")
	}
	return key, nil
}

// passphraseIdentity asks for the passphrase when age needs one.
type passphraseIdentity struct{ passphrase func() (string, error) }

// Unwrap is part of age.Identity.
func (p passphraseIdentity) Unwrap(stanzas []*age.Stanza) ([]byte, error) {
	const op = "keyfile.open"
	if len(stanzas) != 1 || stanzas[0].Type != "scrypt" {
		return nil, notKeyFile(op, "it is encrypted, but not with a passphrase")
	}
	if p.passphrase == nil {
		return nil, fault.New(op, fault.Unauthorized, "the key is encrypted, and there is no terminal to ask for the passphrase").
			Advise("Run the command in a terminal, or pass the passphrase as its help says.")
	}
	text, err := p.passphrase()
	if err != nil {
		return nil, fault.Wrap(op, err)
	}
	identity, err := age.NewScryptIdentity(text)
	if err != nil {
		return nil, age.ErrIncorrectIdentity // no file was ever sealed with an empty one
	}
	identity.SetMaxWorkFactor(maxWorkFactor)
	return identity.Unwrap(stanzas)
}

// refusal converts an error of age to a fault.
func refusal(op string, err error) error {
	if _, ok := errors.AsType[*age.NoIdentityMatchError](err); ok {
		return fault.New(op, fault.Unauthorized, "the passphrase is wrong").
			Advise("Type it again. Without the passphrase the key is lost: create a new one, and have the other signers put it into the signer set.")
	}
	if ours, ok := errors.AsType[*fault.Error](err); ok {
		return ours
	}
	e := notKeyFile(op, "it is damaged")
	e.Err = err
	return e
}

func notKeyFile(op, format string, args ...any) *fault.Error {
	return fault.New(op, fault.Malformed, "this is not the key file of a signer: "+format, args...).
		Advise("Give the file that `micronode registry keygen` has written, not the one that ends in .pub.")
}
