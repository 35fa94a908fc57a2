package demo

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

	"micronode/client"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/observe"
	"micronode/internal/terminal"
)

// node is a node in a process of its own. A real process, so that killing
// it is real.
type node struct {
	// set at construction
	number     int
	socket     string
	command    *exec.Cmd
	local      *client.Client // on its socket
	log        *logTail
	bannerRead chan struct{} // closed when the banner has been read
	exited     chan struct{} // closed when the process has exited

	exitExpected atomic.Bool // set before the process is signalled

	banner banner // set before bannerRead is closed

	// set before exited is closed
	report *drainReport // of its drain, if there was one
	err    error        // how the process ended
}

// banner is what the demo reads of the first line of micronode run --json.
type banner struct {
	PeerID  string   `json:"peer_id"`
	HTTP    string   `json:"http"`
	Admin   string   `json:"admin"`
	Overlay string   `json:"overlay"` // ID@HOST:PORT
	DHT     []string `json:"dht"`     // multiaddrs
}

// drainReport is what it reads of the last line.
type drainReport struct {
	Milliseconds int64    `json:"took_ms"`
	Aborted      []string `json:"aborted"`
	LeftRunning  []string `json:"left_running"`
}

// nodeArgs is the command line of every node of the demo: on free ports,
// with output for a program.
func nodeArgs(socket string) []string {
	return []string{"micronode", "run", "--json", "--http", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--overlay", "127.0.0.1:0", "--socket", socket}
}

// newNode prepares a node, and does not start it. A Ctrl-C
// reaches only this process, which then stops the nodes itself.
func newNode(program string, number int, socket string, environ []string) (*node, error) {
	local, err := client.New(client.Options{Socket: socket})
	if err != nil {
		return nil, err
	}
	n := &node{number: number, socket: socket, local: local, log: &logTail{}, bannerRead: make(chan struct{}), exited: make(chan struct{})}
	n.command = &exec.Cmd{Path: program, Args: nodeArgs(socket), Env: environ, Stderr: n.log,
		SysProcAttr: OwnGroup()}
	return n, nil
}

// readOutput reads the output of the node, and waits for its exit.
func (n *node) readOutput(out io.Reader) {
	decoder := json.NewDecoder(out)
	for n.readEvent(decoder) == nil {
	}
	_, _ = io.Copy(io.Discard, out) // so that the node never blocks on its output
	n.err = n.command.Wait()
	close(n.exited)
}

// readEvent reads one line of a node: its banner, or the report of its drain.
func (n *node) readEvent(from *json.Decoder) error {
	var line json.RawMessage
	var header struct {
		Event string `json:"event"`
	}
	if err := errors.Join(from.Decode(&line), json.Unmarshal(line, &header)); err != nil {
		return err
	}
	switch header.Event {
	case "started":
		err := json.Unmarshal(line, &n.banner)
		close(n.bannerRead)
		return err
	case "stopped":
		n.report = &drainReport{}
		return json.Unmarshal(line, n.report)
	}
	return nil
}

// awaitBanner waits until the banner has been read.
func (n *node) awaitBanner(ctx context.Context) error {
	select {
	case <-n.bannerRead:
		return nil
	case <-n.exited:
		return n.exitError()
	case <-ctx.Done():
		return flow.Ended(ctx, op)
	}
}

// signal sends a signal to the process, whose exit is expected from then on.
func (n *node) signal(signal os.Signal) error {
	n.exitExpected.Store(true)
	err := n.command.Process.Signal(signal)
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// awaitEnd waits until the process has exited.
func (n *node) awaitEnd(ctx context.Context) error {
	select {
	case <-n.exited:
		return nil
	case <-ctx.Done():
		return n.wrapError(flow.Ended(ctx, op))
	}
}

// exitError describes an unexpected exit. If the node failed, its log has the
// error and the next step.
func (n *node) exitError() error {
	how := "it exited"
	if n.err != nil {
		how = n.err.Error()
	}
	err := fault.New(op, fault.BrokenPipe, "node %d has exited (%s)", n.number, how).
		Advise("See its last log lines. Check the machine: micronode doctor")
	for _, line := range n.log.lines() {
		var logged observe.Problem
		if json.Unmarshal([]byte(line), &logged) == nil && logged.Code != "" {
			err.Detail, err.Next = err.Detail+": "+logged.Detail, logged.Next
		}
	}
	return n.wrapError(&nodeExitedError{err})
}

// nodeExitedError is why a step was cancelled: a node exited unexpectedly.
type nodeExitedError struct{ error }

// Unwrap returns the error with its kind.
func (n *nodeExitedError) Unwrap() error { return n.error }

// nodeError is an error and the node that it is about.
type nodeError struct {
	node *node
	error
}

// Unwrap returns the error with its kind.
func (n *nodeError) Unwrap() error { return n.error }

// wrapError adds the node to an error. The innermost node is kept.
func (n *node) wrapError(err error) error {
	if _, known := errors.AsType[*nodeError](err); known || err == nil {
		return err
	}
	return &nodeError{n, err}
}

// errorf makes an error about a node.
func (n *node) errorf(kind fault.Kind, format string, args ...any) error {
	return n.wrapError(&fault.Error{Op: op, Kind: kind, Detail: fmt.Sprintf("node %d ", n.number) + fmt.Sprintf(format, args...),
		Next: "See its last log lines. Check the machine: micronode doctor"})
}

// socketFlag is the flag with which a command reaches the node.
func (n *node) socketFlag() string { return terminal.SocketFlag(n.socket) }

// id is the node's peer ID.
func (n *node) id() string { return n.banner.PeerID }

// The states of a node of the demo.
const (
	nodeRunning = "running"
	nodeKilled  = "killed"
)

// nodeInfo describes a node of the demo, for users of --keep.
type nodeInfo struct {
	Node    int    `json:"node"`
	State   string `json:"state"` // running or killed
	PID     int    `json:"pid"`
	PeerID  string `json:"peer_id"`
	HTTP    string `json:"http"`
	Admin   string `json:"admin"`
	Overlay string `json:"overlay"`
	Socket  string `json:"socket"`
}

func (n *node) info() nodeInfo {
	state := nodeRunning
	select {
	case <-n.exited:
		state = nodeKilled
	default:
	}
	return nodeInfo{n.number, state, n.command.Process.Pid, n.banner.PeerID, n.banner.HTTP, n.banner.Admin, n.banner.Overlay, n.socket}
}

// The bounds of the log that is kept, and of the part that is shown.
const (
	tailBytes = 16 << 10
	tailLines = 12
)

// logTail keeps the end of a log.
type logTail struct {
	mu   sync.Mutex
	text []byte // guarded by mu
}

// Write appends to the log, and drops the oldest bytes above the bound.
func (t *logTail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	if more := len(t.text) - tailBytes; more > 0 {
		t.text = append(t.text[:0], t.text[more:]...)
	}
	return len(p), nil
}

// lines are the last lines.
func (t *logTail) lines() []string {
	t.mu.Lock()
	text := string(bytes.TrimSpace(t.text))
	t.mu.Unlock()
	if text == "" {
		return nil
	}
	all := strings.Split(text, "\n")
	return all[max(0, len(all)-tailLines):]
}
