package main

import (
	"net"
	"net/netip"
	"slices"
	"strings"

	"micronode/internal/node"
	"micronode/internal/terminal"
)

// amnesiaLine is the notice that a node without --persist shows everywhere.
const amnesiaLine = "AMNESIA: everything is gone at exit"

// startedEvent is the banner as JSON.
type startedEvent struct {
	Event     string   `json:"event"`
	PeerID    string   `json:"peer_id"`
	Ephemeral bool     `json:"ephemeral"`
	Version   string   `json:"version"`
	Profile   string   `json:"profile"`
	HTTP      string   `json:"http"`
	Admin     string   `json:"admin"`
	Overlay   string   `json:"overlay,omitempty"` // ID@HOST:PORT
	DHT       []string `json:"dht,omitempty"`     // multiaddrs
	Socket    string   `json:"socket"`
	Parts     []string `json:"parts,omitempty"` // with --only
	Amnesia   bool     `json:"amnesia"`
	Folder    string   `json:"folder,omitempty"`
	Confined  string   `json:"confined"`
	Open      bool     `json:"open"`
	Packs     []string `json:"packs,omitempty"`
	Origins   []string `json:"origins,omitempty"`
	Domains   []string `json:"domains,omitempty"` // URLs under which everybody sees the gateway
	LAN       []string `json:"lan,omitempty"`     // URLs in private networks, for reads
	Public    []string `json:"public,omitempty"`  // groups of reads that are open to strangers
	Notes     []string `json:"notes,omitempty"`   // what the start found and changed
}

// printBanner prints the addresses of the node and the command to type next.
// The listeners are open by then, so the addresses can be used. overlay is its
// listen address, or empty if it does not listen.
func (c *console) printBanner(info node.Info, overlay, socket string) {
	if c.json {
		c.printJSON(startedEvent{"started", info.PeerID, info.Ephemeral, info.Version, info.Profile, info.HTTP, info.Admin,
			peerSpec(info.PeerID, overlay), info.DHT, info.Socket, info.Parts, info.Amnesia, info.Folder, info.Confined, info.Open, info.Packs, info.Origins, info.Domains, info.LAN, info.Public, info.Notes})
		return
	}
	c.print("micronode %s is running\n\n", info.Version)
	if len(info.Parts) > 0 {
		c.print("  parts    %s\n", strings.Join(info.Parts, ", "))
		if socket == "" {
			socket = info.Socket // no part listens on the default socket
		}
	}
	gatewayLabel := "gateway"
	if len(info.Parts) > 0 && !slices.Contains(info.Parts, gatewayLabel) {
		gatewayLabel = "http   " // it serves only its own parts
	}
	c.print("  %s  %s\n  admin    %s\n", gatewayLabel, info.HTTP, info.Admin)
	if overlay != "" {
		c.print("  overlay  %s\n", peerSpec(info.PeerID, overlay))
	}
	c.printURLs("dht     ", info.DHT)
	c.print("  socket   %s\n  peer ID  %s\n", terminal.FormatSocket(info.Socket), info.PeerID)
	if info.Ephemeral {
		c.print("           (a new one at each start; keep one with --identity file:PATH)\n")
	}
	if info.Folder != "" {
		c.print("  folder   %s\n", info.Folder)
	}
	c.print("  disk     %s\n", info.Confined)
	c.printURLs("map     ", info.Packs)
	c.printURLs("cache   ", info.Origins)
	c.printURLs("public  ", info.Domains)
	c.printURLs("lan     ", info.LAN)
	if len(info.LAN) > 0 {
		c.print("           (without TLS, for reads only)\n")
		c.printQR(info.LAN[0])
	}
	if len(info.Public) > 0 {
		c.print("  public   %s: strangers may read these\n", strings.Join(info.Public, ", "))
	}
	c.printURLs("note    ", info.Notes)
	c.print("\n")
	if info.Amnesia {
		c.print("  %s\n", c.paint(terminal.Yellow, amnesiaLine))
	}
	if info.Open {
		c.print("  %s\n", c.paint(terminal.Red, "OPEN: anyone who can reach a listener has full access"))
	}
	next := "put FILE"
	if gatewayLabel != "gateway" {
		next = "status" // objects are put at the gateway
	}
	c.print("\nNow type, in another terminal:\n\n")
	c.print("  micronode %s%s\n\nCtrl-C drains the node and stops it.\n\n", next, terminal.SocketFlag(socket))
}

// peerSpec is what another node's --peer takes. If a node listens on all
// addresses of a machine, it does not know which one others can reach.
func peerSpec(id, overlay string) string {
	if overlay == "" {
		return ""
	}
	if host, port, err := net.SplitHostPort(overlay); err == nil && isUnspecified(host) {
		overlay = net.JoinHostPort("HOST", port)
	}
	return id + "@" + overlay
}

func isUnspecified(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "" || err == nil && ip.IsUnspecified()
}

// maxBannerURLs is how many URLs of one kind the banner prints.
const maxBannerURLs = 5

// printURLs prints the URLs of one kind.
func (c *console) printURLs(label string, urls []string) {
	for _, one := range urls[:min(len(urls), maxBannerURLs)] {
		c.print("  %s %s\n", label, one)
	}
	if more := len(urls) - maxBannerURLs; more > 0 {
		c.print("           and %d more\n", more)
	}
}
