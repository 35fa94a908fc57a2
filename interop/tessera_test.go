package interop

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"

	"micronode/client"
)

// TestTessera has Tessera's fsck read the log of a real node, knowing nothing
// but the log's key. It rebuilds the tree from the entries and compares every
// tile and the signed checkpoint with it.
func TestTessera(t *testing.T) {
	folder := t.TempDir()
	fsck, binary := filepath.Join(folder, "fsck"), filepath.Join(folder, "micronode")
	for _, line := range [][]string{
		{"build", "-C", "fsck", "-o", fsck, "github.com/transparency-dev/tessera/cmd/fsck"},
		{"build", "-C", "..", "-o", binary, "./cmd/micronode"},
	} {
		if out, err := exec.Command("go", line...).CombinedOutput(); err != nil {
			t.Fatalf("go %v: %v\n%s", line, err, out)
		}
	}
	for name, test := range map[string]func(*testing.T, string, string){
		"in memory": tesseraInMemory,
		"on disk":   tesseraOnDisk,
	} {
		t.Run(name, func(t *testing.T) { test(t, binary, fsck) })
	}
}

// tesseraInMemory also shows that fsck detects every file in which a byte is
// changed: otherwise its success with the others would mean nothing.
func tesseraInMemory(t *testing.T, binary, fsck string) {
	l := startLog(t, binary)
	l.commit(2*256 + 70)
	copied := l.copyThroughFsck(fsck)
	wantFiles(t, copied, "checkpoint", "tile/0/000", "tile/0/001", "tile/0/002.p/71", "tile/1/000.p/2", "tile/entries/000", "tile/entries/001", "tile/entries/002.p/71")
	l.wantNote(copied["checkpoint"])
	l.wantChangesFound(fsck, copied)
}

// tesseraOnDisk stops the node where no tile is full, where one is, and later.
// What it serves afterwards comes from files.
func tesseraOnDisk(t *testing.T, binary, fsck string) {
	folder := t.TempDir()
	l := startLog(t, binary, "--persist", folder)
	first := l.key
	for _, versions := range []int{100, 155, 1, 290} { // with the first version: 101, 256, 257, 547
		l.commit(versions)
		before := l.copyThroughFsck(fsck)
		l.restart("--persist", folder)
		if after := l.copyThroughFsck(fsck); !maps.EqualFunc(before, after, bytes.Equal) {
			t.Errorf("after a restart with %d versions more, what fsck reads is different", versions)
		}
	}
	if l.key != first {
		t.Errorf("the log's key was %v, and is %v", first, l.key)
	}
	if size := l.copyThroughFsck(fsck); !strings.Contains(string(size["checkpoint"]), "\n547\n") {
		t.Errorf("the checkpoint of 547 versions is\n%s", size["checkpoint"])
	}
}

// nodeLog is the log of a node that runs.
type nodeLog struct {
	*micronode
	url         string
	key         client.RegistryLogKey
	signers     []ed25519.PrivateKey
	changeCount int // so far
}

// startLog starts a node whose registry requires two of three.
func startLog(t *testing.T, binary string, arguments ...string) *nodeLog {
	t.Helper()
	l := &nodeLog{micronode: &micronode{t: t, binary: binary}}
	l.run(arguments)
	first := client.InitRequest{M: 2}
	for i := range 3 {
		key := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{byte(i + 1)}, ed25519.SeedSize))
		l.signers = append(l.signers, key)
		public := base64.StdEncoding.EncodeToString(key.Public().(ed25519.PublicKey))
		first.Keys = append(first.Keys, client.RegistryKey{SignerID: fmt.Sprint("signer-", i), Public: "ed25519:" + public})
	}
	made, err := l.dial("admin").InitRegistry(t.Context(), first)
	if err != nil {
		t.Fatal(err)
	}
	l.readKey()
	if l.key.Key != made.Key || l.key.Registry != made.Registry {
		t.Errorf("the registry was begun as %+v and says %+v", made, l.key)
	}
	return l
}

// run starts the node's process.
func (l *nodeLog) run(arguments []string) {
	l.t.Helper()
	l.output, l.ended = &bytes.Buffer{}, make(chan error, 1)
	l.socket = fmt.Sprintf("micronode-interop-%d-%d", os.Getpid(), time.Now().UnixNano())
	l.process = exec.Command(l.binary, append([]string{"run", "--http", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--overlay", "127.0.0.1:0", "--socket", l.socket}, arguments...)...)
	l.process.Env = append(os.Environ(), "MICRO_LIMITS__RATE=1000000", "MICRO_LIMITS__BURST=1000000", "MICRO_LIMITS__WORK_RATE=1000000")
	l.process.Stdout, l.process.Stderr = l.output, l.output
	if err := l.process.Start(); err != nil {
		l.t.Fatal(err)
	}
	ended, process := l.ended, l.process
	go func() { ended <- process.Wait() }()
	l.t.Cleanup(l.kill)
	l.do("status", "--wait", "30s")
	var status struct{ Listen struct{ HTTP string } }
	if err := json.Unmarshal([]byte(l.do("status", "--json")), &status); err != nil {
		l.t.Fatal(err)
	}
	l.url = "http://" + status.Listen.HTTP
}

// restart stops the node as an operator would, and starts it again.
func (l *nodeLog) restart(arguments ...string) {
	l.t.Helper()
	l.signal(syscall.SIGTERM)
	if err := l.wait(); err != nil {
		l.t.Fatalf("the node ended with %v\n%s", err, l.output)
	}
	l.run(arguments)
	l.readKey()
}

// dial is a client over HTTP with some capabilities.
func (l *nodeLog) dial(scopes ...string) *client.Client {
	l.t.Helper()
	line := []string{"token", "mint", "--ttl", "10m"}
	for _, scope := range scopes {
		line = append(line, "--scope", scope)
	}
	c, err := client.New(client.Options{URL: l.url, Token: strings.TrimSpace(l.do(line...))})
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(c.Close)
	return c
}

func (l *nodeLog) readKey() {
	l.t.Helper()
	var err error
	if l.key, err = l.dial("admin").RegistryLogKey(l.t.Context()); err != nil {
		l.t.Fatal(err)
	}
}

// commit makes n versions, several at a time. Two of the three sign each, not
// always the same ones.
func (l *nodeLog) commit(versions int) {
	l.t.Helper()
	node := l.dial("registry:propose", "registry:approve", "registry:commit")
	numbers := make(chan int)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for n := range numbers {
				if err := l.change(l.t.Context(), node, n); err != nil {
					l.t.Errorf("change %d: %v", n, err)
				}
			}
		})
	}
	for range versions {
		l.changeCount++
		numbers <- l.changeCount
	}
	close(numbers)
	all.Wait()
	if l.t.Failed() {
		l.t.FailNow()
	}
}

// change proposes, approves and commits.
func (l *nodeLog) change(ctx context.Context, node *client.Client, n int) error {
	op := fmt.Sprintf(`{"op":"put","item":{"kind":"name","id":"name-%d","manifest":"b3:%064x"}}`, n, n)
	proposed, err := node.Propose(ctx, client.ProposalRequest{SchemaVersion: "1.0.0", Ops: []json.RawMessage{json.RawMessage(op)}})
	if err != nil {
		return err
	}
	for i := range 2 {
		who := (n + i) % len(l.signers)
		_, err := node.Approve(ctx, proposed.ProposalID, client.Approval{SignerID: fmt.Sprint("signer-", who), Algo: "ed25519",
			Sig: ed25519.Sign(l.signers[who], proposed.SignThis), SignedAt: time.Now()})
		if err != nil {
			return err
		}
	}
	_, err = node.Commit(ctx, proposed.ProposalID)
	return err
}

// files is what is served below the log's URL, by path.
type files map[string][]byte

// copyThroughFsck has fsck check the node's log, which must succeed, and keeps
// a copy of all that it requested.
func (l *nodeLog) copyThroughFsck(fsck string) files {
	l.t.Helper()
	var mu sync.Mutex
	copied := files{}
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, err := http.Get(l.url + "/registry/log" + r.URL.Path)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer func() { _ = answer.Body.Close() }()
		body, err := io.ReadAll(answer.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		if answer.StatusCode == http.StatusOK {
			mu.Lock()
			copied[strings.TrimPrefix(r.URL.Path, "/")] = body
			mu.Unlock()
		}
		w.WriteHeader(answer.StatusCode)
		_, _ = w.Write(body)
	}))
	defer proxy.Close()
	for _, url := range []string{l.url + "/registry/log/", proxy.URL} {
		if said, held := l.fsck(fsck, url); !held {
			l.t.Fatalf("fsck says of the log of %d changes:\n%s", l.changeCount, said)
		}
	}
	return copied
}

// fsck runs Tessera's fsck against a URL. Its exit code says nothing, so what
// counts is what it prints. It has more workers than there are tiles: a worker
// ends at the first tile that is wrong, and with fewer the rest would wait for
// it forever.
func (l *nodeLog) fsck(fsck, url string) (said string, held bool) {
	l.t.Helper()
	key := filepath.Join(l.t.TempDir(), "key")
	if err := os.WriteFile(key, []byte(l.key.Key), 0o600); err != nil {
		l.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(l.t.Context(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, fsck, "-ui=false", "-N=16", "-storage_url", url, "-public_key", key).CombinedOutput()
	succeeded, failed := bytes.Contains(out, []byte("Successfully fsck'd log")), bytes.Contains(out, []byte("fsck failed"))
	if err != nil || succeeded == failed {
		l.t.Fatalf("fsck says neither that it holds nor that it does not: %v\n%s", err, out)
	}
	return string(out), succeeded
}

func wantFiles(t *testing.T, got files, want ...string) {
	t.Helper()
	if names := slices.Sorted(maps.Keys(got)); !slices.Equal(names, want) {
		t.Errorf("fsck asked for %q, want %q", names, want)
	}
}

// wantNote reads the checkpoint with Go's own package for signed notes, and
// with the key that the node publishes. A change of any signed byte must be
// detected.
func (l *nodeLog) wantNote(checkpoint []byte) {
	l.t.Helper()
	verifier, err := note.NewVerifier(l.key.Key)
	if err != nil {
		l.t.Fatal(err)
	}
	known := note.VerifierList(verifier)
	opened, err := note.Open(checkpoint, known)
	if err != nil {
		l.t.Fatalf("%v in\n%s", err, checkpoint)
	}
	lines := strings.Split(opened.Text, "\n")
	if verifier.Name() != l.key.Origin || lines[0] != l.key.Origin || lines[1] != fmt.Sprint(l.changeCount+1) || len(opened.Sigs) != 1 {
		l.t.Errorf("the checkpoint of %d changes of %s is\n%s", l.changeCount, l.key.Origin, checkpoint)
	}
	if root, err := base64.StdEncoding.DecodeString(lines[2]); err != nil || len(root) != 32 {
		l.t.Errorf("the root is %q: %v", lines[2], err)
	}
	for at := range opened.Text {
		if _, err := note.Open(flipByte(checkpoint, at), known); err == nil {
			l.t.Errorf("byte %d of the checkpoint is another, and it is still good", at)
		}
	}
}

// wantChangesFound serves the copy, which is valid, and then copies of it in
// each of which one byte is changed.
func (l *nodeLog) wantChangesFound(fsck string, copied files) {
	l.t.Helper()
	var mu sync.Mutex
	served := copied
	serve := func(what files) {
		mu.Lock()
		defer mu.Unlock()
		served = what
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		body, ok := served[strings.TrimPrefix(r.URL.Path, "/")]
		mu.Unlock()
		if !ok {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write(body)
	}))
	defer server.Close()
	if said, held := l.fsck(fsck, server.URL); !held {
		l.t.Fatalf("a copy that is not changed:\n%s", said)
	}
	for path, body := range copied {
		for _, at := range []int{0, len(body) / 3, len(body) / 2, len(body) - 1 - len(body)/5} {
			damaged := maps.Clone(copied)
			damaged[path] = flipByte(body, at)
			serve(damaged)
			if said, held := l.fsck(fsck, server.URL); held {
				l.t.Errorf("byte %d of %s is another, and fsck says\n%s", at, path, said)
			}
		}
	}
}

// flipByte is a copy in which one byte is changed.
func flipByte(body []byte, at int) []byte {
	other := bytes.Clone(body)
	other[at] ^= 1
	return other
}
