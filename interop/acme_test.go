package interop

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/letsencrypt/pebble/v2/ca"
	"github.com/letsencrypt/pebble/v2/db"
	"github.com/letsencrypt/pebble/v2/va"
	"github.com/letsencrypt/pebble/v2/wfe"
	"github.com/miekg/dns"
)

// pebble is Let's Encrypt's own authority for tests. It looks at names through
// a DNS of ours, in which every name of maps.test is this machine and every
// other name does not exist.
type pebble struct {
	server *httptest.Server // not started
	roots  *x509.CertPool   // of the certificates that it issues
	caFile string           // of its own
}

// newPebble makes an authority that proves names at two ports, and whose
// certificates are valid for some seconds.
func newPebble(t *testing.T, plainPort, tlsPort string, seconds uint64) *pebble {
	t.Helper()
	t.Setenv("PEBBLE_VA_NOSLEEP", "1")
	t.Setenv("PEBBLE_WFE_NONCEREJECT", "5")            // in a hundred, as it does by default
	questions, err := net.Listen("tcp", "127.0.0.1:0") // pebble asks its resolver by TCP
	if err != nil {
		t.Fatal(err)
	}
	names := &dns.Server{Listener: questions, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, asked *dns.Msg) {
		answer := new(dns.Msg).SetReply(asked)
		question := asked.Question[0]
		switch {
		case !strings.HasSuffix(question.Name, ".maps.test."):
			answer.Rcode = dns.RcodeNameError
		case question.Qtype == dns.TypeA:
			answer.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: question.Name, Rrtype: dns.TypeA, Class: dns.ClassINET}, A: net.IPv4(127, 0, 0, 1)}}
		}
		_ = w.WriteMsg(answer)
	})}
	go func() { _ = names.ActivateAndServe() }()
	t.Cleanup(func() { _ = names.Shutdown() })

	plain, _ := strconv.Atoi(plainPort)
	secure, _ := strconv.Atoi(tlsPort)
	logger, store := log.New(io.Discard, "", 0), db.NewMemoryStore()
	issuer := ca.New(logger, store, "", "ecdsa", 0, 1, map[string]ca.Profile{"default": {Description: "short", ValidityPeriod: seconds}})
	verifier := va.New(logger, plain, secure, false, questions.Addr().String(), store)
	front := wfe.New(logger, store, verifier, issuer, []string{"pebble.letsencrypt.org"}, false, false, 1, 1)
	p := &pebble{server: httptest.NewUnstartedServer(front.Handler()), roots: x509.NewCertPool()}
	p.roots.AppendCertsFromPEM(issuer.GetRootCert(0).PEM())
	return p
}

// start begins to answer, on an address or on any.
func (p *pebble) start(t *testing.T, addr string) {
	t.Helper()
	if addr != "" {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		_ = p.server.Listener.Close()
		p.server.Listener = l
	}
	p.server.StartTLS()
	t.Cleanup(p.server.Close)
	if p.caFile == "" {
		p.caFile = filepath.Join(t.TempDir(), "ca.pem")
	}
	if err := os.WriteFile(p.caFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
}

// client reaches a name at a port of this machine, and trusts the authority.
func (p *pebble) client(t *testing.T, port string) *http.Client {
	transport := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: p.roots}, DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, "127.0.0.1:"+port)
	}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 30 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// domainNode starts a node with names.
func domainNode(t *testing.T, binary, plainPort, tlsPort, directory, caFile, persist string, names ...string) *publicNode {
	flags := []string{"--persist", persist, "--public"}
	for _, name := range names {
		flags = append(flags, "--domain", name)
	}
	return startPublicNodeWith(t, binary, flags, "MICRO_HTTP__ADDR=127.0.0.1:"+tlsPort, "MICRO_HTTP__ACME__PLAIN_ADDR=127.0.0.1:"+plainPort,
		"MICRO_HTTP__ACME__DIRECTORY="+directory, "MICRO_HTTP__ACME__CA_FILE="+caFile)
}

const tileURL = "https://www.maps.test/edge/tiles/city/3/1/2"

// awaitCertificate waits until a name is served with a certificate.
func awaitCertificate(t *testing.T, n *publicNode, web *http.Client) *x509.Certificate {
	t.Helper()
	for deadline := time.Now().Add(3 * time.Minute); ; time.Sleep(50 * time.Millisecond) { // a refusal is followed by a pause of up to two
		answer, err := web.Get(tileURL)
		if err == nil {
			_, _ = io.Copy(io.Discard, answer.Body)
			answer.Body.Close()
			if answer.StatusCode == http.StatusOK && answer.ProtoMajor == 2 {
				return answer.TLS.PeerCertificates[0]
			}
			t.Fatalf("%d by %s", answer.StatusCode, answer.Proto)
		}
		if time.Now().After(deadline) {
			t.Fatalf("no certificate: %v\n%s", err, n.logs)
		}
	}
}

// TestACertificateFromPebble has a node obtain a certificate, serve with it, and
// renew it while a load runs in which no request fails.
func TestACertificateFromPebble(t *testing.T) {
	binary, plainPort, tlsPort, persist := buildMicronode(t), freePort(t), freePort(t), filepath.Join(t.TempDir(), "node")
	authority := newPebble(t, plainPort, tlsPort, 30)
	authority.start(t, "")
	n := domainNode(t, binary, plainPort, tlsPort, authority.server.URL+"/dir", authority.caFile, persist, "www.maps.test")
	web := authority.client(t, tlsPort)
	first := awaitCertificate(t, n, web)

	status, body := fetch(t, authority.client(t, plainPort), "http://www.maps.test/edge/tiles/city.json?a=b")
	if status != http.StatusPermanentRedirect {
		t.Errorf("without TLS: %d %s", status, body)
	}
	if status, body := fetch(t, authority.client(t, tlsPort), "https://www.maps.test/edge/tiles/city.json"); status != 200 || !strings.Contains(body, `"https://www.maps.test/edge/tiles/city/`) {
		t.Errorf("TileJSON: %d %s", status, body)
	}
	requests, renewed := 0, false
	for end := time.Now().Add(90 * time.Second); time.Now().Before(end) && !renewed; requests++ {
		fresh := authority.client(t, tlsPort) // a handshake each time
		answer, err := fresh.Get(tileURL)
		if err != nil {
			t.Fatalf("after %d requests: %v\n%s", requests, err, n.logs)
		}
		_, _ = io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			t.Fatalf("after %d requests: %d", requests, answer.StatusCode)
		}
		fresh.CloseIdleConnections() // limits.conns_per_ip
		renewed = !bytes.Equal(answer.TLS.PeerCertificates[0].Raw, first.Raw)
		time.Sleep(30 * time.Millisecond) // limits.handshake_rate is 50 a second
	}
	if !renewed {
		t.Fatalf("the certificate was not renewed\n%s", n.logs)
	}
	t.Logf("renewed after %d requests, none of which failed", requests)
}

// A node that the authority cannot reach by TLS proves its name without: the two
// proofs take turns.
func TestACertificateByHTTP(t *testing.T) {
	binary, plainPort, tlsPort, blocked := buildMicronode(t), freePort(t), freePort(t), freePort(t)
	authority := newPebble(t, plainPort, blocked, 3600)
	authority.start(t, "")
	n := domainNode(t, binary, plainPort, tlsPort, authority.server.URL+"/dir", authority.caFile, filepath.Join(t.TempDir(), "node"), "www.maps.test")
	awaitCertificate(t, n, authority.client(t, tlsPort))
	if logs := n.logs.String(); !strings.Contains(logs, "level=WARN msg=certificate") && !strings.Contains(logs, `"msg":"certificate"`) {
		t.Errorf("the first proof did not fail, so the test shows nothing:\n%s", logs)
	}
}

// A name that leads nowhere is a reason with its cause; the other names are
// served meanwhile.
func TestANameThatLeadsNowhere(t *testing.T) {
	binary, plainPort, tlsPort := buildMicronode(t), freePort(t), freePort(t)
	authority := newPebble(t, plainPort, tlsPort, 3600)
	authority.start(t, "")
	n := domainNode(t, binary, plainPort, tlsPort, authority.server.URL+"/dir", authority.caFile, filepath.Join(t.TempDir(), "node"), "www.elsewhere.test", "www.maps.test")
	web := authority.client(t, tlsPort)
	awaitCertificate(t, n, web)
	answer, err := web.Get("https://www.maps.test/readyz")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var verdict struct {
		Degraded bool
		Reasons  []struct{ Dep, Reason, Next string }
	}
	if err := json.NewDecoder(answer.Body).Decode(&verdict); err != nil || !verdict.Degraded {
		t.Fatalf("%v %+v", err, verdict)
	}
	for _, one := range verdict.Reasons {
		if strings.Contains(one.Dep, "certificate") && strings.Contains(one.Reason, "www.elsewhere.test") && one.Next != "" {
			return
		}
	}
	t.Errorf("readiness does not say why: %+v", verdict)
}

// An authority that is away is asked again, and the node runs meanwhile.
func TestAnAuthorityThatIsAway(t *testing.T) {
	binary, plainPort, tlsPort, at := buildMicronode(t), freePort(t), freePort(t), "127.0.0.1:"+freePort(t)
	authority := newPebble(t, plainPort, tlsPort, 3600)
	other := httptest.NewTLSServer(http.NotFoundHandler()) // its certificate is that of every httptest server
	authority.caFile = filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(authority.caFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: other.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	other.Close()
	n := domainNode(t, binary, plainPort, tlsPort, "https://"+at+"/dir", authority.caFile, filepath.Join(t.TempDir(), "node"), "www.maps.test")
	for deadline := time.Now().Add(30 * time.Second); !strings.Contains(n.logs.String(), "authority cannot be reached"); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the log does not say that the authority is away\n%s", n.logs)
		}
	}
	authority.start(t, at)
	awaitCertificate(t, n, authority.client(t, tlsPort))
}

// In RAM a certificate of the real authority is refused, with the reason.
func TestNoCertificatesInRAM(t *testing.T) {
	command := exec.Command(buildMicronode(t), "run", "--domain", "www.maps.test", "--socket", fmt.Sprintf("micronode-interop-%d-ram", os.Getpid()))
	out, err := command.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "--persist") || !strings.Contains(string(out), "--domain-staging") {
		t.Errorf("%v\n%s", err, out)
	}
}
