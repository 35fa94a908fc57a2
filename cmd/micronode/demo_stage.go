package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"syscall"
	"time"

	"micronode/b3"
	"micronode/client"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/supervise"
)

// stage is where the demo plays: the nodes, and what each step leaves for the
// next ones.
type stage struct {
	// set at construction
	count   int    // of nodes
	sockets string // what their names begin with
	program string // that a node runs: this one
	environ []string
	cut     context.CancelCauseFunc
	group   *supervise.Group // who follows the nodes
	web     *http.Client     // for what a browser would do

	// owned by the demo
	ctx      context.Context // of all steps; it ends when a node does that should not
	nodes    []*demoNode
	site     []siteFile
	manifest b3.Address // of the site
	signers  []demoSigner
	registry client.Initialised
}

// newStage prepares everything but the nodes.
func newStage(ctx context.Context, count int) (*stage, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, &fault.Error{Op: demoOp, Kind: fault.Internal, Detail: "this program does not know where it is", Err: err,
			Next: "Type the command with the full path of the program."}
	}
	signers, err := newSigners()
	if err != nil {
		return nil, err
	}
	const part = "demo"
	supervisor, err := supervise.New(supervise.Options{Stages: []supervise.Stage{{Name: part}}, Total: time.Second})
	if err != nil {
		return nil, err
	}
	group, err := supervisor.NewGroup(supervise.GroupSpec{Service: "node", Kind: part, Stage: part, Max: count})
	if err != nil {
		return nil, err
	}
	s := &stage{count: count, sockets: fmt.Sprintf("micronode-demo-%d", os.Getpid()), program: program, environ: demoEnvironment(os.Environ()), group: group,
		web: &http.Client{Transport: &http.Transport{}}, site: newSite(), signers: signers}
	s.ctx, s.cut = context.WithCancelCause(ctx)
	return s, nil
}

// demoEnvironment is the environment of the nodes. What configures the user's
// own node is not for them, but for how it treats the machine. The DHT is on.
func demoEnvironment(own []string) []string {
	var environ []string
	for _, one := range own {
		name, _, _ := strings.Cut(one, "=")
		if name == "MICRO_THREADS" || name == "MICRO_AMNESIA__ENFORCE" || name != "AMNESIA" && !strings.HasPrefix(name, "MICRO_") {
			environ = append(environ, one)
		}
	}
	return append(environ, "MICRO_INDEX__DHT__ENABLED=true", "MICRO_INDEX__DHT__ADDR=127.0.0.1:0")
}

// start starts one more node, which begins with those that run already, and
// waits until it has told where it is.
func (s *stage) start(ctx context.Context) error {
	var begin []string
	for _, n := range s.nodes {
		begin = append(begin, n.banner.DHT...)
	}
	number := len(s.nodes) + 1
	n, err := newDemoNode(s.program, number, fmt.Sprintf("%s-%d", s.sockets, number), append(s.environ[:len(s.environ):len(s.environ)], "MICRO_INDEX__DHT__BOOTSTRAP="+strings.Join(begin, ",")))
	if err != nil {
		return err
	}
	out, err := n.command.StdoutPipe()
	if err == nil {
		err = n.command.Start()
	}
	if err != nil {
		return fault.WrapKind(demoOp, fault.Internal, err)
	}
	s.nodes = append(s.nodes, n)
	err = s.group.Go(func(context.Context) error {
		n.follow(out)
		if !n.wanted.Load() {
			s.cut(n.gone())
		}
		return nil
	})
	if err != nil {
		_ = n.signal(syscall.SIGKILL)
		n.follow(out)
		return err
	}
	return n.awaitBanner(ctx)
}

// clear ends what still runs, at once: it is in RAM, and nobody needs it any
// more. It returns when nothing is left.
func (s *stage) clear() {
	for _, n := range s.nodes {
		_ = n.signal(syscall.SIGKILL) // the process is waited for, so it is ours or gone
		n.local.Close()
	}
	s.group.Close()
	_ = s.group.Wait(context.Background()) // a process that was killed ends
	s.web.CloseIdleConnections()
	s.cut(nil)
}

// first is the node that puts, names and publishes, and is killed.
func (s *stage) first() *demoNode { return s.nodes[0] }

// second is between the first and the others.
func (s *stage) second() *demoNode { return s.nodes[1] }

// third has no session with the first.
func (s *stage) third() *demoNode { return s.nodes[2] }

// last is at the end of the row.
func (s *stage) last() *demoNode { return s.nodes[len(s.nodes)-1] }

// cast is who plays.
func (s *stage) cast() []actor {
	var all []actor
	for _, n := range s.nodes {
		all = append(all, n.actor())
	}
	return all
}

// siteName is the folder's name as another node asks for it.
func (s *stage) siteName() string { return namePrefix + siteLabel + "@" + s.first().id() }

// demoPause is how long to wait before a question is asked again.
const demoPause = 20 * time.Millisecond

// eventually asks until it is so. Nodes are told things by others, and nobody tells
// us when. If it never is, the answer is the last that was not about the time.
func eventually(ctx context.Context, ask func() error) error {
	var last error
	for {
		err := ask()
		if err == nil {
			return nil
		}
		if ctx.Err() == nil || last == nil {
			last = err
		}
		if flow.Sleep(ctx, demoPause) != nil {
			return last
		}
	}
}

// whole asks whether a node is ready, with nothing missing.
func (n *demoNode) whole(ctx context.Context) error {
	readiness, err := n.local.Ready(ctx)
	if err == nil && !readiness.Whole() {
		err = notReady(readiness)
	}
	return n.about(err)
}

// peer is what a node knows of another one.
func (n *demoNode) peer(ctx context.Context, other *demoNode) (client.Peer, bool, error) {
	peers, err := n.local.Peers(ctx)
	if err != nil {
		return client.Peer{}, false, n.about(err)
	}
	for _, one := range peers {
		if one.ID == other.id() {
			return one, true, nil
		}
	}
	return client.Peer{}, false, nil
}

// hasSession asks whether messages flow between two nodes.
func (n *demoNode) hasSession(ctx context.Context, other *demoNode) error {
	one, known, err := n.peer(ctx, other)
	switch {
	case err != nil:
		return err
	case !known || one.State != client.PeerActive && one.State != client.PeerBusy:
		return n.wrong(fault.NoRoute, "has no session with node %d: %s", other.number, fmt.Sprint(one.State, " ", one.LastError))
	}
	return nil
}
