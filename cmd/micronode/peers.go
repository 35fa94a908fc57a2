package main

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"micronode/client"
	"micronode/fault"
	"micronode/internal/oap"
)

type peersCommand struct {
	List peersList `cmd:"" default:"withargs" help:"Show the peers of the node; the same as peers alone."`
	Add  peersAdd  `cmd:"" help:"Add peers."`
	Rm   peersRm   `cmd:"" help:"Remove peers."`
}

// Help is shown by peers --help.
func (peersCommand) Help() string {
	return `A node is named as ID@HOST:PORT, as its banner prints it. The ID is the hash of its key, so that no other node can answer for it.

Examples:

    micronode peers
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
		c.notice("the node has no peers\nAdd one: micronode peers add ID@HOST:PORT")
	default:
		c.printPeers(peers)
	}
	return nil
}

// printPeers prints a table, and below it the errors.
func (c *console) printPeers(peers []client.Peer) {
	rows := [][]string{{"id", "address", "state", "pq", "rtt"}}
	for _, one := range peers {
		rows = append(rows, []string{sanitize([]byte(one.ID)), sanitize([]byte(one.Addr)), sanitize([]byte(one.State)), formatPQ(one), formatRTT(one)})
	}
	c.printTable(rows)
	for _, one := range peers {
		if one.LastError == "" {
			continue
		}
		c.print("\n  %s: %s\n", sanitize([]byte(one.ID)), sanitize([]byte(one.LastError)))
		if one.RetryIn > 0 {
			c.print("  The next attempt is in %s.\n", time.Duration(one.RetryIn)*time.Millisecond)
		}
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
	return `The node keeps the connection until it stops. The other node accepts it only if it knows this node: add each to the other. To keep a peer across restarts, use run --peer or overlay.peers in the configuration.

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
	return `The connection is closed. A peer from the configuration stays: remove it from overlay.peers. The other node may still connect to this one.

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
	node, err := p.dial()
	if err != nil {
		return err
	}
	defer node.Close()
	return c.forEach(ctx, "peers.rm", p.Peers, func(text string) error {
		id, err := peerID(text)
		if err != nil {
			return err
		}
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
