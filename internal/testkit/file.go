package testkit

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"flag"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the golden files anew instead of comparing")

// Update reports whether the golden files are to be written anew.
func Update() bool { return *update }

// Golden compares bytes with a file, or writes the file when the test runs with
// -update.
func Golden(t testing.TB, file string, got []byte) {
	t.Helper()
	if *update {
		WriteFile(t, file, string(got))
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s says something else; look at the difference, then run the test with -update. Got\n%s", file, got)
	}
}

// WriteFile writes a file, and the folders above it.
func WriteFile(t testing.TB, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// OpenFolder makes a folder that every user may use; those of the testing
// package are closed to others.
func OpenFolder(t testing.TB) string {
	t.Helper()
	folder, err := os.MkdirTemp("", "micronode-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	if err := os.Chmod(folder, 0o777); err != nil {
		t.Fatal(err)
	}
	return folder
}

// Certificate makes a certificate of a server on 127.0.0.1, signed by itself,
// and writes it and its key into files.
func Certificate(t testing.TB) (pair tls.Certificate, certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	Must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	Must(t, err)
	rawKey, err := x509.MarshalPKCS8PrivateKey(key)
	Must(t, err)
	folder := t.TempDir()
	certFile, keyFile = filepath.Join(folder, "cert.pem"), filepath.Join(folder, "key.pem")
	WriteFile(t, certFile, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw})))
	WriteFile(t, keyFile, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: rawKey})))
	pair, err = tls.LoadX509KeyPair(certFile, keyFile)
	return Value(t, pair, err), certFile, keyFile
}
