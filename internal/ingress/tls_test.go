package ingress

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"micronode/fault"
	"micronode/internal/testkit"
)

// authority makes certificates for tests.
type authority struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
	file string
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	a := &authority{t: t, pool: x509.NewCertPool()}
	var raw []byte
	raw, a.key = a.make(&x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, Subject: pkix.Name{CommonName: "test authority"}})
	a.cert, _ = x509.ParseCertificate(raw)
	a.pool.AddCert(a.cert)
	a.file = a.write("ca.pem", "CERTIFICATE", raw)
	return a
}

func (a *authority) make(template *x509.Certificate) ([]byte, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template.SerialNumber, _ = rand.Int(rand.Reader, big.NewInt(1<<62))
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	return raw, key
}

// issue writes a certificate and its key.
func (a *authority) issue(name string) TLSFiles {
	a.t.Helper()
	raw, key := a.make(&x509.Certificate{Subject: pkix.Name{CommonName: name}, DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}})
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	return TLSFiles{Cert: a.write(name+".pem", "CERTIFICATE", raw), Key: a.write(name+".key", "EC PRIVATE KEY", secret)}
}

func (a *authority) write(name, kind string, raw []byte) string {
	a.t.Helper()
	path := filepath.Join(a.t.TempDir(), name)
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: raw}), 0o600); err != nil {
		a.t.Fatal(err)
	}
	return path
}

// keyring loads files into a new TLSConfigSource.
func (f *fixture) keyring(files TLSFiles) *TLSConfigSource {
	f.t.Helper()
	config, err := LoadTLS(files)
	if err != nil {
		f.t.Fatal(err)
	}
	return NewTLSConfigSource(f.inventory, "gateway", config)
}

// httpsClient trusts the authority.
func httpsClient(a *authority, http2 bool, certs ...tls.Certificate) *http.Client {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(!http2)
	protocols.SetHTTP2(http2)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: a.pool, Certificates: certs}, Protocols: protocols}
	a.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func fetch(t testing.TB, c *http.Client, url string) (*http.Response, string) {
	t.Helper()
	response, err := c.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response, string(body)
}

func TestTLS(t *testing.T) {
	a := newAuthority(t)
	f := newWarmFixture(t)
	ring := f.keyring(a.issue("first"))
	f.fixture.listenTCP(func(o *ListenOptions) { o.TLS = ring })
	url := "https://" + f.listener.Addr().String()
	for _, http2 := range []bool{false, true} {
		c := httpsClient(a, http2)
		response, body := fetch(t, c, url+"/w/large")
		if body != string(largeBody) || (response.ProtoMajor == 2) != http2 || response.TLS.Version < tls.VersionTLS12 || response.Header.Get("X-Corr-ID") == "" {
			t.Errorf("HTTP/2 %t: %s, %d bytes", http2, response.Proto, len(body))
		}
		if response, _ := fetch(t, c, url+"/nowhere"); response.StatusCode != 404 || response.Header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%d", response.StatusCode)
		}
		posted, err := c.Post(url+"/w/x", "text/plain", strings.NewReader("hello"))
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(posted.Body)
		posted.Body.Close()
		if string(text) != "hello" {
			t.Errorf("%q", text)
		}
		if response.TLS.PeerCertificates[0].Subject.CommonName != "first" {
			t.Error("the wrong certificate")
		}
	}
	if f.requests(t) != 2 {
		t.Errorf("%d requests through the chain: there is no warm lane below TLS", f.requests(t))
	}

	// A new certificate is used from the next handshake on.
	config, err := LoadTLS(a.issue("second"))
	if err != nil {
		t.Fatal(err)
	}
	ring.Store(config)
	response, _ := fetch(t, httpsClient(a, true), url+"/w/tiny")
	if name := response.TLS.PeerCertificates[0].Subject.CommonName; name != "second" {
		t.Errorf("%s is still in force", name)
	}

	// TLS 1.2 has AEAD suites only.
	old := func(suites ...uint16) error {
		c, err := tls.Dial("tcp", f.listener.Addr().String(), &tls.Config{RootCAs: a.pool, MaxVersion: tls.VersionTLS12, CipherSuites: suites})
		if err == nil {
			c.Close()
		}
		return err
	}
	if err := old(tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256); err != nil {
		t.Errorf("TLS 1.2 with GCM: %v", err)
	}
	if err := old(tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA, tls.TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA); err == nil {
		t.Error("TLS 1.2 with CBC was accepted")
	}

	// Old versions and plain HTTP are refused.
	if _, err := tls.Dial("tcp", f.listener.Addr().String(), &tls.Config{RootCAs: a.pool, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}); err == nil {
		t.Error("TLS 1.1 was accepted")
	}
	plain := f.dialReal()
	plain.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
	if p := plain.receive().wantRefusal(t, 400, "Malformed"); !strings.Contains(p.Detail, "HTTPS") {
		t.Errorf("%+v", p)
	}
}

func TestMutualTLS(t *testing.T) {
	a, strangers := newAuthority(t), newAuthority(t)
	files := a.issue("server")
	files.ClientCA = a.file
	var asked AuthRequest
	f := newFixture(t, []Route{control("GET", "/x", respondWith("x"))}, func(o *Options) { o.Authorise = recordAuth(&asked) })
	ring := f.keyring(files)
	f.listenTCP(func(o *ListenOptions) { o.TLS = ring })
	url := "https://" + f.listener.Addr().String() + "/x"
	pair := func(files TLSFiles) tls.Certificate {
		one, err := tls.LoadX509KeyPair(files.Cert, files.Key)
		if err != nil {
			t.Fatal(err)
		}
		return one
	}
	if _, body := fetch(t, httpsClient(a, true, pair(a.issue("friend"))), url); body != "x" || !asked.Verified {
		t.Errorf("%q %+v", body, asked)
	}
	for name, certs := range map[string][]tls.Certificate{"nobody": nil, "stranger": {pair(strangers.issue("stranger"))}} {
		if _, err := httpsClient(a, true, certs...).Get(url); err == nil {
			t.Errorf("%s was let in", name)
		}
	}
	testkit.WaitFor(t, "failed handshakes are counted", func() bool { // the client may see it before the server has counted it
		return f.metric("io_errors_total", "service", "gateway", "op", "handshake") == 2
	})
}

func TestLoadTLSRefuses(t *testing.T) {
	a := newAuthority(t)
	good := a.issue("good")
	for name, c := range map[string]struct {
		files TLSFiles
		kind  fault.Kind
	}{
		"no file":        {TLSFiles{Cert: "/nowhere", Key: good.Key}, fault.NotFound},
		"not a key":      {TLSFiles{Cert: good.Cert, Key: good.Cert}, fault.Malformed},
		"wrong key":      {TLSFiles{Cert: good.Cert, Key: a.issue("other").Key}, fault.Malformed},
		"no authorities": {TLSFiles{Cert: good.Cert, Key: good.Key, ClientCA: good.Key}, fault.Malformed},
		"no such file":   {TLSFiles{Cert: good.Cert, Key: good.Key, ClientCA: "/nowhere"}, fault.NotFound},
	} {
		_, err := LoadTLS(c.files)
		if fault.KindOf(err) != c.kind || !strings.Contains(fault.NextOf(err), "http.") {
			t.Errorf("%s: %v. %s", name, err, fault.NextOf(err))
		}
	}
	if kind := fault.KindOf(tlsFileError("x", "y", os.ErrPermission)); kind != fault.Forbidden {
		t.Errorf("%s", kind)
	}
	if (TLSFiles{}).IsSet() || !good.IsSet() || DefaultHTTP().TLSFiles().IsSet() {
		t.Error("Set tells whether there is anything to load")
	}
}

// A client that connects and sends nothing has two seconds for its handshake.
func TestSlowHandshake(t *testing.T) {
	a := newAuthority(t)
	files := a.issue("server")
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, []Route{control("GET", "/x", respondWith("x"))})
		ring := f.keyring(files)
		f.listen(func(o *ListenOptions) { o.TLS = ring })
		c := f.dial()
		from := time.Now()
		if !c.closed() || time.Since(from) != 2*time.Second {
			t.Errorf("closed after %s", time.Since(from))
		}
	})
}

func TestDrainOfHTTP2(t *testing.T) {
	a := newAuthority(t)
	hold, running := make(chan struct{}), make(chan struct{})
	f := newFixture(t, []Route{
		transfer("GET", "/long", func(w http.ResponseWriter, r *http.Request) error {
			close(running)
			<-hold
			return respondWith("done")(w, r)
		}),
		control("GET", "/x", respondWith("x")),
		{Service: "registry", Methods: []string{"GET"}, Pattern: "/events", Class: Stream, Handler: func(w http.ResponseWriter, r *http.Request) error {
			return SSE(w, r, func(ctx context.Context) (Event, error) { <-ctx.Done(); return Event{}, ctx.Err() })
		}},
	})
	ring := f.keyring(a.issue("server"))
	f.listenTCP(func(o *ListenOptions) { o.TLS = ring })
	url := "https://" + f.listener.Addr().String()
	idle, busy := httpsClient(a, true), httpsClient(a, true)
	fetch(t, idle, url+"/x")
	done := make(chan string, 2)
	go func() {
		_, body := fetch(t, busy, url+"/long")
		done <- body
	}()
	<-running
	stream, err := busy.Get(url + "/events")
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	drained := make(chan error, 1)
	go func() { drained <- f.listener.Drain(context.Background()) }()
	if text, err := io.ReadAll(stream.Body); err != nil || !strings.HasSuffix(string(text), ": draining\n\n") {
		t.Errorf("%v %q", err, text)
	}
	refused, err := busy.Get(url + "/x")
	if err == nil {
		if refused.StatusCode != 503 {
			t.Errorf("a new request during the drain: %d", refused.StatusCode)
		}
		refused.Body.Close()
	}
	close(hold)
	if body := <-done; body != "done" {
		t.Errorf("%q", body)
	}
	if err := <-drained; err != nil {
		t.Error(err)
	}
	if _, err := net.Dial("tcp", f.listener.Addr().String()); err == nil {
		t.Error("it still listens")
	}
}

// HTTP/2 has its own deadlines for each stream.
func TestDeadlinesOfHTTP2(t *testing.T) {
	a := newAuthority(t)
	failed := make(chan error, 1)
	writes := func(n int) Handler {
		return func(w http.ResponseWriter, r *http.Request) error {
			_, err := w.Write(make([]byte, n))
			if err != nil {
				failed <- err
			}
			return err
		}
	}
	f := newFixture(t, []Route{transfer("GET", "/stuck", waitForDeadline), control("GET", "/wait", waitForDeadline),
		transfer("GET", "/big", writes(300_000)), transfer("GET", "/huge", writes(16<<20))}, func(o *Options) {
		o.Times.Progress, o.Times.FirstByte, o.Times.Deadline = 2*time.Second, 2*time.Second, 2*time.Second
	})
	ring := f.keyring(a.issue("server"))
	f.listenTCP(func(o *ListenOptions) { o.TLS = ring })
	url := "https://" + f.listener.Addr().String()
	c := httpsClient(a, true)
	for _, path := range []string{"/stuck", "/wait"} {
		if response, _ := fetch(t, c, url+path); response.StatusCode != 504 {
			t.Errorf("%s: %d", path, response.StatusCode)
		}
	}
	if _, body := fetch(t, c, url+"/big"); len(body) != 300_000 {
		t.Errorf("%d bytes", len(body))
	}
	// A client that opens a stream and reads none of it is cut.
	response, err := c.Get(url + "/huge")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if err := <-failed; fault.KindOf(err) != fault.Timeout {
		t.Errorf("%v", err)
	}
	if _, err := io.ReadAll(response.Body); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("half an answer looks whole: %v", err)
	}
}
