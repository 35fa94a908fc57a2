//go:build gates

package gates

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"micronode/b3"
	"micronode/client"
	"micronode/internal/node/nodetest"
)

// family is one node of several processes.
type family struct {
	t      *testing.T
	config string
	name   string // of the sockets
}

// fiveProcesses is which parts run together.
var fiveProcesses = []string{"gateway,store", "overlay", "index", "edge", "registry,mailbox"}

// newFamily writes what the processes have in common.
func newFamily(t *testing.T) *family {
	t.Helper()
	folder := t.TempDir()
	key, root := filepath.Join(folder, "node.key"), filepath.Join(folder, "root.key")
	if out, err := exec.Command(binary, "identity", "new", "--out", key).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := os.WriteFile(root, []byte(strings.Repeat("0123456789abcdef", 4)), 0o600); err != nil {
		t.Fatal(err)
	}
	f := &family{t: t, config: filepath.Join(folder, "node.toml"), name: fmt.Sprintf("micronode-family-%d-%d", os.Getpid(), serial.Add(1))}
	text := fmt.Sprintf("[node]\nidentity = %q\n[auth]\nroot = %q\n[node.parts]\n", "file:"+key, "file:"+root)
	for _, group := range fiveProcesses {
		for part := range strings.SplitSeq(group, ",") {
			text += fmt.Sprintf("%s = %q\n", part, "@"+f.socket(group))
		}
	}
	if err := os.WriteFile(f.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *family) socket(group string) string { return f.name + "." + strings.Split(group, ",")[0] }

// start runs one of the processes. It does not wait for it: it may have to wait
// for others.
func (f *family) start(group string) *process {
	f.t.Helper()
	p := &process{t: f.t, socket: f.socket(group), stderr: &log{}, exited: make(chan error, 1)}
	p.command = exec.Command(binary, "run", "--config", f.config, "--only", group, "--socket", p.socket,
		"--http", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--overlay", "127.0.0.1:0")
	p.command.Stdout, p.command.Stderr = p.stderr, p.stderr
	if err := p.command.Start(); err != nil {
		f.t.Fatal(err)
	}
	go func() { p.exited <- p.command.Wait() }()
	f.t.Cleanup(p.kill)
	return p
}

// company is a whole node that the one under test is connected to.
func company(t *testing.T, local *client.Client, overlay string) *client.Client {
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

// The same script, line by line, against one process and against five.
func TestFiveProcessesAreOneNode(t *testing.T) {
	whole := start(t, nil)
	status, err := whole.local().Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := nodetest.Run(t, nodetest.Target{URL: whole.http, Local: whole.local(), Peer: company(t, whole.local(), status.PeerID+"@"+status.Listen.Overlay)})
	whole.stop(syscall.SIGTERM)

	f := newFamily(t)
	all := map[string]*process{}
	for _, group := range slices.Backward(fiveProcesses) {
		all[group] = f.start(group)
	}
	for _, group := range fiveProcesses {
		all[group].awaitReady()
	}
	gate := all[fiveProcesses[0]]
	status, err = all["overlay"].local().Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := nodetest.Run(t, nodetest.Target{URL: gate.http, Local: gate.local(), Peer: company(t, gate.local(), status.PeerID+"@"+status.Listen.Overlay)})
	for i := range max(len(want), len(got)) {
		if i >= len(want) || i >= len(got) || want[i] != got[i] {
			t.Fatalf("the transcripts differ in line %d:\n  %q\n  %q", i+1, want[min(i, len(want)-1)], got[min(i, len(got)-1)])
		}
	}
	for _, p := range all {
		p.stop(syscall.SIGTERM)
	}
}

// Each of the processes is killed in turn while requests go on. What needs it is
// refused with a code and a time, everything else goes on, and when it is back so
// is the whole.
func TestAProcessOfFiveIsKilled(t *testing.T) {
	f := newFamily(t)
	all := map[string]*process{}
	for _, group := range fiveProcesses {
		all[group] = f.start(group)
	}
	for _, group := range fiveProcesses {
		all[group].awaitReady()
	}
	gate := all[fiveProcesses[0]]
	object, err := gate.local().Put(t.Context(), strings.NewReader("hello"), client.PutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	questions := map[string]string{ // of each part, something that only it can answer
		"overlay": "/overlay/peers", "index": "/resolve/" + object.Address.String(), "edge": "/edge/packs", "registry,mailbox": "/registry/proposals",
	}
	for victim, question := range questions {
		if err := all[victim].command.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		<-all[victim].exited
		gate.refuses(question)
		for part, other := range questions {
			if status := gate.status(other); part != victim && status != http.StatusOK {
				t.Errorf("while %s is away, %s answers %d", victim, other, status)
			}
		}
		if status := gate.status("/o/" + object.Address.String()); status != http.StatusOK {
			t.Errorf("while %s is away, an object is %d", victim, status)
		}
		all[victim] = f.start(victim)
		all[victim].awaitReady()
		gate.awaitReady()
		if status := gate.status(question); status != http.StatusOK {
			t.Errorf("after %s came back, %s answers %d", victim, question, status)
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

// status is that of the answer to a GET.
func (p *process) status(path string) int {
	p.t.Helper()
	answer, err := http.Get(p.http + path)
	if err != nil {
		p.t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, answer.Body)
	answer.Body.Close()
	return answer.StatusCode
}

// refuses asks for something that cannot be answered now, and looks at how that
// is said. The first who asks may find a connection that has just been cut.
func (p *process) refuses(path string) {
	p.t.Helper()
	for range 3 {
		begun := time.Now()
		answer, err := http.Get(p.http + path)
		if err != nil {
			p.t.Fatal(err)
		}
		var problem struct{ Code, Next string }
		err = json.NewDecoder(answer.Body).Decode(&problem)
		answer.Body.Close()
		if err != nil || problem.Code != "NotReady" && problem.Code != "UpstreamFailed" || problem.Next == "" || answer.Header.Get("Retry-After") == "" {
			p.t.Errorf("%s: %d %+v, Retry-After %q, %v", path, answer.StatusCode, problem, answer.Header.Get("Retry-After"), err)
		}
		if took := time.Since(begun); took > 5*time.Second {
			p.t.Errorf("%s: the refusal took %s", path, took)
		}
	}
}
