package gateway

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"micronode/fault"
	"micronode/internal/capability"
)

// testProof makes proofs under a secret that the tests share.
func testProof(connection string, asked, answered []byte) ([]byte, error) {
	root, err := capability.RootFrom(strings.Repeat("5ec4e7", 11), nil)
	if err != nil {
		return nil, err
	}
	return root.Proof(connection, asked, answered)
}

// provingHandler is a handler of a part that proves to be one.
func provingHandler(t *testing.T, next http.HandlerFunc) http.Handler {
	proof := ProofRoute("test", testProof)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != ProofPath {
			next(w, r)
		} else if err := proof.Handler(w, r); err != nil {
			t.Error(err)
		}
	})
}

func get(t *testing.T, addr string, prove ProofFunc) (string, error) {
	t.Helper()
	parsed, err := ParsePartAddr(addr)
	if err != nil {
		t.Fatal(err)
	}
	transport := parsed.Transport(1, prove)
	defer transport.CloseIdleConnections()
	answer, err := (&http.Client{Transport: transport, Timeout: time.Minute}).Get(parsed.URL() + "/names")
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return string(text), err
}

// Over TLS the proof is bound to the session.
func TestAProofOverTLS(t *testing.T) {
	server := httptest.NewTLSServer(provingHandler(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "names") }))
	defer server.Close()
	addr, err := ParsePartAddr(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	config := server.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	config.ServerName, config.NextProtos = "example.com", []string{"http/1.1"}
	for name, c := range map[string]struct {
		prove ProofFunc
		good  bool
	}{"ours": {testProof, true}, "another secret": {func(c string, a, b []byte) ([]byte, error) { return testProof("else "+c, a, b) }, false}} {
		conn, err := addr.dial((&tls.Dialer{Config: config}).DialContext, c.prove)(t.Context(), "tcp", server.Listener.Addr().String())
		if (err == nil) != c.good || err != nil && !IsImpostor(err) {
			t.Errorf("%s: %v", name, err)
		}
		if conn != nil {
			_ = conn.Close()
		}
	}
	if _, err := get(t, server.URL, testProof); err == nil { // its certificate has no trusted authority
		t.Error("a stranger's certificate is good enough")
	}
}

// A server without the proof receives nothing but a random number.
func TestWhoDoesNotProve(t *testing.T) {
	replay := ""
	for name, answer := range map[string]http.HandlerFunc{
		"nothing of the kind": http.NotFound,
		"not JSON":            func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "yes") },
		"an empty proof":      func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") },
		"too much":            func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, strings.Repeat(" ", 1<<20)) },
		"an old proof": func(w http.ResponseWriter, r *http.Request) {
			if replay == "" {
				recorded := httptest.NewRecorder()
				if err := ProofRoute("test", testProof).Handler(recorded, r); err != nil {
					t.Error(err)
				}
				replay = recorded.Body.String()
				w.WriteHeader(http.StatusTooManyRequests)
				return
			}
			_, _ = io.WriteString(w, replay)
		},
		"a proof, and then no more": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Connection", "close")
			if err := ProofRoute("test", testProof).Handler(w, r); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			var requests []string
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				requests = append(requests, fmt.Sprint(r.Method, " ", r.URL))
				answer(w, r)
			}))
			defer server.Close()
			if name == "an old proof" {
				if _, err := get(t, server.URL, testProof); err == nil || IsImpostor(err) {
					t.Errorf("one that is busy is no impostor: %v", err)
				}
			}
			_, err := get(t, server.URL, testProof)
			if !IsImpostor(err) {
				t.Errorf("%v", err)
			}
			failed := ExplainFailure("test", "index", PartAddr{text: server.URL}, err)
			if fault.KindOf(failed) != fault.UpstreamFailed || !strings.Contains(fault.DetailOf(failed), "does not prove") || !strings.Contains(fault.NextOf(failed), "auth.root") {
				t.Errorf("%v; %s", failed, fault.NextOf(failed))
			}
			for _, line := range requests {
				if line != "POST "+ProofPath {
					t.Errorf("it was asked %s", line)
				}
			}
		})
	}
}

// One that speaks no HTTP, and one that sends more than the answer.
func TestWhoSpeaksOutOfTurn(t *testing.T) {
	for name, says := range map[string]string{"noise": "SSH-2.0-OpenSSH\r\n", "two answers": "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"} {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
			if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
				_, _ = io.WriteString(conn, says)
			}
		}()
		if _, err := get(t, "http://"+listener.Addr().String(), testProof); !IsImpostor(err) {
			t.Errorf("%s: %v", name, err)
		}
		_ = listener.Close()
		<-done
	}
}

// For one that accepts the connection and sends nothing, the wait ends with the
// caller's.
func TestWhoSaysNothing(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	addr, _ := ParsePartAddr("http://" + listener.Addr().String())
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if conn, err := addr.dial(dialer().DialContext, testProof)(ctx, "tcp", listener.Addr().String()); err == nil {
		t.Error(conn.Close())
	}
}
