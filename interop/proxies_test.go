package interop

import (
	"bufio"
	"context"
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

// freePort is a port of this machine that nothing listens on now.
func freePort(t *testing.T) string {
	t.Helper()
	_, port, _ := net.SplitHostPort(freePorts(t, 1)[0])
	return port
}

// need skips a test that lacks a program. make interop installs what is needed,
// and a test that lacks it there fails.
func need(t *testing.T, why string) {
	t.Helper()
	if os.Getenv("INTEROP_NEEDS_ALL") != "" {
		t.Fatal(why)
	}
	t.Skip(why)
}

// needProgram returns where a program is.
func needProgram(t *testing.T, name string) string {
	t.Helper()
	found, err := exec.LookPath(name)
	if err != nil {
		need(t, name+" is not installed: make interop installs it")
	}
	return found
}

// caddyBinary is Caddy, built once from the module that bench measures.
var caddyBinary = sync.OnceValues(func() (string, error) {
	binary, err := filepath.Abs(filepath.Join("..", ".build", "interop", "caddy"))
	if err != nil {
		return "", err
	}
	out, err := exec.Command("go", "build", "-C", filepath.Join("..", "bench", "peers", "caddy"), "-o", binary, "github.com/caddyserver/caddy/v2/cmd/caddy").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("go build caddy: %w\n%s", err, out)
	}
	return binary, nil
})

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
	language string // of the recipe
	command  string
	config   func(recipe, port, certificate, node string) string
	below    func(recipe string) string // the recipe for a node below the path /maps; nil where there is none
	args     func(file, folder string) []string
}

const haproxyDefaults = "global\n    maxconn 8000\ndefaults\n    timeout connect 5s\n    timeout client 30s\n    timeout server 30s\n"

func nginxConfig(recipe, port, certificate, node string) string {
	recipe = strings.NewReplacer("listen 443", "listen 127.0.0.1:"+port, "/etc/ssl/maps.pem", certificate, "127.0.0.1:8080", node, "maps.example.org", "localhost", "/var/cache/nginx/maps", "FOLDER/cache").Replace(recipe)
	user := ""
	if os.Geteuid() == 0 {
		user = "user root;\n" // nobody else reads the folder of a test
	}
	return user + "worker_processes 2;\npid FOLDER/pid;\nerror_log stderr;\nevents { worker_connections 4096; }\nhttp {\naccess_log off;\nclient_body_temp_path FOLDER/a;\nproxy_temp_path FOLDER/b;\nfastcgi_temp_path FOLDER/c;\nuwsgi_temp_path FOLDER/d;\nscgi_temp_path FOLDER/e;\n" + recipe + "}\n"
}

func nginxArgs(file, _ string) []string { return []string{"-c", file, "-g", "daemon off;"} }

func haproxyConfig(recipe, port, certificate, node string) string {
	return haproxyDefaults + strings.NewReplacer("bind :443", "bind 127.0.0.1:"+port, "/etc/ssl/maps.pem", certificate, "127.0.0.1:8080", node, "127.0.0.1:8443", node).Replace(recipe)
}

func haproxyArgs(file, _ string) []string { return []string{"-f", file, "-db"} }

var proxyPrograms = map[string]proxyProgram{
	"nginx": {"nginx", "nginx", nginxConfig, func(recipe string) string {
		return strings.NewReplacer("location / {", "location /maps/ {", "proxy_pass http://micronode;", "proxy_pass http://micronode/;").Replace(recipe)
	}, nginxArgs},
	"nginx as a cache": {"nginx-cache", "nginx", nginxConfig, nil, nginxArgs},
	"caddy": {"caddy", "caddy", func(recipe, port, certificate, node string) string {
		recipe = strings.NewReplacer("maps.example.org {", "https://localhost:"+port+" {\n\ttls "+certificate+" "+certificate, "127.0.0.1:8080", node).Replace(recipe)
		return "{\n\tadmin off\n\tauto_https off\n}\n" + recipe
	}, func(recipe string) string {
		recipe = strings.Replace(recipe, "\treverse_proxy", "\thandle_path /maps/* {\n\treverse_proxy", 1)
		return strings.TrimSuffix(strings.TrimSpace(recipe), "}") + "}\n}\n"
	}, func(file, _ string) []string { return []string{"run", "--config", file, "--adapter", "caddyfile"} }},
	"haproxy": {"haproxy", "haproxy", haproxyConfig, func(recipe string) string {
		return strings.Replace(recipe, "    default_backend", `    http-request replace-path /maps(/.*) \1`+"\n    default_backend", 1)
	}, haproxyArgs},
	"haproxy with TLS passed on": {"haproxy-tcp", "haproxy", haproxyConfig, nil, haproxyArgs},
}

// start starts the proxy at a port, and returns its URL.
func (p proxyProgram) start(t *testing.T, port, certificate, node string) (url string) {
	t.Helper()
	return p.startWith(t, recipe(t, p.language), port, certificate, node)
}

func (p proxyProgram) startWith(t *testing.T, recipe, port, certificate, node string) (url string) {
	t.Helper()
	var program string
	folder := t.TempDir()
	if p.command == "caddy" {
		var err error
		if program, err = caddyBinary(); err != nil {
			t.Fatal(err)
		}
	} else {
		program = needProgram(t, p.command)
	}
	file := filepath.Join(folder, "proxy.conf")
	text := strings.ReplaceAll(p.config(recipe, port, certificate, node), "FOLDER", folder)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out := new(lockedText)
	command := exec.Command(program, p.args(file, folder)...)
	command.Stdout, command.Stderr, command.Env = out, out, append(os.Environ(), "HOME="+folder, "XDG_DATA_HOME="+folder, "XDG_CONFIG_HOME="+folder)
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	t.Cleanup(func() {
		_ = command.Process.Signal(syscall.SIGTERM)
		<-ended
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
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("%s has ended: %v\n%s", p.command, err, out)
		default:
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

// viewer is a browser's HTTP/2, or as many connections as a browser has. Each has
// an address of its own on this machine: 127.0.1.N.
func viewer(t *testing.T, roots *x509.CertPool, n byte) *http.Client {
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, n)}}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true, MaxConnsPerHost: 6,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return dialer.DialContext(ctx, "tcp4", strings.Replace(address, "localhost", "127.0.0.1", 1))
		}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: time.Minute, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

func fetch(t *testing.T, web *http.Client, url string, header ...string) (status int, body string) {
	t.Helper()
	answer, body := ask(t, web, url, header...)
	if answer == nil {
		return 0, ""
	}
	return answer.StatusCode, body
}

// ask is fetch for those who want to see the header of the answer.
func ask(t *testing.T, web *http.Client, url string, header ...string) (answer *http.Response, body string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range header {
		key, value, _ := strings.Cut(line, ": ")
		request.Header.Add(key, value)
	}
	answer, err = web.Do(request)
	if err != nil {
		t.Error(err)
		return nil, ""
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Error(err)
	}
	return answer, string(text)
}

// forged are headers by which a visitor tries to put another host into URLs. The
// node knows the first host: only the proxy can keep it away.
var forged = [][]string{
	{"X-Forwarded-Host: known.example"},
	{"X-Forwarded-Host: evil.example", "X-Forwarded-For: 127.0.0.1", "X-Forwarded-Proto: http"},
	{"Forwarded: for=127.0.0.1;host=known.example;proto=http"},
	{"Forwarded: for=127.0.1.1;host=evil.example;proto=http", "X-Forwarded-Host: evil.example"},
	{"Forwarded: host=evil.example", "X-Forwarded-For: unknown", "X-Forwarded-Host: known.example, evil.example"},
}

// wantTileJSON reports where TileJSON names another place than url, whatever a
// visitor forges.
func wantTileJSON(t *testing.T, roots *x509.CertPool, url string) {
	t.Helper()
	web := viewer(t, roots, 1)
	for _, header := range append(forged, nil) {
		if status, body := fetch(t, web, url+"/edge/tiles/city.json", header...); status != 200 || !strings.Contains(body, `"`+url+`/edge/tiles/city/{z}/{x}/{y}`) {
			t.Errorf("TileJSON with %q: %d %s", header, status, body)
		}
	}
}

// trusting are the settings of a node behind a proxy of the recipes.
func (p proxyProgram) trusting(certificate string) []string {
	settings := []string{"MICRO_HTTP__PUBLIC=tiles,assets,sites,objects", "MICRO_HTTP__TRUSTED_PROXIES=127.0.0.1", "MICRO_HTTP__HOSTS=known.example"}
	if p.language == "haproxy-tcp" {
		settings = append(settings, "MICRO_HTTP__PROXY_PROTOCOL=true", "MICRO_HTTP__CERT_FILE="+certificate, "MICRO_HTTP__KEY_FILE="+certificate, "MICRO_ADMIN__TLS=off")
	}
	return settings
}

// wantStrangers reports what a stranger may do and should not.
func wantStrangers(t *testing.T, roots *x509.CertPool, url string) {
	t.Helper()
	web := viewer(t, roots, 1)
	for _, path := range []string{"/overlay/peers", "/edge/packs", "/names", "/admin/status", "/metrics"} {
		for _, header := range append(forged, nil) {
			if status, body := fetch(t, web, url+path, header...); status != 401 && status != 403 {
				t.Errorf("a stranger at %s with %q: %d %s", path, header, status, body)
			}
		}
	}
}

// TestBehindProxies runs the recipes of docs/public.md with the real programs:
// URLs are those that the client used, strangers read what is public and nothing
// else, and fifty viewers with sixty tiles each get all of them.
func TestBehindProxies(t *testing.T) {
	binary := buildMicronode(t)
	for name, program := range proxyPrograms {
		t.Run(name, func(t *testing.T) {
			certificate, roots := proxyCertificate(t)
			node := startPublicNode(t, binary, program.trusting(certificate)...)
			url := program.start(t, freePort(t), certificate, node.addr)
			wantTileJSON(t, roots, url)
			wantStrangers(t, roots, url)
			viewTiles(t, roots, url)
		})
	}
}

// TestBelowAPath runs the recipes for a node that is served below a path, with
// http.public_url: TileJSON has the path, its tiles are there, and redirects stay
// below it.
func TestBelowAPath(t *testing.T) {
	binary := buildMicronode(t)
	for name, program := range proxyPrograms {
		if program.below == nil {
			continue
		}
		t.Run(name, func(t *testing.T) {
			certificate, roots := proxyCertificate(t)
			port := freePort(t)
			base := "https://localhost:" + port + "/maps"
			node := startPublicNode(t, binary, append(program.trusting(certificate), "MICRO_HTTP__PUBLIC_URL="+base)...)
			program.startWith(t, program.below(recipe(t, program.language)), port, certificate, node.addr)
			wantTileJSON(t, roots, base)
			wantStrangers(t, roots, base)
			web := viewer(t, roots, 1)
			if status, body := fetch(t, web, base+"/edge/tiles/city/3/1/2"); status != 200 || !strings.HasPrefix(body, "tile 1/2 ") {
				t.Errorf("a tile: %d %.200s", status, body)
			}
			site := filepath.Join(t.TempDir(), "site")
			if err := os.MkdirAll(filepath.Join(site, "guide"), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(site, "guide", "index.html"), []byte("the guide"), 0o600); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.Command(binary, "put", site, "--name", "docs", "--socket", node.socket).CombinedOutput(); err != nil {
				t.Fatalf("put: %v\n%s", err, out)
			}
			answer, _ := ask(t, web, base+"/site/name:docs/guide")
			if at, err := answer.Location(); err != nil || at.String() != base+"/site/name:docs/guide/" {
				t.Fatalf("%d, Location %v, %v", answer.StatusCode, at, err)
			}
			if status, body := fetch(t, web, base+"/site/name:docs/guide/"); status != 200 || body != "the guide" {
				t.Errorf("%d %s", status, body)
			}
		})
	}
}

// TestBehindACDN has a cache in front of the node: it keeps tiles and TileJSON,
// no visitor puts another host into what others read, and nothing that a
// capability was needed for is given to those without one.
func TestBehindACDN(t *testing.T) {
	binary, program := buildMicronode(t), proxyPrograms["nginx as a cache"]
	certificate, roots := proxyCertificate(t)
	node := startPublicNode(t, binary, program.trusting(certificate)...)
	url := program.start(t, freePort(t), certificate, node.addr)
	wantTileJSON(t, roots, url) // the first of them is forged, and the last is read from the cache
	web := viewer(t, roots, 2)
	for _, path := range []string{"/edge/tiles/city.json", "/edge/tiles/city/3/1/2"} {
		first, _ := ask(t, web, url+path)
		again, body := ask(t, web, url+path)
		if again.StatusCode != 200 || again.Header.Get("X-Cache") != "HIT" {
			t.Errorf("%s: %s, then %d %s %s", path, first.Header.Get("X-Cache"), again.StatusCode, again.Header.Get("X-Cache"), body)
		}
	}
	out, err := exec.Command(binary, "token", "mint", "--scope", "admin", "--ttl", "1h", "--socket", node.socket).Output()
	if err != nil {
		t.Fatal(err)
	}
	token := strings.TrimSpace(string(out))
	for _, path := range []string{"/overlay/peers", "/edge/packs", "/admin/status"} {
		if status, body := fetch(t, web, url+path, "Authorization: Bearer "+token); status != 200 {
			t.Errorf("%s with a capability: %d %s", path, status, body)
		}
		if answer, body := ask(t, web, url+path); answer.StatusCode != 401 {
			t.Errorf("%s without one, after a request with one: %d, %s, %s", path, answer.StatusCode, answer.Header.Get("X-Cache"), body)
		}
	}
}

// viewTiles is fifty viewers, each of which asks for sixty tiles at a time.
func viewTiles(t *testing.T, roots *x509.CertPool, url string) {
	t.Helper()
	var viewers sync.WaitGroup
	var tiles atomic.Int64
	for n := range 50 {
		web := viewer(t, roots, byte(n+1))
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
// All its viewers are one client, also for the limits of connections: nginx opens
// one for each request that is under way, and does not wait for one that is
// free, as the others do. With limits that are wide enough for it, all viewers get
// their tiles.
func TestBehindAProxyThatNobodyTrusts(t *testing.T) {
	binary := buildMicronode(t)
	for _, name := range []string{"nginx", "caddy", "haproxy"} {
		t.Run(name, func(t *testing.T) {
			certificate, roots := proxyCertificate(t)
			settings := []string{"MICRO_HTTP__PUBLIC=tiles"}
			if name == "nginx" {
				settings = append(settings, "MICRO_LIMITS__CONNS_PER_IP=4096", "MICRO_LIMITS__OPEN_BURST=4096")
			}
			node := startPublicNode(t, binary, settings...)
			url := proxyPrograms[name].start(t, freePort(t), certificate, node.addr)
			if status, body := fetch(t, viewer(t, roots, 1), url+"/edge/tiles/city.json"); status != 200 || strings.Contains(body, "https://") {
				t.Errorf("%d %s", status, body)
			}
			wantStrangers(t, roots, url)
			viewTiles(t, roots, url)
			for deadline := time.Now().Add(10 * time.Second); !strings.Contains(node.logs.String(), "trusted_proxies"); time.Sleep(10 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatal("the log does not name the proxy")
				}
			}
		})
	}
}
