package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"micronode/client"
	"micronode/fault"
	"micronode/internal/flow"
)

// demoNode is a node in a process of its own. A real process, so that killing
// it is real.
type demoNode struct {
	// set at construction
	number  int
	socket  string
	command *exec.Cmd
	local   *client.Client // on its socket
	log     *tail
	up      chan struct{} // closed when it has told where it is
	ended   chan struct{} // closed when the process is gone

	wanted atomic.Bool // its end is; set before it is brought about

	banner started // set before up is closed

	// set before ended is closed
	report *stopped // of its drain, if there was one
	err    error    // how the process ended
}

// demoNodeArgs is how every node of the demo is run: where there is room, and
// as a program that talks to a program.
func demoNodeArgs(socket string) []string {
	return []string{"micronode", "run", "--json", "--http", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--overlay", "127.0.0.1:0", "--socket", socket}
}

// newDemoNode prepares a node, and does not start it. The kernel ends it with
// this process, however that ends (it looks at the thread that started it, and
// no thread of this program ends before the program). A Ctrl-C is for this
// process alone: it stops the nodes in its own time.
func newDemoNode(program string, number int, socket string, environ []string) (*demoNode, error) {
	local, err := client.New(client.Options{Socket: socket})
	if err != nil {
		return nil, err
	}
	n := &demoNode{number: number, socket: socket, local: local, log: &tail{}, up: make(chan struct{}), ended: make(chan struct{})}
	n.command = &exec.Cmd{Path: program, Args: demoNodeArgs(socket), Env: environ, Stderr: n.log,
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}}
	return n, nil
}

// follow reads what the node prints, and waits for its end.
func (n *demoNode) follow(out io.Reader) {
	decoder := json.NewDecoder(out)
	for n.hear(decoder) == nil {
	}
	_, _ = io.Copy(io.Discard, out) // nobody holds it up by not reading
	n.err = n.command.Wait()
	close(n.ended)
}

// hear reads one line of a node: its banner, or the report of its drain.
func (n *demoNode) hear(from *json.Decoder) error {
	var line json.RawMessage
	var said struct {
		Event string `json:"event"`
	}
	if err := errors.Join(from.Decode(&line), json.Unmarshal(line, &said)); err != nil {
		return err
	}
	switch said.Event {
	case "started":
		err := json.Unmarshal(line, &n.banner)
		close(n.up)
		return err
	case "stopped":
		n.report = &stopped{}
		return json.Unmarshal(line, n.report)
	}
	return nil
}

// awaitBanner waits until the node has told where it is.
func (n *demoNode) awaitBanner(ctx context.Context) error {
	select {
	case <-n.up:
		return nil
	case <-n.ended:
		return n.gone()
	case <-ctx.Done():
		return flow.Ended(ctx, demoOp)
	}
}

// signal sends one to the process, whose end is wanted from now on.
func (n *demoNode) signal(signal os.Signal) error {
	n.wanted.Store(true)
	err := n.command.Process.Signal(signal)
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// awaitEnd waits until the process is gone.
func (n *demoNode) awaitEnd(ctx context.Context) error {
	select {
	case <-n.ended:
		return nil
	case <-ctx.Done():
		return n.about(flow.Ended(ctx, demoOp))
	}
}

// gone says how a process ended whose end nobody wanted. A node that gave up
// has told why, and what to do.
func (n *demoNode) gone() error {
	how := "it ended by itself"
	if n.err != nil {
		how = n.err.Error()
	}
	err := fault.New(demoOp, fault.BrokenPipe, "node %d is gone (%s)", n.number, how)
	err.Next = "What it said last may tell why. Is the machine fit for a node? See: micronode doctor"
	for _, line := range n.log.lines() {
		var words problem
		if json.Unmarshal([]byte(line), &words) == nil && words.Code != "" {
			err.Detail, err.Next = err.Detail+": "+words.Detail, words.Next
		}
	}
	return n.about(&deadNode{err})
}

// deadNode is why a step was cut off: a node ended that should not have.
type deadNode struct{ error }

// Unwrap gives the kind of the error.
func (d *deadNode) Unwrap() error { return d.error }

// onNode is an error and the node that it is about.
type onNode struct {
	node *demoNode
	error
}

// Unwrap gives the kind of the error.
func (o *onNode) Unwrap() error { return o.error }

// about says which node an error is about. The first to say so knows best.
func (n *demoNode) about(err error) error {
	if _, known := errors.AsType[*onNode](err); known || err == nil {
		return err
	}
	return &onNode{n, err}
}

// wrong is about a node that does not do what it should.
func (n *demoNode) wrong(kind fault.Kind, format string, args ...any) error {
	return n.about(&fault.Error{Op: demoOp, Kind: kind, Detail: fmt.Sprintf("node %d ", n.number) + fmt.Sprintf(format, args...),
		Next: "What it said last may tell why. See: micronode doctor"})
}

// flag is what a command needs to reach the node.
func (n *demoNode) flag() string { return socketArgument(n.socket) }

// id is the node's peer ID.
func (n *demoNode) id() string { return n.banner.PeerID }

// The states of a node of the demo.
const (
	running = "running"
	killed  = "killed"
)

// actor is a node of the demo, for who wants to use it.
type actor struct {
	Node    int    `json:"node"`
	State   string `json:"state"` // running or killed
	PID     int    `json:"pid"`
	PeerID  string `json:"peer_id"`
	HTTP    string `json:"http"`
	Admin   string `json:"admin"`
	Overlay string `json:"overlay"`
	Socket  string `json:"socket"`
}

func (n *demoNode) actor() actor {
	state := running
	select {
	case <-n.ended:
		state = killed
	default:
	}
	return actor{n.number, state, n.command.Process.Pid, n.banner.PeerID, n.banner.HTTP, n.banner.Admin, n.banner.Overlay, n.socket}
}

// The bounds of what is kept of a log, and of what is shown of it.
const (
	tailBytes = 16 << 10
	tailLines = 12
)

// tail keeps the end of what a process says.
type tail struct {
	mu   sync.Mutex
	text []byte // guarded by mu
}

// Write keeps it, and forgets what is too long ago.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	if more := len(t.text) - tailBytes; more > 0 {
		t.text = append(t.text[:0], t.text[more:]...)
	}
	return len(p), nil
}

// lines are the last of them.
func (t *tail) lines() []string {
	t.mu.Lock()
	text := string(bytes.TrimSpace(t.text))
	t.mu.Unlock()
	if text == "" {
		return nil
	}
	all := strings.Split(text, "\n")
	return all[max(0, len(all)-tailLines):]
}
