package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"micronode/internal/capability"
	"micronode/internal/testkit"
)

// What happens to an operator in a night, as commands of scripts.
var nightCommands = map[string]func(*testscript.TestScript, bool, []string){
	"disk": mountDisk, "fill": fillDisk, "engine": runEngine, "certificate": writeCertificate, "metric": awaitMetric, "flood": flood,
}

// engine is the object store that runs; there is one script.
var engine *httptest.Server

// runEngine starts an empty object store, or stops it: engine start, engine stop.
// Its address is in ENGINE, and stays the same.
func runEngine(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: engine start|stop")
	}
	if args[0] == "stop" {
		engine.CloseClientConnections()
		engine.Close()
		return
	}
	address := ts.Getenv("ENGINE")
	if address == "" {
		address = "127.0.0.1:0"
	}
	listener, err := net.Listen("tcp", address)
	ts.Check(err)
	engine = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("list-type") {
			_, _ = io.WriteString(w, "<ListBucketResult/>")
			return
		}
		w.WriteHeader(http.StatusNotFound)
	}))
	engine.Listener.Close()
	engine.Listener = listener
	engine.Start()
	ts.Setenv("ENGINE", listener.Addr().String())
	ts.Defer(engine.Close)
}

// writeCertificate writes a certificate for localhost, and its key:
// certificate CERT KEY LIFETIME
func writeCertificate(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: certificate CERT KEY LIFETIME")
	}
	life, err := time.ParseDuration(args[2])
	ts.Check(err)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	ts.Check(err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(life), KeyUsage: x509.KeyUsageDigitalSignature,
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	ts.Check(err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}), 0o600))
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600))
}

// awaitMetric reads the metrics on the local socket until a line matches:
// metric PATTERN
func awaitMetric(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: metric PATTERN")
	}
	want := regexp.MustCompile("(?m)" + args[0])
	socket := ts.Getenv("SOCKET")
	client := &http.Client{Timeout: testTimeout, Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return capability.DialLocal(ctx, socket) }}}
	last := ""
	if testkit.Poll(func() bool {
		answer, err := client.Get("http://local/metrics")
		if err != nil {
			last = err.Error()
			return false
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		last = string(text)
		return err == nil && want.MatchString(last)
	}) {
		return
	}
	ts.Fatalf("no metric matches %s in\n%s", args[0], last)
}

// flood sends requests over TLS until one is rejected: flood URL
func flood(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: flood URL")
	}
	client := &http.Client{Timeout: testTimeout, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} // it is not about the certificate
	defer client.CloseIdleConnections()
	if testkit.Poll(func() bool {
		answer, err := client.Get(args[0])
		if err != nil {
			return false
		}
		answer.Body.Close()
		return answer.StatusCode == http.StatusTooManyRequests
	}) {
		return
	}
	ts.Fatalf("nothing was rejected")
}
