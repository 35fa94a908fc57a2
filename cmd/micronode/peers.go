package main

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"micronode/client"
	"micronode/fault"
	"micronode/internal/oap"
	"micronode/internal/terminal"
)

type peersCommand struct {
	List   peersList   `cmd:"" default:"withargs" help:"Show the peers of the node; the same as peers alone."`
	Knocks peersKnocks `cmd:"" help:"List the nodes that wanted to connect and were refused."`
	Nearby peersNearby `cmd:"" help:"List the nodes in private networks that are no peers (run --lan)."`
	Accept peersAccept `cmd:"" help:"Let nodes in that have knocked or are nearby."`
	Forget peersForget `cmd:"" help:"Forget nodes that have knocked or are nearby."`
	Add    peersAdd    `cmd:"" help:"Add peers."`
	Rm     peersRm     `cmd:"" help:"Remove peers."`
}

// Help is shown by peers --help.
func (peersCommand) Help() string {
	return `The shortest way to a peer is micronode invite on one side and micronode join on the other. A node can also be named as ID@HOST:PORT, as its banner prints it. The ID is the hash of its key, so that no other node can answer for it. A node that is not known here and connects has knocked: it is listed, and can be accepted.

Examples:

    micronode peers
    micronode peers accept wq3…
    micronode peers add wq3…@10.0.0.7:9500
    micronode peers rm wq3…`
}

type peersList struct {
	nodeFlags
	outputFlags
}

// Help is shown by peers list --help.
func (peersList) Help() string {
	return `A peer is dialing, active, busy (it reads messages more slowly than they arrive) or in backoff (the last dial failed; the node retries later). The column pq shows whether the key exchange is post-quantum.

Examples:

    micronode peers
    micronode peers --json | jq -r '.[] | select(.state == "active") | .id'`
}

// Run prints the peers of the node.
func (p *peersList) Run(ctx context.Context, c *console) error {
	node, err := p.dial()
	if err != nil {
		return err
	}
	defer node.Close()
	peers, err := node.Peers(ctx)
	if err != nil {
		return err
	}
	switch {
	case c.json:
		c.printJSON(append([]client.Peer{}, peers...))
	case len(peers) == 0:
		c.notice("the node has no peers\nAdd one: micronode invite here, and micronode join there; or micronode peers add ID@HOST:PORT")
	default:
		c.printPeers(peers)
	}
	if !c.json {
		knocks, err := node.Knocks(ctx)
		if err != nil {
			return nil // an older node, or a token that does not show them: the peers are all there is to see
		}
		c.printKnocks(knocks)
		if near, err := node.Nearby(ctx); err == nil { // an older node has no such list
			c.printNearby(near)
		}
	}
	return nil
}

// maxKnocksShown is how many knocks are shown beside other things.
const maxKnocksShown = 5

// printKnocks prints who knocked, and how to let one in.
func (c *console) printKnocks(knocks []client.Knock) {
	for _, one := range knocks[:min(len(knocks), maxKnocksShown)] {
		c.print("\n  %s knocked from %s, %s, and was refused\n", sanitize([]byte(one.ID)), sanitize([]byte(one.Addr)), terminal.Pluralize(one.Count, "time"))
		c.print("  To let it in: micronode peers accept %s\n", sanitize([]byte(one.ID)))
	}
	if more := len(knocks) - maxKnocksShown; more > 0 {
		c.print("\n  %d more knocked: micronode peers knocks\n", more)
	}
}

// printNearby prints who is nearby, and how to accept one.
func (c *console) printNearby(nodes []client.Nearby) {
	for _, one := range nodes[:min(len(nodes), maxKnocksShown)] {
		c.print("\n  %s is nearby, at %s\n", sanitize([]byte(one.ID)), sanitize([]byte(strings.Join(one.Addrs, ", "))))
		c.print("  To connect, type this here, and accept this node there: %s\n", sanitize([]byte(one.Accept)))
	}
	if more := len(nodes) - maxKnocksShown; more > 0 {
		c.print("\n  %d more are nearby: micronode peers nearby\n", more)
	}
}

type peersNearby struct {
	nodeFlags
	outputFlags
}

// Help is shown by peers nearby --help.
func (peersNearby) Help() string {
	return `Nodes that run with --lan announce themselves in their private networks by DNS-SD. At most 64 are listed, four of one address. Two connect when each has accepted the other: what a node says of itself is proved only then.

Examples:

    micronode peers nearby
    micronode peers nearby --json | jq -r '.[].accept'`
}

// Run lists the nodes nearby.
func (p *peersNearby) Run(ctx context.Context, c *console) error {
	node, err := p.dial()
	if err != nil {
		return err
	}
	defer node.Close()
	nodes, err := node.Nearby(ctx)
	switch {
	case err != nil:
		return err
	case c.json:
		c.printJSON(append([]client.Nearby{}, nodes...))
	case len(nodes) == 0:
		c.notice("no other node is nearby\nThis node looks for others if it runs with --lan; micronode status says if that fails.")
	default:
		rows := [][]string{{"id", "at", "last"}}
		for _, one := range nodes {
			rows = append(rows, []string{sanitize([]byte(one.ID)), sanitize([]byte(strings.Join(one.Addrs, ", "))), formatClock(one.Last)})
		}
		c.printTable(rows)
	}
	return nil
}

type peersKnocks struct {
	nodeFlags
	outputFlags
}

// Help is shown by peers knocks --help.
func (peersKnocks) Help() string {
	return `The newest come first. At most 64 are listed, four of one address, and each for an hour.

Examples:

    micronode peers knocks
    micronode peers knocks --json | jq -r '.[].accept'`
}

// Run lists the knocks.
func (p *peersKnocks) Run(ctx context.Context, c *console) error {
	node, err := p.dial()
	if err != nil {
		return err
	}
	defer node.Close()
	knocks, err := node.Knocks(ctx)
	switch {
	case err != nil:
		return err
	case c.json:
		c.printJSON(append([]client.Knock{}, knocks...))
	case len(knocks) == 0:
		c.notice("nobody has knocked")
	default:
		rows := [][]string{{"id", "from", "times", "last"}}
		for _, one := range knocks {
			rows = append(rows, []string{sanitize([]byte(one.ID)), sanitize([]byte(one.Addr)), fmt.Sprint(one.Count), formatClock(one.Last)})
		}
		c.printTable(rows)
	}
	return nil
}

type peersAccept struct {
	Peers []string `arg:"" name:"id" help:"The IDs of the nodes; an @ and the rest are ignored."`
	nodeFlags
	outputFlags
}

// Help is shown by peers accept --help.
func (peersAccept) Help() string {
	return `One that has knocked connects again by itself, within half a minute. One that is nearby is dialled; it lets this node in when it has accepted it, too. The node stays a peer until this node stops, or for good if it runs with --persist.

Example:

    micronode peers accept wq3…`
}

// Run accepts one node after the other.
func (p *peersAccept) Run(ctx context.Context, c *console) error {
	return c.forEachPeer(ctx, "peers.accept", p.nodeFlags, p.Peers, func(node *client.Client, id string) error {
		peer, err := node.AcceptKnock(ctx, id)
		if err != nil {
			return err
		}
		if c.json {
			c.printJSON(peer)
		} else {
			c.print("%s  accepted\n", sanitize([]byte(peer.ID)))
		}
		return nil
	})
}

type peersForget struct {
	Peers []string `arg:"" name:"id" help:"The IDs of the nodes; an @ and the rest are ignored."`
	nodeFlags
	outputFlags
}

// Help is shown by peers forget --help.
func (peersForget) Help() string {
	return `A node that knocks again is listed again. One that is nearby is not, as long as it announces itself.

Example:

    micronode peers forget wq3…`
}

// Run forgets one node after the other.
func (p *peersForget) Run(ctx context.Context, c *console) error {
	return c.forEachPeer(ctx, "peers.forget", p.nodeFlags, p.Peers, func(node *client.Client, id string) error {
		if err := node.ForgetKnock(ctx, id); err != nil {
			return err
		}
		if c.json {
			c.printJSON(removedPeer{id, true})
		}
		return nil
	})
}

// forEachPeer does something with each of several IDs.
func (c *console) forEachPeer(ctx context.Context, op string, at nodeFlags, peers []string, do func(node *client.Client, id string) error) error {
	node, err := at.dial()
	if err != nil {
		return err
	}
	defer node.Close()
	return c.forEach(ctx, op, peers, func(text string) error {
		id, err := peerID(text)
		if err != nil {
			return err
		}
		return do(node, id)
	})
}

// printPeers prints a table, and below it the errors.
func (c *console) printPeers(peers []client.Peer) {
	rows := [][]string{{"id", "address", "state", "pq", "rtt"}}
	for _, one := range peers {
		rows = append(rows, []string{sanitize([]byte(one.ID)), sanitize([]byte(one.Addr)), sanitize([]byte(one.State)), formatPQ(one), formatRTT(one)})
	}
	c.printTable(rows)
	c.printIntroduced(peers)
	for _, one := range peers {
		if one.LastError == "" {
			continue
		}
		c.print("\n  %s: %s\n", sanitize([]byte(one.ID)), sanitize([]byte(one.LastError)))
		if one.Next != "" {
			c.print("  %s\n", sanitize([]byte(one.Next)))
		}
		if one.RetryIn > 0 {
			c.print("  The next attempt is in %s.\n", time.Duration(one.RetryIn)*time.Millisecond)
		}
	}
}

// printIntroduced prints who was introduced, by each introducer.
func (c *console) printIntroduced(peers []client.Peer) {
	last := ""
	sorted := slices.SortedStableFunc(slices.Values(peers), func(a, b client.Peer) int { return strings.Compare(a.IntroducedBy, b.IntroducedBy) })
	for _, one := range sorted {
		if one.IntroducedBy == "" {
			continue
		}
		if one.IntroducedBy != last {
			c.print("\n  introduced by %s:\n", sanitize([]byte(one.IntroducedBy)))
		}
		last = one.IntroducedBy
		c.print("    %s\n", sanitize([]byte(one.ID)))
	}
}

// isConnected reports whether there is a connection to the peer.
func isConnected(peer client.Peer) bool {
	return peer.State == client.PeerActive || peer.State == client.PeerBusy
}

func formatPQ(peer client.Peer) string {
	switch {
	case !isConnected(peer):
		return "-"
	case peer.PQ:
		return "yes"
	default:
		return "no"
	}
}

func formatRTT(peer client.Peer) string {
	if !isConnected(peer) || peer.RTT <= 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f ms", peer.RTT)
}

type peersAdd struct {
	Peers []string `arg:"" name:"peer" help:"Nodes to connect to, as ID@HOST:PORT."`
	nodeFlags
	outputFlags
}

// Help is shown by peers add --help.
func (peersAdd) Help() string {
	return `The node keeps the connection until it stops, or for good if it runs with --persist. The other node accepts it only if it knows this node: add each to the other, or type there what micronode peers shows here. With micronode invite and micronode join one string does both.

Example:

    micronode peers add wq3…@10.0.0.7:9500`
}

// Run adds one peer after the other.
func (p *peersAdd) Run(ctx context.Context, c *console) error {
	node, err := p.dial()
	if err != nil {
		return err
	}
	defer node.Close()
	return c.forEach(ctx, "peers.add", p.Peers, func(text string) error {
		if err := checkPeer(text); err != nil {
			return err
		}
		peer, err := node.AddPeer(ctx, text)
		if err != nil {
			return err
		}
		if c.json {
			c.printJSON(peer)
		} else {
			c.print("%s  %s\n", sanitize([]byte(peer.ID)), sanitize([]byte(peer.State)))
		}
		return nil
	})
}

type peersRm struct {
	Peers []string `arg:"" name:"id" help:"The IDs of the peers; an @ and the rest are ignored."`
	nodeFlags
	outputFlags
}

// Help is shown by peers rm --help.
func (peersRm) Help() string {
	return `The connection is closed, and nobody introduces the node again until it is added or accepted. A peer from the configuration stays: remove it from overlay.peers. The nodes that it has introduced are removed, too.

Example:

    micronode peers rm wq3…`
}

// removedPeer is the output for a removed peer, with --json only.
type removedPeer struct {
	ID      string `json:"id"`
	Removed bool   `json:"removed"`
}

// Run removes one peer after the other.
func (p *peersRm) Run(ctx context.Context, c *console) error {
	return c.forEachPeer(ctx, "peers.rm", p.nodeFlags, p.Peers, func(node *client.Client, id string) error {
		if err := node.RemovePeer(ctx, id); err != nil {
			return err
		}
		if c.json {
			c.printJSON(removedPeer{id, true})
		}
		return nil
	})
}

// peerID is the ID of a peer that was given with or without its address.
func peerID(text string) (string, error) {
	id, _, _ := strings.Cut(text, "@")
	if _, err := oap.ParsePeerID(id); err != nil {
		return "", err
	}
	return id, nil
}

// checkPeer rejects anything but ID@HOST:PORT before a request is sent.
func checkPeer(text string) error {
	_, address, both := strings.Cut(text, "@")
	if _, port, err := net.SplitHostPort(address); !both || err != nil || port == "" {
		return &fault.Error{Op: "peer", Kind: fault.Malformed, Detail: fmt.Sprintf("%q is not ID@HOST:PORT", text),
			Next: "Copy it from the banner of the other node."}
	}
	_, err := peerID(text)
	return err
}
