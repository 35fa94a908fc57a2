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
	Add  peersAdd  `cmd:"" help:"Connect the node to others."`
	Rm   peersRm   `cmd:"" help:"Let the node forget others."`
}

// Help is shown by peers --help.
func (peersCommand) Help() string {
	return `A node is named as ID@HOST:PORT, as its banner prints it. The ID is the hash of its key, so nobody else can answer in its place.

Examples:

    micronode peers
    micronode peers add wq3…@10.0.0.7:9500
    micronode peers rm wq3…`
}

type peersList struct {
	target
	printing
}

// Help is shown by peers list --help.
func (peersList) Help() string {
	return `A peer is dialing, active, busy (it takes messages more slowly than they come) or in backoff (it could not be reached, and is tried again later). The column pq says whether the keys were exchanged so that a quantum computer does not help.

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
		c.remark("the node has no peers\nAdd one: micronode peers add ID@HOST:PORT")
	default:
		c.peers(peers)
	}
	return nil
}

// peers prints a table, and below it what is wrong.
func (c *console) peers(peers []client.Peer) {
	rows := [][]string{{"id", "address", "state", "pq", "rtt"}}
	for _, one := range peers {
		rows = append(rows, []string{visible([]byte(one.ID)), visible([]byte(one.Addr)), visible([]byte(one.State)), pq(one), rtt(one)})
	}
	c.table(rows)
	for _, one := range peers {
		if one.LastError == "" {
			continue
		}
		c.print("\n  %s: %s\n", visible([]byte(one.ID)), visible([]byte(one.LastError)))
		if one.RetryIn > 0 {
			c.print("  It is tried again in %s.\n", time.Duration(one.RetryIn)*time.Millisecond)
		}
	}
}

// connected tells whether there is a connection to say something about.
func connected(peer client.Peer) bool {
	return peer.State == client.PeerActive || peer.State == client.PeerBusy
}

func pq(peer client.Peer) string {
	switch {
	case !connected(peer):
		return "-"
	case peer.PQ:
		return "yes"
	default:
		return "no"
	}
}

func rtt(peer client.Peer) string {
	if !connected(peer) || peer.RTT <= 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f ms", peer.RTT)
}

type peersAdd struct {
	Peers []string `arg:"" name:"peer" help:"Nodes to connect to, as ID@HOST:PORT."`
	target
	printing
}

// Help is shown by peers add --help.
func (peersAdd) Help() string {
	return `The node keeps up a connection until it stops. The other one lets it in only if it knows this node too: add each to the other. What is to last longer is given to it at its start, with run --peer or as overlay.peers in the configuration.

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
	return c.each(ctx, "peers.add", p.Peers, func(text string) error {
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
			c.print("%s  %s\n", visible([]byte(peer.ID)), visible([]byte(peer.State)))
		}
		return nil
	})
}

type peersRm struct {
	Peers []string `arg:"" name:"id" help:"The IDs of the peers; what follows an @ does not matter."`
	target
	printing
}

// Help is shown by peers rm --help.
func (peersRm) Help() string {
	return `The connection is closed. A peer that comes from the configuration is not forgotten: take it out of overlay.peers. The other node may still connect to this one.

Example:

    micronode peers rm wq3…`
}

// forgotten is what is printed for a peer, with --json only.
type forgotten struct {
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
	return c.each(ctx, "peers.rm", p.Peers, func(text string) error {
		id, err := peerID(text)
		if err != nil {
			return err
		}
		if err := node.RemovePeer(ctx, id); err != nil {
			return err
		}
		if c.json {
			c.printJSON(forgotten{id, true})
		}
		return nil
	})
}

// peerID is the ID of a peer that was named with or without its address.
func peerID(text string) (string, error) {
	id, _, _ := strings.Cut(text, "@")
	if _, err := oap.ParsePeerID(id); err != nil {
		return "", err
	}
	return id, nil
}

// checkPeer refuses, before anybody is asked, what cannot be ID@HOST:PORT.
func checkPeer(text string) error {
	_, address, both := strings.Cut(text, "@")
	if _, port, err := net.SplitHostPort(address); !both || err != nil || port == "" {
		return &fault.Error{Op: "peer", Kind: fault.Malformed, Detail: fmt.Sprintf("%q is not ID@HOST:PORT", text),
			Next: "Give it as the banner of the other node prints it."}
	}
	_, err := peerID(text)
	return err
}
