package demo

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
	"micronode/internal/terminal"
)

// network is the state of the demo: the nodes, and what each step leaves
// for the next ones.
type network struct {
	// set at construction
	count        int    // of nodes
	socketPrefix string // prefix of their socket names
	program      string // that a node runs: this one
	environ      []string
	cancel       context.CancelCauseFunc
	group        *supervise.Group // reads the output of the nodes
	httpClient   *http.Client     // for the requests of a browser

	// owned by the demo
	ctx      context.Context // of all steps; it ends when a node exits unexpectedly
	nodes    []*node
	site     []siteFile
	manifest b3.Address // of the site
	signers  []signer
	registry client.Initialised
}

// newNetwork prepares everything but the nodes.
func newNetwork(ctx context.Context, count int) (*network, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, &fault.Error{Op: op, Kind: fault.Internal, Detail: "the path of this program is not known", Err: err,
			Next: "Type the command with the full path of the program."}
	}
	signers, err := newSigners()
	if err != nil {
		return nil, err
	}
	const part = "demo"
	supervisor, err := supervise.New(supervise.Options{Stages: []supervise.Stage{{Name: part}}, DrainTimeout: time.Second})
	if err != nil {
		return nil, err
	}
	group, err := supervisor.NewGroup(supervise.GroupSpec{Service: "node", Kind: part, Stage: part, Max: count})
	if err != nil {
		return nil, err
	}
	net := &network{count: count, socketPrefix: fmt.Sprintf("micronode-demo-%d", os.Getpid()), program: program, environ: nodeEnvironment(os.Environ()), group: group,
		httpClient: &http.Client{Transport: &http.Transport{}}, site: newSite(), signers: signers}
	net.ctx, net.cancel = context.WithCancelCause(ctx)
	return net, nil
}

// nodeEnvironment is the environment of the nodes. It leaves out the settings
// of the user's own node, except for threads and confinement. The DHT is on. Nobody is introduced: the
// nodes are to stay a chain.
func nodeEnvironment(own []string) []string {
	var environ []string
	for _, one := range own {
		name, _, _ := strings.Cut(one, "=")
		if name == "MICRO_THREADS" || name == "MICRO_AMNESIA__ENFORCE" || name != "AMNESIA" && !strings.HasPrefix(name, "MICRO_") {
			environ = append(environ, one)
		}
	}
	return append(environ, "MICRO_INDEX__DHT__ENABLED=true", "MICRO_INDEX__DHT__ADDR=127.0.0.1:0", "MICRO_OVERLAY__EXCHANGE=false")
}

// start starts one more node, with the running ones as bootstrap nodes, and
// waits for its banner.
func (net *network) start(ctx context.Context) error {
	var bootstrap []string
	for _, n := range net.nodes {
		bootstrap = append(bootstrap, n.banner.DHT...)
	}
	number := len(net.nodes) + 1
	n, err := newNode(net.program, number, fmt.Sprintf("%s-%d", net.socketPrefix, number), append(net.environ[:len(net.environ):len(net.environ)], "MICRO_INDEX__DHT__BOOTSTRAP="+strings.Join(bootstrap, ",")))
	if err != nil {
		return err
	}
	out, err := n.command.StdoutPipe()
	if err == nil {
		err = n.command.Start()
	}
	if err != nil {
		return fault.WrapKind(op, fault.Internal, err)
	}
	net.nodes = append(net.nodes, n)
	err = net.group.Go(func(context.Context) error {
		n.readOutput(out)
		if !n.exitExpected.Load() {
			net.cancel(n.exitError())
		}
		return nil
	})
	if err != nil {
		_ = n.signal(syscall.SIGKILL)
		n.readOutput(out)
		return err
	}
	return n.awaitBanner(ctx)
}

// close kills the nodes that still run: they hold only RAM that is not needed
// any more. It returns when all have exited.
func (net *network) close() {
	for _, n := range net.nodes {
		_ = n.signal(syscall.SIGKILL) // the process is waited for, so it is ours or gone
		n.local.Close()
	}
	net.group.Close()
	_ = net.group.Wait(context.Background()) // a process that was killed ends
	net.httpClient.CloseIdleConnections()
	net.cancel(nil)
}

// first is the node that puts, names and publishes, and is killed.
func (net *network) first() *node { return net.nodes[0] }

// second is between the first and the others.
func (net *network) second() *node { return net.nodes[1] }

// third has no session with the first.
func (net *network) third() *node { return net.nodes[2] }

// last is at the end of the row.
func (net *network) last() *node { return net.nodes[len(net.nodes)-1] }

// nodeInfos describes the nodes.
func (net *network) nodeInfos() []nodeInfo {
	var all []nodeInfo
	for _, n := range net.nodes {
		all = append(all, n.info())
	}
	return all
}

// siteName is the folder's name as another node resolves it.
func (net *network) siteName() string { return "name:" + siteLabel + "@" + net.first().id() }

// retryInterval is the pause between two checks.
const retryInterval = 20 * time.Millisecond

// eventually repeats a check until it succeeds. Nodes learn from each other,
// and there is no event to wait for. If ctx ends, it returns the last error
// that is not about the time.
func eventually(ctx context.Context, check func() error) error {
	var last error
	for {
		err := check()
		if err == nil {
			return nil
		}
		if ctx.Err() == nil || last == nil {
			last = err
		}
		if flow.Sleep(ctx, retryInterval) != nil {
			return last
		}
	}
}

// checkReady checks that a node is ready, and not degraded.
func (n *node) checkReady(ctx context.Context) error {
	readiness, err := n.local.Ready(ctx)
	if err == nil && !readiness.Whole() {
		err = terminal.NotReadyError(readiness)
	}
	return n.wrapError(err)
}

// peer is what a node knows of another one.
func (n *node) peer(ctx context.Context, other *node) (client.Peer, bool, error) {
	peers, err := n.local.Peers(ctx)
	if err != nil {
		return client.Peer{}, false, n.wrapError(err)
	}
	for _, one := range peers {
		if one.ID == other.id() {
			return one, true, nil
		}
	}
	return client.Peer{}, false, nil
}

// checkSession checks that messages flow between two nodes.
func (n *node) checkSession(ctx context.Context, other *node) error {
	one, known, err := n.peer(ctx, other)
	switch {
	case err != nil:
		return err
	case !known || one.State != client.PeerActive && one.State != client.PeerBusy:
		return n.errorf(fault.NoRoute, "has no session with node %d: %s", other.number, fmt.Sprint(one.State, " ", one.LastError))
	}
	return nil
}
