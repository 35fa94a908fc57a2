package peers

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"micronode/b3"
	"micronode/bench/load"
	"micronode/bench/testbed"
)

func newTestbed(t *testing.T) *testbed.Testbed {
	t.Helper()
	g, err := testbed.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	return g
}

func TestObjects(t *testing.T) {
	objects, again, other := Objects(100, 64, 1), Objects(100, 64, 1), Objects(100, 64, 2)
	seen := map[b3.Address]bool{}
	for i, object := range objects {
		if len(object.Body) != 64 || b3.Of(object.Body) != object.Address {
			t.Errorf("object %d: %d bytes at %s", i, len(object.Body), object.Address)
		}
		if again[i].Address != object.Address {
			t.Errorf("object %d differs the second time", i)
		}
		seen[object.Address], seen[other[i].Address] = true, true
	}
	if len(seen) != 200 {
		t.Errorf("%d different objects, want 200", len(seen))
	}
}

// Each exchange is sent once, whatever connection is faster.
func TestEach(t *testing.T) {
	script := Each(10, 3, func(i int) load.Exchange { return load.Exchange{Status: i} })
	var sent []int
	for _, connection := range []int{2, 2, 2, 2, 0, 1, 0, 1, 0, 1, 0, 1, 0} {
		if exchange, more := script(connection); more {
			sent = append(sent, exchange.Status)
		}
	}
	slices.Sort(sent)
	if !slices.Equal(sent, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}) {
		t.Errorf("sent %v", sent)
	}
}

func TestRequestsAreWellFormed(t *testing.T) {
	raw := request("POST", "/put", "127.0.0.1:1", []string{"Authorization: Bearer x"}, []byte("hello"))
	r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(raw)))
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(r.Body)
	if r.Method != "POST" || r.URL.Path != "/put" || r.Host != "127.0.0.1:1" || r.Header.Get("Authorization") != "Bearer x" || string(body) != "hello" {
		t.Errorf("%+v with %q", r, body)
	}
}

// The peers that need nothing but Debian and this repository do what the rows
// require of them: hold objects, return them, store new ones, remove them.
func TestRealPeers(t *testing.T) {
	for _, peer := range []Peer{Micronode(), Bare(), Nginx()} {
		t.Run(peer.Name, func(t *testing.T) {
			ctx, objects := t.Context(), Objects(20, 1000, 7)
			server, err := peer.Start(ctx, newTestbed(t), objects[:10])
			if err != nil {
				t.Fatal(err)
			}
			if err := server.Fetch(ctx, objects[:10]); err != nil {
				t.Errorf("fetching what it was started with: %v", err)
			}
			if server.Put == nil {
				return
			}
			if err := server.Store(ctx, objects[10:]); err != nil {
				t.Errorf("storing: %v", err)
			}
			if err := server.Clear(ctx, objects[10:]); err != nil {
				t.Errorf("removing: %v", err)
			}
			if err := server.Fetch(ctx, objects[10:]); err == nil {
				t.Error("what was removed is still there")
			}
		})
	}
}

func TestStartToReady(t *testing.T) {
	g := newTestbed(t)
	if err := Prepare(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	process, err := StartToReady(t.Context(), g)
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Stop(); err != nil {
		t.Error(err)
	}
}

// Nginx can be started with nothing to serve.
func TestNginxWithoutObjects(t *testing.T) {
	if _, err := Nginx().Start(t.Context(), newTestbed(t), nil); err != nil {
		t.Error(err)
	}
}

// kuboScript simulates Kubo: it records its arguments, and prints what the
// daemon prints when it listens.
const kuboScript = `#!/bin/sh
echo "$@" >> "$IPFS_PATH/../told"
echo "telemetry $IPFS_TELEMETRY" >> "$IPFS_PATH/../told"
test "$1" = daemon || exit 0
echo "RPC API server listening on /ip4/127.0.0.1/tcp/%[1]s"
echo "Gateway server listening on /ip4/127.0.0.1/tcp/%[1]s"
echo "Daemon is ready"
sleep 600
`

// newFakeRepository is a folder with programs that replace the real ones.
func newFakeRepository(t *testing.T, files map[string]string) {
	t.Helper()
	root := t.TempDir()
	files["temp/marker"] = ""
	files["tools/need"] = "#!/bin/sh\necho missing: $1 >&2\nexit 1\n"
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(root)
	t.Setenv("TMPDIR", filepath.Join(root, "temp"))
}

// Kubo is configured to make no outgoing connections, and is used as its API
// requires.
func TestKuboStaysAtHome(t *testing.T) {
	object := Objects(1, 1000, 7)[0]
	var stored, fetched atomic.Int64
	daemon := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && r.URL.Path == "/ipfs/"+object.Address.CID() {
			fetched.Add(1)
			_, _ = w.Write(object.Body)
			return
		}
		file, _, err := r.FormFile("file")
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		body, _ := io.ReadAll(file)
		if bytes.Equal(body, object.Body) && r.URL.Query().Get("mhtype") == "blake3" {
			stored.Add(1)
		}
		fmt.Fprintf(w, `{"Key":%q}`, object.Address.CID())
	}))
	defer daemon.Close()
	_, port, _ := strings.Cut(daemon.Listener.Addr().String(), ":")
	newFakeRepository(t, map[string]string{".build/peers/kubo-" + kuboVersion: fmt.Sprintf(kuboScript, port)})
	g := newTestbed(t)
	server, err := Kubo().Start(t.Context(), g, []Object{object})
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Fetch(t.Context(), []Object{object}); err != nil {
		t.Error(err)
	}
	if stored.Load() != 1 || fetched.Load() != 1 {
		t.Errorf("stored %d, fetched %d", stored.Load(), fetched.Load())
	}
	found, _ := filepath.Glob("temp/micronode-bench-*/told")
	calls, _ := os.ReadFile(append(found, "told")[0])
	for _, want := range []string{"autoconf-off", "Addresses.Swarm []", "tcp/0", "telemetry off", "daemon --offline"} {
		if !strings.Contains(string(calls), want) {
			t.Errorf("not told %q:\n%s", want, calls)
		}
	}
}

// A peer that cannot be started reports why.
func TestPeersThatCannotStart(t *testing.T) {
	newFakeRepository(t, map[string]string{".build/peers/kubo-" + kuboVersion: "#!/bin/sh\necho no room; exit 1\n"})
	for _, peer := range []Peer{Micronode(), Bare(), Kubo()} {
		if _, err := peer.Start(t.Context(), newTestbed(t), nil); err == nil {
			t.Errorf("%s started", peer.Name)
		}
	}
	if err := Prepare(t.Context(), newTestbed(t)); err == nil {
		t.Error("built a node out of nothing")
	}
	if _, err := StartToReady(t.Context(), newTestbed(t)); err == nil {
		t.Error("started a node out of nothing")
	}
}

// A daemon that ends before it listens is not waited for.
func TestKuboThatDies(t *testing.T) {
	for _, says := range []string{"", "echo Daemon is ready\n", "echo Daemon is ready\necho RPC API server listening on /ip4/127.0.0.1/tcp/1\n"} {
		newFakeRepository(t, map[string]string{".build/peers/kubo-" + kuboVersion: "#!/bin/sh\ntest $1 = daemon || exit 0\n" + says})
		if _, err := Kubo().Start(t.Context(), newTestbed(t), nil); err == nil || !strings.Contains(err.Error(), "ended before it was ready") {
			t.Errorf("after %q: %v", says, err)
		}
	}
}

// fakeNode is a program that behaves like micronode, controlled by the
// environment.
const fakeNode = `package main

import (
	"fmt"
	"os"
	"time"
)

func main() {
	if os.Args[1] == "run" {
		fmt.Println(os.Getenv("FAKE_BANNER"))
		if os.Getenv("FAKE_BANNER") != "" {
			time.Sleep(10 * time.Minute)
		}
	}
	fmt.Println(os.Getenv("FAKE_" + os.Args[1]))
	if os.Getenv("FAKE_"+os.Args[1]) == "" {
		os.Exit(1)
	}
}
`

// If a node does not answer a request, starting it fails with that error.
func TestANodeThatDoesNotAnswer(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	newFakeRepository(t, map[string]string{"go.mod": "module micronode\n\ngo 1.26\n", "cmd/micronode/main.go": fakeNode})
	for _, c := range []struct{ banner, status, says string }{
		{"", "", "ended before it was ready"},
		{server.URL, "", "status --json"},
		{server.URL, "not JSON", "the status of the node"},
		{server.URL, `{"listen":{"http":"127.0.0.1:1"}}`, "token mint"},
	} {
		t.Setenv("FAKE_BANNER", c.banner)
		t.Setenv("FAKE_status", c.status)
		if _, err := Micronode().Start(t.Context(), newTestbed(t), nil); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("said %v, want %q", err, c.says)
		}
	}
}

// The installation of nginx starts a service. That one is stopped, by its id;
// one that ran before is left alone.
func TestTheServiceThatAnInstallationStarts(t *testing.T) {
	installs := `#!/bin/sh
printf '#!/bin/sh\nsleep 600\n' > bin/nginx && chmod +x bin/nginx
test "$2" = nginx-light && test -n "$START" || exit 0
sleep 600 > /dev/null 2>&1 &
echo $! > service
`
	for _, starts := range []string{"", "yes"} {
		newFakeRepository(t, map[string]string{"bin/marker": ""})
		if err := os.WriteFile("tools/need", []byte(installs), 0o755); err != nil {
			t.Fatal(err)
		}
		root, _ := os.Getwd()
		for _, tool := range []string{"sh", "sleep", "chmod"} {
			path, err := exec.LookPath(tool)
			if err == nil {
				err = os.Symlink(path, filepath.Join("bin", tool))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		t.Run("starts "+starts, func(t *testing.T) {
			t.Setenv("PATH", filepath.Join(root, "bin"))
			t.Setenv("START", starts)
			file := serviceFile
			serviceFile = filepath.Join(root, "service")
			defer func() { serviceFile = file }()
			path, err := findNginx(t.Context(), newTestbed(t))
			if err != nil || path != filepath.Join(root, "bin", "nginx") {
				t.Fatalf("found %q, %v", path, err)
			}
			for servicePID() != 0 && !hasExited(servicePID()) { // it was terminated; the kernel may take a moment
			}
		})
	}
}

// hasExited reports whether a process has ended, reaped or not.
func hasExited(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(stat), ") Z ")
}

func TestNginxThatIsMissing(t *testing.T) {
	newFakeRepository(t, map[string]string{})
	g := newTestbed(t)
	t.Setenv("PATH", "/nowhere")
	if _, err := Nginx().Start(t.Context(), g, nil); err == nil {
		t.Error("nginx started although it is not there")
	}
}

func TestAwaitOKEndsWithTheContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		cancel()
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer server.Close()
	if err := awaitOK(ctx, server.URL); err == nil {
		t.Error("a server that is not ready was taken for ready")
	}
}
