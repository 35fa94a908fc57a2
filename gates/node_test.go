//go:build gates

package gates

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"micronode/client"
)

// binary is the micronode under test, built once.
var binary string

func TestMain(m *testing.M) { os.Exit(buildAndRun(m)) }

func buildAndRun(m *testing.M) int {
	folder, err := os.MkdirTemp("", "micronode-gates-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(folder)
	binary = filepath.Join(folder, "micronode")
	if out, err := exec.Command("go", "build", "-o", binary, "micronode/cmd/micronode").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
		return 1
	}
	return printTable(m.Run())
}

// isLong reports whether the gates are to be thorough.
func isLong() bool { return os.Getenv("GATES") == "long" }

// process is a node in a process of its own.
type process struct {
	t       *testing.T
	command *exec.Cmd
	socket  string
	http    string
	admin   string
	stderr  *outputBuffer
	exited  chan error
}

// outputBuffer keeps the output of a process.
type outputBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *outputBuffer) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *outputBuffer) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

var serial atomic.Int64

// start runs a node on ports and a socket of its own, and waits until it is
// ready. Under is a program to run it under, such as strace.
func start(t *testing.T, under []string, environment ...string) *process {
	t.Helper()
	return startWith(t, under, nil, environment...)
}

// startWith is start with more arguments.
func startWith(t *testing.T, under, arguments []string, environment ...string) *process {
	t.Helper()
	return launch(t, binary, under, arguments, environment...)
}

// launch is startWith for another program than the one under test.
func launch(t *testing.T, program string, under, arguments []string, environment ...string) *process {
	t.Helper()
	reportGate(t)
	socket := fmt.Sprintf("micronode-gates-%d-%d", os.Getpid(), serial.Add(1))
	line := append(under, program, "run", "--http", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--overlay", "127.0.0.1:0", "--socket", socket)
	line = append(line, arguments...)
	p := &process{t: t, command: exec.Command(line[0], line[1:]...), socket: socket, stderr: &outputBuffer{}, exited: make(chan error, 1)}
	p.command.Env = append(os.Environ(), environment...)
	p.command.Stdout, p.command.Stderr = p.stderr, p.stderr
	if err := p.command.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { p.exited <- p.command.Wait() }()
	t.Cleanup(p.kill)
	p.awaitReady()
	return p
}

func (p *process) kill() { _ = p.command.Process.Kill() }

// local is a client on the node's own socket.
func (p *process) local() *client.Client {
	p.t.Helper()
	c, err := client.New(client.Options{Socket: p.socket})
	if err != nil {
		p.t.Fatal(err)
	}
	return c
}

// awaitReady polls until the node is ready, for half a minute at most. The node
// is another process and cannot notify the test.
func (p *process) awaitReady() {
	p.t.Helper()
	local := p.local()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		status, err := local.Status(ctx)
		cancel()
		if err == nil && status.Ready && status.WriteReady {
			p.http, p.admin = "http://"+status.Listen.HTTP, "http://"+status.Listen.Admin
			return
		}
	}
	p.t.Fatalf("not ready:\n%s", p.stderr)
}

// pid is the node's own, also when it runs under something else.
func (p *process) pid() int {
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", p.command.Process.Pid, p.command.Process.Pid))
	if fields := strings.Fields(string(children)); err == nil && len(fields) == 1 && !strings.HasSuffix(p.command.Path, "micronode") {
		pid, _ := strconv.Atoi(fields[0])
		return pid
	}
	return p.command.Process.Pid
}

// stop sends a signal and waits for the end, which must be a clean one.
func (p *process) stop(signal syscall.Signal) (took time.Duration) {
	p.t.Helper()
	from := time.Now()
	if err := syscall.Kill(p.pid(), signal); err != nil {
		p.t.Fatal(err)
	}
	select {
	case err := <-p.exited:
		if err != nil {
			p.t.Errorf("after %v: %v\n%s", signal, err, p.stderr)
		}
	case <-time.After(15 * time.Second):
		p.t.Fatalf("does not stop after %v:\n%s", signal, p.stderr)
	}
	return time.Since(from)
}

// token requests a capability.
func (p *process) token(scopes ...string) string {
	p.t.Helper()
	token, err := p.local().MintToken(p.t.Context(), client.MintRequest{Scopes: scopes, TTL: time.Hour})
	if err != nil {
		p.t.Fatal(err)
	}
	return token
}

// metric reads the sum of a metric's series whose labels contain a text.
func (p *process) metric(name, label string) float64 {
	p.t.Helper()
	answer, err := http.Get(p.admin + "/metrics")
	if err != nil {
		p.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	var sum float64
	for line := range strings.Lines(string(text)) {
		if (strings.HasPrefix(line, name+"{") || strings.HasPrefix(line, name+" ")) && strings.Contains(line, label) {
			value, _ := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndex(line, " "):]), 64)
			sum += value
		}
	}
	return sum
}

// rss is how much memory the process takes, in bytes.
func (p *process) rss() int64 {
	p.t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.pid()))
	if err != nil {
		p.t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if rest, found := strings.CutPrefix(line, "VmRSS:"); found {
			kilobytes, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kilobytes << 10
		}
	}
	p.t.Fatal("no VmRSS")
	return 0
}

// problemCode is the code of a problem document.
func problemCode(body []byte) string {
	var document struct{ Code string }
	_ = json.Unmarshal(body, &document)
	return document.Code
}
