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
	// WorkFactor is how much work one try of a passphrase is: 2^18 rounds of
	// scrypt, a second and 256 MiB.
	WorkFactor = 18

	// maxWorkFactor is the most that Open accepts. A file can ask for more than
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
		e := fault.New(op, fault.Malformed, "the passphrase is empty")
		e.Next = "Choose a passphrase, or say --no-passphrase to keep the key in plain text."
		return nil, e
	}
	recipient.SetWorkFactor(min(max(work, 1), maxWorkFactor))

	var sealed bytes.Buffer
	armored := armor.NewWriter(&sealed)
	encrypted, err := age.Encrypt(armored, recipient)
	if err != nil {
		return nil, fault.Wrap(op, err)
	}
	_, err = encrypted.Write(Plain(key))
	if err = errors.Join(err, encrypted.Close(), armored.Close()); err != nil {
		return nil, fault.Wrap(op, err)
	}
	return sealed.Bytes(), nil
}

// Open reads a private key, encrypted or not. It calls passphrase only for an
// encrypted one; nil stands for nobody who could be asked.
func Open(data []byte, passphrase func() (string, error)) (ed25519.PrivateKey, error) {
	const op = "keyfile.open"
	if key, ok := openPlain(data); ok {
		return key, nil
	}
	if len(data) > maxFile {
		return nil, notKey(op, "it has %d bytes", len(data))
	}
	if !bytes.HasPrefix(data, []byte(armor.Header)) {
		return nil, notKey(op, "it begins like something else")
	}
	line, err := age.Decrypt(armor.NewReader(bytes.NewReader(data)), asker{passphrase})
	if err != nil {
		return nil, refusal(op, err)
	}
	plain, err := io.ReadAll(line)
	if err != nil {
		return nil, refusal(op, err)
	}
	key, ok := openPlain(plain)
	if !ok {
		return nil, notKey(op, "the passphrase is right, but what it protects is something else")
	}
	return key, nil
}

// asker asks for the passphrase when age has found that one is needed.
type asker struct{ passphrase func() (string, error) }

// Unwrap is part of age.Identity.
func (a asker) Unwrap(stanzas []*age.Stanza) ([]byte, error) {
	const op = "keyfile.open"
	if len(stanzas) != 1 || stanzas[0].Type != "scrypt" {
		return nil, notKey(op, "it is encrypted, but not with a passphrase")
	}
	if a.passphrase == nil {
		e := fault.New(op, fault.Unauthorized, "the key is encrypted and there is nobody to ask for the passphrase")
		e.Next = "Run the command in a terminal, or pass the passphrase as its help says."
		return nil, e
	}
	text, err := a.passphrase()
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

// refusal makes one of ours of what age says.
func refusal(op string, err error) error {
	if _, ok := errors.AsType[*age.NoIdentityMatchError](err); ok {
		e := fault.New(op, fault.Unauthorized, "the passphrase is wrong")
		e.Next = "Type it again. If it is forgotten the key is lost: make a new one, and let the other signers put it into the signer set."
		return e
	}
	if ours, ok := errors.AsType[*fault.Error](err); ok {
		return ours
	}
	e := notKey(op, "it is damaged")
	e.Err = err
	return e
}

func notKey(op, format string, args ...any) *fault.Error {
	e := fault.New(op, fault.Malformed, "this is not the key file of a signer: "+format, args...)
	e.Next = "Give the file that `micronode registry keygen` has written, not the one that ends in .pub."
	return e
}
