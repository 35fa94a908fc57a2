package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"micronode/fault"
	"micronode/internal/config"
	"micronode/internal/testkit"
)

func TestOnThisMachine(t *testing.T) {
	for host, want := range map[string]bool{
		"localhost": true, "127.0.0.1": true, "127.255.0.9": true, "::1": true, "::ffff:127.0.0.1": true,
		"": false, "localhost.example.org": false, "10.0.0.1": false, "0.0.0.0": false, "::": false, "127.0.0.1.example.org": false, "2130706433": false,
	} {
		if got := config.IsLoopbackHost(host); got != want {
			t.Errorf("%q: %t", host, got)
		}
	}
}

func TestTrust(t *testing.T) {
	_, cert, key := testkit.Certificate(t)
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	ca := func(file string) config.FileSetting { return config.FileSetting{Setting: "part.ca_file", File: file} }
	shown := func(file string) config.FileSetting { return config.FileSetting{Setting: "part.cert_file", File: file} }
	its := config.FileSetting{Setting: "part.key_file", File: key}

	system, err := config.TLSFiles{}.TLS("part.open")
	if err != nil || system.RootCAs != nil || len(system.Certificates) > 0 {
		t.Errorf("without files: %+v, %v", system, err)
	}
	own, err := config.TLSFiles{CA: ca(cert), Cert: shown(cert), Key: its}.TLS("part.open")
	if err != nil || own.RootCAs == nil || len(own.Certificates) != 1 {
		t.Errorf("with files: %+v, %v", own, err)
	}
	for what, trust := range map[string]config.TLSFiles{
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
