package config_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"micronode/fault"
	"micronode/internal/config"
)

func TestOnThisMachine(t *testing.T) {
	for host, want := range map[string]bool{
		"localhost": true, "127.0.0.1": true, "127.255.0.9": true, "::1": true, "::ffff:127.0.0.1": true,
		"": false, "localhost.example.org": false, "10.0.0.1": false, "0.0.0.0": false, "::": false, "127.0.0.1.example.org": false, "2130706433": false,
	} {
		if got := config.OnThisMachine(host); got != want {
			t.Errorf("%q: %t", host, got)
		}
	}
}

func TestTrust(t *testing.T) {
	cert, key := certificate(t)
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	ca := func(file string) config.Named { return config.Named{Setting: "part.ca_file", File: file} }
	shown := func(file string) config.Named { return config.Named{Setting: "part.cert_file", File: file} }
	its := config.Named{Setting: "part.key_file", File: key}

	system, err := config.Trust{}.TLS("part.open")
	if err != nil || system.RootCAs != nil || len(system.Certificates) > 0 {
		t.Errorf("without files: %+v, %v", system, err)
	}
	own, err := config.Trust{CA: ca(cert), Cert: shown(cert), Key: its}.TLS("part.open")
	if err != nil || own.RootCAs == nil || len(own.Certificates) != 1 {
		t.Errorf("with files: %+v, %v", own, err)
	}
	for what, trust := range map[string]config.Trust{
		"part.ca_file":                      {CA: ca(text + "-is-not-there")},
		"that part.ca_file names":           {CA: ca(text)},
		"part.cert_file and part.key_file.": {Cert: shown(text), Key: its},
	} {
		_, err := trust.TLS("part.open")
		if fault.KindOf(err) != fault.Malformed || fault.OpOf(err) != "part.open" || !strings.Contains(fault.NextOf(err), what) {
			t.Errorf("%s: %v; next: %s", what, err, fault.NextOf(err))
		}
	}
}

// certificate makes one that signs itself.
func certificate(t *testing.T) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	rawKey, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	return write("cert.pem", "CERTIFICATE", raw), write("key.pem", "PRIVATE KEY", rawKey)
}
