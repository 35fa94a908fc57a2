package s3

import (
	"encoding/pem"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"micronode/fault"
	"micronode/internal/flow"
)

// Invalid settings are rejected before anything is sent, with what to write
// instead.
func TestWrongSpecsAreRefused(t *testing.T) {
	good := Spec{Service: "store", URL: "s3+https://host/bucket", AccessKey: "access", SecretKey: "secret"}
	for name, c := range map[string]struct {
		change func(*Spec)
		kind   fault.Kind
		next   string
	}{
		"no access key":     {func(s *Spec) { s.AccessKey = "" }, fault.Unauthorized, "store.access_key"},
		"no secret key":     {func(s *Spec) { s.SecretKey = "" }, fault.Unauthorized, "store.secret_key"},
		"no URL":            {func(s *Spec) { s.URL = "" }, fault.Malformed, "store.url"},
		"not a URL":         {func(s *Spec) { s.URL = "s3+https://host:port:port/x" }, fault.Malformed, "store.url"},
		"another scheme":    {func(s *Spec) { s.URL = "https://host/bucket" }, fault.Malformed, "s3+https://"},
		"no host":           {func(s *Spec) { s.URL = "s3+https:///bucket" }, fault.Malformed, "store.url"},
		"no bucket":         {func(s *Spec) { s.URL = "s3+https://host/" }, fault.Malformed, "store.url"},
		"not a bucket":      {func(s *Spec) { s.URL = "s3+https://host/No_Bucket" }, fault.Malformed, "store.url"},
		"keys in the URL":   {func(s *Spec) { s.URL = "s3+https://me:secret@host/bucket" }, fault.Malformed, "store.access_key"},
		"a query":           {func(s *Spec) { s.URL = "s3+https://host/bucket?x=y" }, fault.Malformed, "store.url"},
		"a fragment":        {func(s *Spec) { s.URL = "s3+https://host/bucket#x" }, fault.Malformed, "store.url"},
		"dots":              {func(s *Spec) { s.URL = "s3+https://host/bucket/a/../b" }, fault.Malformed, "store.url"},
		"an empty part":     {func(s *Spec) { s.URL = "s3+https://host/bucket/a//b" }, fault.Malformed, "store.url"},
		"in the clear":      {func(s *Spec) { s.URL = "s3+http://10.0.0.1/bucket" }, fault.Malformed, "s3+https"},
		"a name, in clear":  {func(s *Spec) { s.URL = "s3+http://host/bucket" }, fault.Malformed, "s3+https"},
		"too large":         {func(s *Spec) { s.MaxObject = 6 << 30 }, fault.Malformed, "5 GiB"},
		"negative":          {func(s *Spec) { s.Timeout = -time.Second }, fault.Malformed, ""},
		"a host with space": {func(s *Spec) { s.URL = "s3+https://ho_st!/bucket" }, fault.Malformed, "store.url"},
		"no authorities":    {func(s *Spec) { s.CAFile = filepath.Join(t.TempDir(), "absent") }, fault.Malformed, "store.ca_file"},
	} {
		t.Run(name, func(t *testing.T) {
			spec := good
			c.change(&spec)
			_, err := Open(t.Context(), flow.NewInventory(), spec)
			if fault.KindOf(err) != c.kind || !strings.Contains(fault.NextOf(err), c.next) {
				t.Errorf("%v (%v), next %q; want %v and %q", err, fault.KindOf(err), fault.NextOf(err), c.kind, c.next)
			}
			if err != nil && strings.Contains(err.Error(), "me:secret") {
				t.Errorf("the error shows the keys: %v", err)
			}
		})
	}
}

func TestGoodURLs(t *testing.T) {
	for text, want := range map[string]location{
		"s3+https://host/bucket":              {secure: true, host: "host", bucket: "bucket"},
		"s3+https://host:9000/bucket/":        {secure: true, host: "host:9000", bucket: "bucket"},
		"s3+https://host/bucket/a/b":          {secure: true, host: "host", bucket: "bucket", prefix: "a/b/"},
		"s3+http://localhost:9000/bucket":     {host: "localhost:9000", bucket: "bucket"},
		"s3+http://127.0.0.5/bucket/prefix/":  {host: "127.0.0.5", bucket: "bucket", prefix: "prefix/"},
		"s3+http://[::1]:9000/bucket/prefix/": {host: "[::1]:9000", bucket: "bucket", prefix: "prefix/"},
	} {
		if got, err := parse(text); err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", text, got, err, want)
		}
	}
}

// A server with a private certificate is trusted if its authority is
// configured, and only then.
func TestAuthorities(t *testing.T) {
	server := httptest.NewUnstartedServer(newFake())
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // it logs clients that do not trust it
	var conns atomic.Int64
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			conns.Add(1)
		}
	}
	server.StartTLS()
	defer server.Close()
	spec := Spec{Service: "store", URL: "s3+" + server.URL + "/" + fakeBucket, AccessKey: "access", SecretKey: "secret"}
	_, err := Open(t.Context(), flow.NewInventory(), spec)
	if fault.KindOf(err) != fault.UpstreamFailed || !strings.Contains(fault.NextOf(err), "store.ca_file") {
		t.Errorf("a server with an unknown certificate: %v, next %q", err, fault.NextOf(err))
	}
	if n := conns.Load(); n != 1 {
		t.Errorf("it was asked %d times, and its certificate did not get better", n)
	}
	spec.CAFile = filepath.Join(t.TempDir(), "ca.pem")
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(spec.CAFile, certificate, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := Open(t.Context(), flow.NewInventory(), spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(spec.CAFile, []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), flow.NewInventory(), spec); fault.KindOf(err) != fault.Malformed {
		t.Errorf("a file without certificates: %v", err)
	}
}
