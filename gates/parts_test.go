//go:build gates

package gates

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"micronode/b3"
	"micronode/client"
	"micronode/fault"
	"micronode/internal/node/nodetest"
)

// splitNode is one node of several processes.
type splitNode struct {
	t              *testing.T
	config         string
	name           string            // of the sockets
	persistFolders map[string]string // the folders of processes that have one
}

// ninePartGroups is which parts run together. The facets whose owners are other
// parts run alone, and so do the owners.
var ninePartGroups = []string{"gateway,store,media", "overlay", "index", "edge", "registry", "mailbox", "graph", "feed", "search"}

// facetNames are the facets, which have to be turned on.
var facetNames = []string{"feed", "graph", "search", "media"}

// newSplitNode writes the configuration that the processes share.
func newSplitNode(t *testing.T, groups []string) *splitNode {
	t.Helper()
	folder := t.TempDir()
	key, root := filepath.Join(folder, "node.key"), filepath.Join(folder, "root.key")
	if out, err := exec.Command(binary, "identity", "new", "--out", key).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := os.WriteFile(root, []byte(strings.Repeat("0123456789abcdef", 4)), 0o600); err != nil {
		t.Fatal(err)
	}
	f := &splitNode{t: t, config: filepath.Join(folder, "node.toml"), name: fmt.Sprintf("micronode-family-%d-%d", os.Getpid(), serial.Add(1)), persistFolders: map[string]string{}}
	text := fmt.Sprintf("[node]\nidentity = %q\n[auth]\nroot = %q\n[node.parts]\n", "file:"+key, "file:"+root)
	for _, group := range groups {
		for part := range strings.SplitSeq(group, ",") {
			text += fmt.Sprintf("%s = %q\n", part, "@"+f.socket(group))
		}
	}
	for _, name := range facetNames {
		text += fmt.Sprintf("[facets.%s]\nenabled = true\n", name)
	}
	if err := os.WriteFile(f.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return f
}

func (s *splitNode) socket(group string) string { return s.name + "." + strings.Split(group, ",")[0] }

// start runs one of the processes. It does not wait for it: it may have to wait
// for others.
func (s *splitNode) start(group string) *process {
	s.t.Helper()
	p := &process{t: s.t, socket: s.socket(group), stderr: &outputBuffer{}, exited: make(chan error, 1)}
	p.command = exec.Command(binary, "run", "--config", s.config, "--only", group, "--socket", p.socket,
		"--http", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--overlay", "127.0.0.1:0")
	if folder := s.persistFolders[group]; folder != "" {
		p.command.Args = append(p.command.Args, "--persist", folder)
	}
	p.command.Stdout, p.command.Stderr = p.stderr, p.stderr
	if err := p.command.Start(); err != nil {
		s.t.Fatal(err)
	}
	go func() { p.exited <- p.command.Wait() }()
	s.t.Cleanup(p.kill)
	return p
}

// startAll runs all of them, the last one first, and waits until they are ready.
func (s *splitNode) startAll(groups []string) map[string]*process {
	s.t.Helper()
	all := map[string]*process{}
	for _, group := range slices.Backward(groups) {
		all[group] = s.start(group)
	}
	for _, group := range groups {
		all[group].awaitReady()
	}
	return all
}

// killPart kills one of them, and returns a function that starts it again.
func (s *splitNode) killPart(all map[string]*process, group string) (again func()) {
	s.t.Helper()
	if err := all[group].command.Process.Kill(); err != nil {
		s.t.Fatal(err)
	}
	<-all[group].exited
	return func() {
		s.t.Helper()
		all[group] = s.start(group)
		all[group].awaitReady()
	}
}

// startConnectedPeer is a whole node that the one under test is connected to.
func startConnectedPeer(t *testing.T, local *client.Client, overlay string) *client.Client {
	t.Helper()
	other := start(t, nil).local()
	status, err := other.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := local.AddPeer(t.Context(), status.PeerID+"@"+status.Listen.Overlay); err != nil {
		t.Fatal(err)
	}
	if _, err := other.AddPeer(t.Context(), overlay); err != nil {
		t.Fatal(err)
	}
	return other
}

// The same script, line by line, against one process and against nine.
func TestNineProcessesAreOneNode(t *testing.T) {
	var on []string
	for _, name := range facetNames {
		on = append(on, "MICRO_FACETS__"+strings.ToUpper(name)+"__ENABLED=true")
	}
	whole := start(t, nil, on...)
	status, err := whole.local().Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := nodetest.Run(t, nodetest.Target{URL: whole.http, Local: whole.local(), Peer: startConnectedPeer(t, whole.local(), status.PeerID+"@"+status.Listen.Overlay), Facets: true})
	whole.stop(syscall.SIGTERM)

	all := newSplitNode(t, ninePartGroups).startAll(ninePartGroups)
	gate := all[ninePartGroups[0]]
	status, err = all["overlay"].local().Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := nodetest.Run(t, nodetest.Target{URL: gate.http, Local: gate.local(), Peer: startConnectedPeer(t, gate.local(), status.PeerID+"@"+status.Listen.Overlay), Facets: true})
	for i := range max(len(want), len(got)) {
		if i >= len(want) || i >= len(got) || want[i] != got[i] {
			t.Fatalf("the transcripts differ in line %d:\n  %q\n  %q", i+1, want[min(i, len(want)-1)], got[min(i, len(got)-1)])
		}
	}
	for _, p := range all {
		p.stop(syscall.SIGTERM)
	}
}

// Each of the processes is killed in turn while requests continue. What needs
// it is rejected with a code and a Retry-After, everything else continues, and
// when it is back so is the whole.
func TestAProcessOfNineIsKilled(t *testing.T) {
	f := newSplitNode(t, ninePartGroups)
	f.persistFolders["mailbox"], f.persistFolders["graph"] = t.TempDir(), t.TempDir()
	all := f.startAll(ninePartGroups)
	gate := all[ninePartGroups[0]]
	object, err := gate.local().Put(t.Context(), strings.NewReader("hello"), client.PutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	gate.prepareFeed("bob", "ann")
	questions := map[string]string{ // something that cannot be answered without a part
		"overlay": "/overlay/peers", "index": "/resolve/" + object.Address.String(), "edge": "/edge/packs", "registry": "/registry/proposals",
		"graph": "/graph/bob", "feed": "/feed/bob", "search": "/search?q=hello",
	}
	owners := map[string][]string{"feed": {"mailbox", "graph"}, "search": {"index"}}
	for _, victim := range ninePartGroups[1:] {
		again := f.killPart(all, victim)
		for part, question := range questions {
			if part == victim || slices.Contains(owners[part], victim) {
				gate.expectRefusal(question)
			} else if status := gate.status(question); status != http.StatusOK {
				t.Errorf("while %s is away, %s answers %d", victim, question, status)
			}
		}
		if status := gate.status("/o/" + object.Address.String()); status != http.StatusOK {
			t.Errorf("while %s is away, an object is %d", victim, status)
		}
		again()
		gate.awaitReady()
		for part, question := range questions {
			all[part].awaitReady()
			if status := gate.status(question); status != http.StatusOK {
				t.Errorf("after %s came back, %s answers %d", victim, question, status)
			}
		}
	}
	if _, err := gate.local().Resolve(t.Context(), object.Address.String(), client.ResolveOptions{}); err != nil {
		t.Error(err)
	}
	absent := b3.Of([]byte("absent")).String()
	if status := gate.status("/edge/assets/" + absent); status != http.StatusNotFound {
		t.Errorf("what nobody has is %d", status)
	}
	for _, p := range all {
		p.stop(syscall.SIGTERM)
	}
}

// While posts go to many followers and feeds are read, the mailbox is killed,
// and the graph. No post is lost or duplicated.
func TestOwnersOfAFeedAreKilled(t *testing.T) {
	const fans, posts = 1500, 30
	groups := []string{"gateway,store,overlay,index,edge,registry,search,media", "mailbox", "graph", "feed"}
	f := newSplitNode(t, groups)
	f.persistFolders["mailbox"], f.persistFolders["graph"] = t.TempDir(), t.TempDir()
	all := f.startAll(groups)
	gate, ctx := all[groups[0]].local(), t.Context()
	fan := func(i int) string { return fmt.Sprintf("fan%04d", i) }
	var following sync.WaitGroup
	for caller := range 8 {
		following.Go(func() {
			for i := caller; i < fans; i += 8 {
				if _, err := gate.Follow(ctx, fan(i), "star"); err != nil {
					t.Error(err)
				}
			}
		})
	}
	following.Wait()

	reading, enough := context.WithCancel(ctx)
	var readers sync.WaitGroup
	var read, refused atomic.Int64
	hasty, err := client.New(client.Options{Socket: all[groups[0]].socket, Retry: client.Retry{Tries: 1}})
	if err != nil {
		t.Fatal(err)
	}
	readers.Go(func() {
		for i := 0; reading.Err() == nil; i++ {
			feed, err := hasty.Feed(reading, fan(i%fans), client.FeedOptions{Limit: 100})
			switch kind := fault.KindOf(err); {
			case err == nil:
				read.Add(1)
				distinctBodies(t, feed)
			case reading.Err() == nil && kind != fault.NotReady && kind != fault.UpstreamFailed:
				t.Errorf("who reads is told %v", err)
			default:
				refused.Add(1)
			}
		}
	})
	want := map[string]bool{}
	back := func() {}
	for i := range posts {
		switch i {
		case 8:
			back = f.killPart(all, "mailbox")
		case 18:
			back = f.killPart(all, "graph")
		}
		if i == 8 { // nothing can be posted without a mailbox; without a graph it can
			back()
		}
		body := fmt.Sprint("post ", i)
		want[body] = true
		for try := 0; ; try++ { // with the same key, so that it is one post
			if _, err := gate.Post(ctx, "star", body, client.PostOptions{Key: body}); err == nil {
				break
			} else if try == 20 {
				t.Fatal(err)
			}
		}
		if i == 24 {
			back()
		}
	}
	for _, user := range []string{"star", fan(0), fan(511), fan(512), fan(1023), fan(1024), fan(fans - 1)} {
		var got map[string]bool
		for deadline := time.Now().Add(90 * time.Second); len(got) < len(want) && time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
			if feed, err := gate.Feed(ctx, user, client.FeedOptions{Limit: 100}); err == nil {
				got = distinctBodies(t, feed)
			}
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s has %d of %d posts", user, len(got), len(want))
		}
	}
	enough()
	readers.Wait()
	if dead, err := gate.DeadMail(ctx, "facet/feed", "", 10); err != nil || len(dead.Messages) > 0 {
		t.Errorf("dead letters: %+v, %v", dead, err)
	}
	t.Logf("feeds were read %d times and refused %d times", read.Load(), refused.Load())
	for _, p := range all {
		p.stop(syscall.SIGTERM)
	}
}

// All processes but the first hang. A request to one of them fails at the
// deadline; what the first one has is served; and when they resume, so does the
// node.
func TestPartsThatHang(t *testing.T) {
	rounds := 1
	if isLong() {
		rounds = 10
	}
	family := newSplitNode(t, ninePartGroups).startAll(ninePartGroups)
	gate := family[ninePartGroups[0]]
	object, err := gate.local().Put(t.Context(), strings.NewReader("hello"), client.PutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	token, host := gate.token(allScopes...), strings.TrimPrefix(gate.http, "http://")
	late := func(method, path, body string) blockingRequest {
		return blockingRequest{method: method, path: path, body: body, status: http.StatusGatewayTimeout, code: "Timeout"}
	}
	waits := []blockingRequest{
		late("GET", "/overlay/peers", ""), late("POST", "/overlay/publish/news", "hello"), late("GET", "/resolve/"+testAddress("hang", 0).String(), ""), late("GET", "/names", ""),
		late("GET", "/edge/packs", ""), late("GET", "/edge/assets/"+testAddress("hang", 1).String(), ""),
		late("GET", "/registry/proposals", ""), late("POST", "/mbox/recv", `{"box":"jobs"}`), late("GET", "/mbox/dlq?box=jobs", ""),
		late("GET", "/feed/ann", ""), late("GET", "/graph/ann", ""), late("GET", "/search?q=hello", ""),
	}
	others := func(do func(*process)) {
		for _, group := range ninePartGroups[1:] {
			do(family[group])
		}
	}
	retryMeasurement(t, func() error {
		others((*process).suspend)
		defer others((*process).resume)
		list := sendAll(host, token, waits, rounds)
		if status := gate.status("/o/" + object.Address.String()); status != http.StatusOK {
			return fmt.Errorf("while the others hang, an object is %d", status)
		}
		return checkDeadlines(t, list)
	})
	gate.awaitReady()
	for _, path := range []string{"/overlay/peers", "/edge/packs", "/registry/proposals", "/names"} {
		if status := gate.status(path); status != http.StatusOK {
			t.Errorf("when all go on, %s answers %d", path, status)
		}
	}
	for _, p := range family {
		p.stop(syscall.SIGTERM)
	}
}

// suspend stops a process, and waits until none of its threads runs: for a
// moment after the signal, one may still answer.
func (p *process) suspend() {
	p.t.Helper()
	if err := p.command.Process.Signal(syscall.SIGSTOP); err != nil {
		p.t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); !p.suspended(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			p.t.Fatal("a process that was stopped still runs")
		}
	}
}

// resume continues it.
func (p *process) resume() {
	p.t.Helper()
	if err := p.command.Process.Signal(syscall.SIGCONT); err != nil {
		p.t.Fatal(err)
	}
}

// suspended reports whether the kernel has stopped every thread.
func (p *process) suspended() bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.command.Process.Pid)) // the pattern is right
	for _, thread := range threads {
		stat, err := os.ReadFile(thread)
		if err != nil {
			return false
		}
		if _, state, _ := bytes.Cut(stat, []byte(") ")); !bytes.HasPrefix(state, []byte("T")) {
			return false
		}
	}
	return len(threads) > 0
}

// distinctBodies is the content of a feed, which must have no duplicates.
func distinctBodies(t *testing.T, feed client.Feed) map[string]bool {
	t.Helper()
	got := map[string]bool{}
	for _, item := range feed.Items {
		if got[item.Body] {
			t.Errorf("%s has %q twice", feed.User, item.Body)
		}
		got[item.Body] = true
	}
	return got
}

// prepareFeed makes one user follow another, and waits for a post of that one.
// A feed with nothing in it can be read without a graph.
func (p *process) prepareFeed(reader, author string) {
	p.t.Helper()
	c, ctx := p.local(), p.t.Context()
	_, followed := c.Follow(ctx, reader, author)
	_, posted := c.Post(ctx, author, "hello", client.PostOptions{})
	if err := errors.Join(followed, posted); err != nil {
		p.t.Fatal(err)
	}
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		feed, err := c.Feed(ctx, reader, client.FeedOptions{})
		if err == nil && len(feed.Items) == 1 {
			return
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("%s reads %+v, %v", reader, feed, err)
		}
	}
}

// status is that of the answer to a GET.
func (p *process) status(path string) int {
	p.t.Helper()
	answer := p.read(path)
	_, _ = io.Copy(io.Discard, answer.Body)
	answer.Body.Close()
	return answer.StatusCode
}

// read sends a GET with a capability, as reads of the inside need one.
func (p *process) read(path string) *http.Response {
	p.t.Helper()
	request, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, p.http+path, http.NoBody)
	if err != nil {
		p.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+p.token("edge:purge"))
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		p.t.Fatal(err)
	}
	return answer
}

// expectRefusal makes a request that cannot be answered now, and checks the
// error. It is none that comes at a deadline, so it did not take until then. The first request may find a connection that has just been closed.
func (p *process) expectRefusal(path string) {
	p.t.Helper()
	for range 3 {
		answer := p.read(path)
		var problem struct{ Code, Next string }
		err := json.NewDecoder(answer.Body).Decode(&problem)
		answer.Body.Close()
		if err != nil || problem.Code != "NotReady" && problem.Code != "UpstreamFailed" || problem.Next == "" || answer.Header.Get("Retry-After") == "" {
			p.t.Errorf("%s: %d %+v, Retry-After %q, %v", path, answer.StatusCode, problem, answer.Header.Get("Retry-After"), err)
		}
	}
}
