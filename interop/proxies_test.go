package interop

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
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
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"micronode/internal/edge/pack/packtest"
)

// publicNode is a node with a map, in a process of its own.
type publicNode struct {
	t    *testing.T
	url  string // of the gateway
	addr string
	logs *lockedText

	socket string // for commands
}

// lockedText is what a process has written so far.
type lockedText struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lockedText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// startPublicNode starts a node with the pack city, a grid of small tiles.
func startPublicNode(t *testing.T, binary string, settings ...string) *publicNode {
	t.Helper()
	return startPublicNodeWith(t, binary, nil, settings...)
}

func startPublicNodeWith(t *testing.T, binary string, flags []string, settings ...string) *publicNode {
	t.Helper()
	folder := t.TempDir()
	var tiles []packtest.PMTile
	for x := range uint32(8) {
		for y := range uint32(8) {
			tiles = append(tiles, packtest.PMTile{Z: 3, X: x, Y: y, Data: []byte(strings.Repeat(fmt.Sprintf("tile %d/%d ", x, y), 100))})
		}
	}
	pack := filepath.Join(folder, "city.pmtiles")
	if err := packtest.WritePMTiles(pack, packtest.PMSpec{Tiles: tiles, MinZoom: 3, MaxZoom: 3, Type: packtest.PMVector, Metadata: `{"name":"City"}`}); err != nil {
		t.Fatal(err)
	}
	n := &publicNode{t: t, logs: new(lockedText), socket: fmt.Sprintf("micronode-interop-%d-%d", os.Getpid(), time.Now().UnixNano())}
	command := exec.Command(binary, append([]string{"run", "--json", "--admin", "127.0.0.1:0", "--overlay", "127.0.0.1:0", "--socket", n.socket, "--pack", pack}, flags...)...)
	command.Env = append(append(os.Environ(), "MICRO_HTTP__ADDR=127.0.0.1:0"), settings...)
	command.Stderr = n.logs
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Signal(syscall.SIGTERM)
		_ = command.Wait()
		if t.Failed() {
			t.Log(n.logs)
		}
	})
	var banner struct{ HTTP string }
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil || json.Unmarshal(line, &banner) != nil {
		t.Fatalf("no banner: %v %s\n%s", err, line, n.logs)
	}
	n.url = banner.HTTP
	n.addr = n.url[strings.Index(n.url, "://")+3:]
	return n
}

// recipes are the examples of docs/public.md, by their language.
func recipe(t *testing.T, language string) string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "docs", "public.md"))
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("(?s)```" + language + "\n(.*?)```").FindSubmatch(page)
	if found == nil {
		t.Fatalf("docs/public.md has no recipe for %s", language)
	}
	return string(found[1])
}

// freePort is a port that nothing listens on now.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

// proxyCertificate is a certificate for localhost with its key in one file, and
// a pool that trusts it.
func proxyCertificate(t *testing.T) (file string, roots *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	leaf := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"localhost"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, leaf, leaf, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "maps.pem")
	text := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})...)
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	roots = x509.NewCertPool()
	roots.AppendCertsFromPEM(text)
	return file, roots
}

// A proxy of the recipes, started in front of a node.
type proxyProgram struct {
	language string
	command  string
	config   func(recipe, port, certificate, node string) string
	args     func(file, folder string) []string
}

var proxyPrograms = map[string]proxyProgram{
	"nginx": {"nginx", "nginx", func(recipe, port, certificate, node string) string {
		recipe = strings.NewReplacer("listen 443", "listen 127.0.0.1:"+port, "/etc/ssl/maps.pem", certificate, "127.0.0.1:8080", node, "maps.example.org", "localhost").Replace(recipe)
		return "worker_processes 2;\npid FOLDER/pid;\nerror_log stderr;\nevents { worker_connections 4096; }\nhttp {\naccess_log off;\nclient_body_temp_path FOLDER/a;\nproxy_temp_path FOLDER/b;\nfastcgi_temp_path FOLDER/c;\nuwsgi_temp_path FOLDER/d;\nscgi_temp_path FOLDER/e;\n" + recipe + "}\n"
	}, func(file, _ string) []string { return []string{"-c", file, "-g", "daemon off;"} }},
	"caddy": {"caddy", "caddy", func(recipe, port, certificate, node string) string {
		recipe = strings.NewReplacer("maps.example.org {", "https://localhost:"+port+" {\n\ttls "+certificate+" "+certificate, "127.0.0.1:8080", node).Replace(recipe)
		return "{\n\tadmin off\n\tauto_https off\n}\n" + recipe
	}, func(file, _ string) []string { return []string{"run", "--config", file, "--adapter", "caddyfile"} }},
	"haproxy": {"haproxy", "haproxy", func(recipe, port, certificate, node string) string {
		return "global\n    maxconn 8000\ndefaults\n    timeout connect 5s\n    timeout client 30s\n    timeout server 30s\n" +
			strings.NewReplacer("bind :443", "bind 127.0.0.1:"+port, "/etc/ssl/maps.pem", certificate, "127.0.0.1:8080", node).Replace(recipe)
	}, func(file, _ string) []string { return []string{"-f", file, "-db"} }},
	"haproxy with TLS passed on": {"haproxy-tcp", "haproxy", func(recipe, port, _, node string) string {
		return "global\n    maxconn 8000\ndefaults\n    timeout connect 5s\n    timeout client 30s\n    timeout server 30s\n" +
			strings.NewReplacer("bind :443", "bind 127.0.0.1:"+port, "127.0.0.1:8443", node).Replace(recipe)
	}, func(file, _ string) []string { return []string{"-f", file, "-db"} }},
}

// start starts the proxy and returns its URL.
func (p proxyProgram) start(t *testing.T, certificate, node string) (url string) {
	t.Helper()
	folder, port := t.TempDir(), freePort(t)
	file := filepath.Join(folder, "proxy.conf")
	text := strings.ReplaceAll(p.config(recipe(t, p.language), port, certificate, node), "FOLDER", folder)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out := new(lockedText)
	command := exec.Command(p.command, p.args(file, folder)...)
	command.Stdout, command.Stderr, command.Env = out, out, append(os.Environ(), "HOME="+folder, "XDG_DATA_HOME="+folder, "XDG_CONFIG_HOME="+folder)
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Signal(syscall.SIGTERM)
		_ = command.Wait()
		if t.Failed() {
			t.Logf("%s\n%s", text, out)
		}
	})
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		conn, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err == nil {
			conn.Close()
			return "https://localhost:" + port
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s does not listen: %s", p.command, out)
		}
	}
}

func buildMicronode(t *testing.T) string {
	t.Helper()
	if known := os.Getenv("MICRONODE_BINARY"); known != "" {
		return known
	}
	binary := filepath.Join(t.TempDir(), "micronode")
	if out, err := exec.Command("go", "build", "-C", "..", "-o", binary, "./cmd/micronode").CombinedOutput(); err != nil {
		t.Fatalf("go build ./cmd/micronode: %v\n%s", err, out)
	}
	return binary
}

// viewer is a browser's HTTP/2, or as many connections as a browser has.
func viewer(t *testing.T, roots *x509.CertPool) *http.Client {
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true, MaxConnsPerHost: 6}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: time.Minute}
}

func fetch(t *testing.T, web *http.Client, url string) (status int, body string) {
	t.Helper()
	answer, err := web.Get(url)
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Error(err)
	}
	return answer.StatusCode, string(text)
}

// TestBehindProxies runs the recipes of docs/public.md with the real programs:
// URLs are those that the client used, strangers read what is public and nothing
// else, and fifty viewers with sixty tiles each get all of them.
func TestBehindProxies(t *testing.T) {
	binary := buildMicronode(t)
	for name, program := range proxyPrograms {
		t.Run(name, func(t *testing.T) {
			if _, err := exec.LookPath(program.command); err != nil {
				t.Skip(program.command + " is not installed: tools/need " + program.command)
			}
			certificate, roots := proxyCertificate(t)
			settings := []string{"MICRO_HTTP__PUBLIC=tiles,assets", "MICRO_HTTP__TRUSTED_PROXIES=127.0.0.1"}
			if program.language == "haproxy-tcp" {
				settings = append(settings, "MICRO_HTTP__PROXY_PROTOCOL=true", "MICRO_HTTP__CERT_FILE="+certificate, "MICRO_HTTP__KEY_FILE="+certificate, "MICRO_ADMIN__TLS=off")
			}
			node := startPublicNode(t, binary, settings...)
			url := program.start(t, certificate, node.addr)

			web := viewer(t, roots)
			if status, body := fetch(t, web, url+"/edge/tiles/city.json"); status != 200 || !strings.Contains(body, `"`+url+`/edge/tiles/city/{z}/{x}/{y}`) {
				t.Fatalf("TileJSON: %d %s", status, body)
			}
			for _, path := range []string{"/overlay/peers", "/edge/packs", "/names", "/admin/status", "/metrics"} {
				if status, body := fetch(t, web, url+path); status != 401 && status != 403 {
					t.Errorf("a stranger at %s: %d %s", path, status, body)
				}
			}
			viewTiles(t, roots, url)
		})
	}
}

// viewTiles is fifty viewers, each of which asks for sixty tiles at a time.
func viewTiles(t *testing.T, roots *x509.CertPool, url string) {
	t.Helper()
	var viewers sync.WaitGroup
	var tiles atomic.Int64
	for range 50 {
		web := viewer(t, roots)
		for i := range 60 {
			viewers.Go(func() {
				status, body := fetch(t, web, fmt.Sprintf("%s/edge/tiles/city/3/%d/%d", url, i%8, i/8))
				if status == 200 && strings.HasPrefix(body, fmt.Sprintf("tile %d/%d ", i%8, i/8)) {
					tiles.Add(1)
				} else {
					t.Errorf("a tile: %d %.200s", status, body)
				}
			})
		}
	}
	viewers.Wait()
	if tiles.Load() != 50*60 {
		t.Errorf("%d tiles of 3000", tiles.Load())
	}
}

// A proxy that is not trusted is named in the log, and its word does not count.
func TestBehindAProxyThatNobodyTrusts(t *testing.T) {
	if _, err := exec.LookPath("nginx"); err != nil {
		t.Skip("nginx is not installed: tools/need nginx nginx-light")
	}
	certificate, roots := proxyCertificate(t)
	node := startPublicNode(t, buildMicronode(t), "MICRO_HTTP__PUBLIC=tiles")
	url := proxyPrograms["nginx"].start(t, certificate, node.addr)
	if status, body := fetch(t, viewer(t, roots), url+"/edge/tiles/city.json"); status != 200 || strings.Contains(body, "https://") {
		t.Errorf("%d %s", status, body)
	}
	for deadline := time.Now().Add(10 * time.Second); !strings.Contains(node.logs.String(), "trusted_proxies"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the log does not name the proxy")
		}
	}
}
