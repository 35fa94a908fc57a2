package keyfile_test

import (
	"bytes"
	"crypto/ed25519"
	"testing"

	"go.uber.org/goleak"

	"micronode/internal/registry/keyfile"
	"micronode/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newKey is the same key for the same number.
func newKey(t testkit.T, number byte) ed25519.PrivateKey {
	t.Helper()
	key, err := keyfile.Generate(bytes.NewReader(append(make([]byte, 31), number)))
	return testkit.Value(t, key, err)
}

// seal is fast, unlike the product's.
func seal(t testkit.T, key ed25519.PrivateKey, passphrase string) []byte {
	t.Helper()
	sealed, err := keyfile.SealWith(key, passphrase, 2)
	return testkit.Value(t, sealed, err)
}

func fixedPassphrase(passphrase string) func() (string, error) {
	return func() (string, error) { return passphrase, nil }
}
