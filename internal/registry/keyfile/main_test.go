package keyfile_test

import (
	"bytes"
	"crypto/ed25519"
	"testing"

	"go.uber.org/goleak"

	"micronode/fault"
	"micronode/internal/registry/keyfile"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

// wantKind also wants a next step that fits the case better than the kind's.
func wantKind(t failer, err error, kind fault.Kind) {
	t.Helper()
	if fault.KindOf(err) != kind {
		t.Fatalf("got %v (%v), want %v", err, fault.KindOf(err), kind)
	}
	if fault.NextOf(err) == kind.Next() {
		t.Fatalf("%v does not say what to do", err)
	}
}

func must[T any](t failer, value T, err error) T {
	t.Helper()
	if err != nil {
		t.Fatalf("unexpected: %v", err)
	}
	return value
}

func second[T any](_ T, err error) error { return err }

// newKey is the same key for the same number.
func newKey(t failer, number byte) ed25519.PrivateKey {
	t.Helper()
	key, err := keyfile.Generate(bytes.NewReader(append(make([]byte, 31), number)))
	return must(t, key, err)
}

// seal is fast, unlike the product's.
func seal(t failer, key ed25519.PrivateKey, passphrase string) []byte {
	t.Helper()
	sealed, err := keyfile.SealWith(key, passphrase, 2)
	return must(t, sealed, err)
}

func says(passphrase string) func() (string, error) {
	return func() (string, error) { return passphrase, nil }
}
