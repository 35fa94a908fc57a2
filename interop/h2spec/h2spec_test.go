// Package h2spec tests a node with h2spec, a conformance suite for HTTP/2,
// beside a bare server of net/http in the same run. What the bare server fails
// is net/http's; a node fails nothing else.
package h2spec

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// suite is the version that is run. It is built from the module proxy, and is a
// dependency of nothing.
const suite = "github.com/summerwind/h2spec"

const version = "v2.2.1+incompatible"

// Cases that a server of net/http passes or fails by a race: whether its handler
// has answered before the frame that is wrong was read.
var racyCases = regexp.MustCompile(`"content-length" header field which does not equal|increasing the flow control window to above 2\^31-1 on a stream`)

// A route of each kind: open, control, transfer, one with a body, one that
// refuses, and none. A stream has no end, and the suite waits for ends.
var routes = []string{"/healthz", "/edge/packs", "/o/{b3}", "/put", "/edge/assets/elsewhere.example/x", "/nowhere"}

func TestHTTP2(t *testing.T) {
	folder := t.TempDir()
	program := filepath.Join(folder, "h2spec")
	module := "module suite\n\ngo 1.26\n\nrequire " + suite + " " + version + "\n"
	if err := os.WriteFile(filepath.Join(folder, "go.mod"), []byte(module), 0o600); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-mod=mod", "-o", program, suite+"/cmd/h2spec")
	build.Dir = folder
	if out, err := build.CombinedOutput(); err != nil {
		t.Skipf("h2spec cannot be had, so nothing is held against it: %v\n%s", err, out)
	}
	certificate(t, folder)
	bare := runSuite(t, program, serveBare(t, folder), "/")
	host, object := startNode(t, folder)
	var wait sync.WaitGroup
	for _, route := range routes {
		wait.Go(func() {
			for _, failure := range runSuite(t, program, host, strings.ReplaceAll(route, "{b3}", object)) {
				if !contains(bare, failure) && !racyCases.MatchString(failure) {
					t.Errorf("%s: the bare server passes, and the node does not: %s", route, failure)
				}
			}
		})
	}
	wait.Wait()
}

func contains(list []string, one string) bool {
	for _, other := range list {
		if other == one {
			return true
		}
	}
	return false
}

// runSuite runs the suite and returns the failures.
func runSuite(t *testing.T, program, host, path string) (failures []string) {
	_, port, _ := net.SplitHostPort(host)
	out, err := exec.Command(program, "-h", "127.0.0.1", "-p", port, "-t", "-k", "-P", path, "-o", "5").CombinedOutput()
	total := regexp.MustCompile(`(\d+) tests, (\d+) passed`).FindSubmatch(out)
	if total == nil || string(total[1]) == "0" {
		t.Errorf("%s: the suite did not run: %v\n%s", path, err, out)
		return nil
	}
	_, list, _ := bytes.Cut(out, []byte("\nFailures:"))
	for _, line := range strings.Split(string(list), "\n") {
		if _, name, found := strings.Cut(line, "× "); found {
			_, name, _ = strings.Cut(name, ": ")
			failures = append(failures, name)
		}
	}
	t.Logf("%s%s: %s", host, path, total[0])
	return failures
}

// serveBare is net/http with nothing around it.
func serveBare(t *testing.T, folder string) (host string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "hello") })}
	server.ErrorLog = nil
	over := make(chan struct{})
	go func() {
		defer close(over)
		_ = server.ServeTLS(l, filepath.Join(folder, "cert.pem"), filepath.Join(folder, "key.pem"))
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-over
	})
	return l.Addr().String()
}

// startNode runs the real binary with TLS, and puts an object into it.
func startNode(t *testing.T, folder string) (host, object string) {
	binary := os.Getenv("MICRONODE_BINARY")
	if binary == "" {
		binary = filepath.Join(folder, "micronode")
		if out, err := exec.Command("go", "build", "-C", "../..", "-o", binary, "./cmd/micronode").CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	file := filepath.Join(folder, "config.toml")
	// The suite opens a connection for each case, for six routes at a time:
	// more than the limit of one address.
	text := fmt.Sprintf("[limits]\nhandshake_rate = 10000\nhandshake_burst = 10000\n[http]\ncert_file = %q\nkey_file = %q\n", filepath.Join(folder, "cert.pem"), filepath.Join(folder, "key.pem"))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	socket := fmt.Sprintf("micronode-h2spec-%d", os.Getpid())
	output := new(bytes.Buffer)
	process := exec.Command(binary, "run", "--open", "--config", file, "--http", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--overlay", "127.0.0.1:0", "--socket", socket)
	process.Stdout, process.Stderr = output, output
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = process.Process.Kill()
		_ = process.Wait()
		if t.Failed() {
			t.Logf("the node said:\n%s", output)
		}
	})
	do := func(args ...string) []byte {
		out, err := exec.Command(binary, append(args, "--socket", socket)...).Output()
		if err != nil {
			t.Fatalf("micronode %v: %v", args, err)
		}
		return out
	}
	do("status", "--wait", "30s")
	var status struct {
		Listen struct{ HTTP string }
	}
	if err := json.Unmarshal(do("status", "--json"), &status); err != nil {
		t.Fatal(err)
	}
	object = regexp.MustCompile("b3:[0-9a-f]{64}").FindString(string(do("put", file, "--json")))
	return status.Listen.HTTP, object
}

// certificate makes one for this machine.
func certificate(t *testing.T, folder string) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	spec := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	raw, err := x509.CreateCertificate(rand.Reader, spec, spec, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{"cert.pem": {Type: "CERTIFICATE", Bytes: raw}, "key.pem": {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(filepath.Join(folder, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
