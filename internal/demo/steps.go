package demo

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"syscall"
	"time"

	"micronode/b3"
	"micronode/client"
	"micronode/fault"
	"micronode/internal/terminal"
)

// allSteps lists the steps of the demo, in order.
func allSteps() []step {
	return []step{
		{"start", startCommand, startNodes},
		{"put", putSiteCommand, putSite},
		{"resolve", resolveSiteCommand, resolveSite},
		{"fetch", fetchSiteCommand, fetchSite},
		{"gossip", gossipCommand, relayMessage},
		{"registry", commitCommand, commitChange},
		{"kill", killCommand, killFirst},
		{"end", endCommand, endNodes},
	}
}

func startCommand(*network) string {
	return "micronode run --http 127.0.0.1:0 --overlay 127.0.0.1:0; micronode peers add ID@HOST:PORT"
}

// startNodes starts all nodes and connects them in a row. Each side must know
// the other: the first that dials is rejected, and dialled back.
func startNodes(ctx context.Context, net *network) (string, error) {
	for range net.count {
		if err := net.start(ctx); err != nil {
			return "", err
		}
	}
	for i, n := range net.nodes[1:] {
		if err := connectPeers(ctx, net.nodes[i], n); err != nil {
			return "", err
		}
	}
	for i, n := range net.nodes {
		if err := eventually(ctx, func() error { return n.checkReady(ctx) }); err != nil {
			return "", err
		}
		if i == 0 {
			continue
		}
		if err := eventually(ctx, func() error { return n.checkSession(ctx, net.nodes[i-1]) }); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%d nodes, each in its own process, in a chain %s; each answers /readyz with 200", net.count, net.topology()), nil
}

// connectPeers makes two nodes know each other.
func connectPeers(ctx context.Context, one, other *node) error {
	if _, err := one.local.AddPeer(ctx, other.banner.Overlay); err != nil {
		return one.wrapError(err)
	}
	_, err := other.local.AddPeer(ctx, one.banner.Overlay)
	return other.wrapError(err)
}

// topology shows which nodes are connected.
func (net *network) topology() string {
	var numbers []string
	for _, n := range net.nodes {
		numbers = append(numbers, fmt.Sprint(n.number))
	}
	return strings.Join(numbers, " – ")
}

func putSiteCommand(net *network) string {
	return "micronode put site --name " + siteLabel + net.first().socketFlag()
}

// putSite stores the folder on the first node, file by file out of memory, and
// names it.
func putSite(ctx context.Context, net *network) (string, error) {
	n := net.first()
	raw, err := manifestOf(net.site).Encode()
	if err != nil {
		return "", err
	}
	for _, body := range append(bodies(net.site), raw) { // the manifest comes last: the files of a manifest that can be found are there
		if _, err := n.local.Put(ctx, bytes.NewReader(body), client.PutOptions{Size: int64(len(body)), Want: b3.Of(body)}); err != nil {
			return "", n.wrapError(err)
		}
	}
	record, err := n.local.SetName(ctx, siteLabel, b3.Of(raw))
	if err != nil {
		return "", n.wrapError(err)
	}
	net.manifest = record.Manifest
	return fmt.Sprintf("%s, %s, are on node 1, and the name %s resolves to %s", terminal.Pluralize(len(net.site), "file"), formatMiB(net.site), siteLabel, shortAddress(net.manifest)), nil
}

func resolveSiteCommand(net *network) string {
	return "micronode resolve " + net.siteName() + net.second().socketFlag()
}

// resolveSite resolves the first node's name at the second node, and gets the
// manifest of the folder.
func resolveSite(ctx context.Context, net *network) (string, error) {
	n := net.second()
	source, err := net.resolveAt(ctx, n)
	if err != nil {
		return "", err
	}
	if err := n.fetch(ctx, net.manifest); err != nil {
		return "", err
	}
	listed, err := n.local.Manifest(ctx, net.manifest)
	if err != nil {
		return "", n.wrapError(err)
	}
	if want := manifestOf(net.site); fmt.Sprint(listed) != fmt.Sprint(want) {
		return "", n.errorf(fault.IntegrityFail, "lists other files than were put: %v", listed)
	}
	return fmt.Sprintf("node 2 received the record that node 1 signed (source %s): %s, with %s", source, shortAddress(net.manifest), terminal.Pluralize(len(listed.Entries), "file")), nil
}

// resolveAt resolves the first node's name at a node, and returns the source
// of the answer.
func (net *network) resolveAt(ctx context.Context, n *node) (source string, err error) {
	var found client.Resolution
	err = eventually(ctx, func() (err error) {
		found, err = n.local.Resolve(ctx, net.siteName(), client.ResolveOptions{})
		return n.wrapError(err)
	})
	if err == nil && (found.Manifest != net.manifest || found.Source == "local") {
		err = n.errorf(fault.IntegrityFail, "resolves %s to %s, source %s; expected %s", siteLabel, found.Manifest, found.Source, net.manifest)
	}
	return found.Source, err
}

// fetch makes a node fetch an object from its providers.
func (n *node) fetch(ctx context.Context, address b3.Address) error {
	return eventually(ctx, func() error {
		_, err := n.local.FetchAnywhere(ctx, address)
		return n.wrapError(err)
	})
}

func fetchSiteCommand(net *network) string {
	return "curl -r 0-65535 " + net.third().banner.HTTP + net.edgePath(net.largest())
}

// fetchSite reads all files through the edge of the third node, in ranges. It
// has no session with the first, and must discover that the first has them.
func fetchSite(ctx context.Context, net *network) (string, error) {
	ranges, err := net.readThroughEdge(ctx, net.third())
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s, in %s, came through the edge of node 3, which found node 1 by itself; every byte is verified", formatMiB(net.site), terminal.Pluralize(ranges, "range")), nil
}

// topic is the topic of the messages.
const topic = "demo/news"

func gossipCommand(net *network) string {
	return "micronode sub " + topic + net.last().socketFlag() + " & micronode pub " + topic + " hello" + net.first().socketFlag()
}

// relayMessage publishes a message on the first node and receives it at the
// end of the row, on a node without a session with the first.
func relayMessage(ctx context.Context, net *network) (string, error) {
	for _, n := range net.nodes[2:] {
		if _, known, err := n.peer(ctx, net.first()); err != nil || known {
			return "", n.wrapError(firstErr(err, n.errorf(fault.Conflict, "is connected to node 1, so that a relay would prove nothing")))
		}
	}
	if err := publishAndReceive(ctx, net.first(), net.last(), "hello from the first"); err != nil {
		return "", err
	}
	return fmt.Sprintf("the message of node 1 reached node %d, signed, over %s; the two have no session", net.count, terminal.Pluralize(net.count-2, "relay")), nil
}

// firstErr is the first error that is not nil.
func firstErr(err, other error) error {
	if err != nil {
		return err
	}
	return other
}

// publishAndReceive publishes at one node and receives at another.
func publishAndReceive(ctx context.Context, from, to *node, text string) error {
	subscription, err := to.local.Subscribe(ctx, topic)
	if err != nil {
		return to.wrapError(err)
	}
	defer subscription.Close()
	if _, err := from.local.Publish(ctx, topic, []byte(text)); err != nil {
		return from.wrapError(err)
	}
	message, err := subscription.Next(ctx)
	if err != nil {
		return to.wrapError(&fault.Error{Op: op, Kind: fault.KindOf(err), Detail: fmt.Sprintf("the message of node %d did not reach node %d", from.number, to.number), Err: err,
			Next: "See the connections of each node: micronode peers"})
	}
	if message.Origin != from.id() || !message.Signed || string(message.Data) != text {
		return to.errorf(fault.IntegrityFail, "received %q from %s instead of the message of node %d", message.Data, message.Origin, from.number)
	}
	return nil
}

func killCommand(net *network) string {
	return fmt.Sprintf("kill -KILL %d", net.first().command.Process.Pid)
}

// killFirst kills the node that everything came from. Its name still resolves,
// its objects are still there, and the other nodes continue and report the
// missing peer.
func killFirst(ctx context.Context, net *network) (string, error) {
	dead, survivor := net.first(), net.second()
	if err := dead.signal(syscall.SIGKILL); err != nil {
		return "", dead.wrapError(err)
	}
	if err := dead.awaitEnd(ctx); err != nil {
		return "", err
	}
	if dead.report != nil {
		return "", dead.errorf(fault.Conflict, "drained instead of being killed")
	}
	if _, err := net.resolveAt(ctx, survivor); err != nil {
		return "", err
	}
	if _, err := net.readThroughEdge(ctx, survivor); err != nil {
		return "", err
	}
	if err := publishAndReceive(ctx, survivor, net.last(), "hello from who is left"); err != nil {
		return "", err
	}
	if err := net.checkSurvivors(ctx); err != nil {
		return "", err
	}
	return fmt.Sprintf("node 1 is dead; node 2 still resolves its name for the folder, fetched every byte from node 3, and relays; %s ready", terminal.Pluralize(net.count-1, "node")), nil
}

// checkSurvivors checks the remaining nodes: each is ready, and knows which
// node is missing.
func (net *network) checkSurvivors(ctx context.Context) error {
	for _, n := range net.nodes[1:] {
		if err := eventually(ctx, func() error { return n.checkReady(ctx) }); err != nil {
			return err
		}
	}
	near := net.second()
	return eventually(ctx, func() error {
		one, known, err := near.peer(ctx, net.first())
		if err == nil && (!known || one.State == client.PeerActive) {
			err = near.errorf(fault.Conflict, "does not report node 1 as unreachable, but %q", one.State)
		}
		return err
	})
}

func endCommand(net *network) string {
	pids := "kill -TERM"
	for _, n := range net.nodes[1:] {
		pids += fmt.Sprint(" ", n.command.Process.Pid)
	}
	return pids
}

// endNodes stops the remaining nodes. Each must drain, and leave nothing
// behind.
func endNodes(ctx context.Context, net *network) (string, error) {
	for _, n := range net.nodes[1:] {
		if err := n.signal(syscall.SIGTERM); err != nil {
			return "", n.wrapError(err)
		}
	}
	var longest time.Duration
	for _, n := range net.nodes[1:] {
		if err := n.awaitEnd(ctx); err != nil {
			return "", err
		}
		if n.err != nil || n.report == nil || len(n.report.Aborted)+len(n.report.LeftRunning) > 0 {
			return "", n.errorf(fault.Internal, "did not drain cleanly: %v, %+v", n.err, n.report)
		}
		longest = max(longest, time.Duration(n.report.Milliseconds)*time.Millisecond)
	}
	return fmt.Sprintf("%s drained cleanly, the slowest in %s; nothing is left", terminal.Pluralize(net.count-1, "node"), longest), nil
}
