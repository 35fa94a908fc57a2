package node

import (
	"fmt"
	"strings"

	"micronode/internal/config"
)

// Lost says what ended with the node: what it had accepted, kept in memory only,
// and did not hand over. It is empty before the drain, and of a node with a
// folder or with engines on other machines.
func (n *Node) Lost() []string {
	if lost := n.lost.Load(); lost != nil {
		return *lost
	}
	return nil
}

// noteLosses records at the beginning of the drain what will be lost, and
// returns it as a text.
func (n *Node) noteLosses() string {
	lost := n.losses(n.config.Current().Value)
	n.lost.Store(&lost)
	return strings.Join(lost, ", ")
}

// losses lists what a node without a folder has in memory. It reads counters
// and never waits.
func (n *Node) losses(c Config) (lost []string) {
	if !n.amnesiac() {
		return nil
	}
	add := func(count int, one, more string) {
		switch {
		case count == 1:
			lost = append(lost, "1 "+one)
		case count > 1:
			lost = append(lost, fmt.Sprint(count, " ", more))
		}
	}
	if n.store != nil && c.Store.URL == "" {
		usage := n.store.Usage()
		size := fmt.Sprintf(" (%s)", config.Size(usage.Bytes))
		add(int(usage.Objects), "object"+size, "objects"+size)
	}
	if n.index != nil {
		names := 0
		for range n.index.OwnNames() {
			names++
		}
		add(names, "name", "names")
	}
	if n.mailbox != nil && c.Mailbox.URL == "" {
		usage := n.mailbox.Engine().Usage()
		add(int(usage.Messages), "message", "messages")
		add(int(usage.Dead), "dead letter", "dead letters")
		add(int(usage.Notes), "post", "posts")
	}
	if n.registry != nil && c.Registry.Storage.URL == "" {
		if head, exists := n.registry.Head(); exists {
			add(int(head.Version)+1, "version of the registry", "versions of the registry")
		}
		proposals, approvals := n.registry.PendingLoss()
		add(proposals, "open proposal", "open proposals")
		add(approvals, "approval", "approvals")
	}
	if n.overlay != nil {
		peers, invitations := n.overlay.PeersLoss()
		add(peers, "added peer", "added peers")
		add(invitations, "open invitation", "open invitations")
	}
	if n.graph != nil {
		_, edges := n.graph.Size()
		add(edges, "edge of the graph", "edges of the graph")
	}
	return lost
}
