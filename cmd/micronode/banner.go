package main

import (
	"net"
	"net/netip"
	"slices"
	"strings"

	"micronode/internal/node"
)

// amnesiaLine is what every surface says about a node that keeps nothing.
const amnesiaLine = "AMNESIA: everything is gone at exit"

// started is the banner, for a program.
type started struct {
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
}

// banner tells where the node is and what to type next. The listeners are open
// by then, so what it names can be used. The overlay is the address where it
// listens, or empty if it does not.
func (c *console) banner(info node.Info, overlay, socket string) {
	if c.json {
		c.printJSON(started{"started", info.PeerID, info.Ephemeral, info.Version, info.Profile, info.HTTP, info.Admin,
			peerName(info.PeerID, overlay), info.DHT, info.Socket, info.Parts, info.Amnesia, info.Folder, info.Confined, info.Open, info.Packs, info.Origins})
		return
	}
	c.print("micronode %s is running\n\n", info.Version)
	if len(info.Parts) > 0 {
		c.print("  parts    %s\n", strings.Join(info.Parts, ", "))
		if socket == "" {
			socket = info.Socket // the usual one is nobody's
		}
	}
	face := "gateway"
	if len(info.Parts) > 0 && !slices.Contains(info.Parts, face) {
		face = "http   " // it answers for its own parts
	}
	c.print("  %s  %s\n  admin    %s\n", face, info.HTTP, info.Admin)
	if overlay != "" {
		c.print("  overlay  %s\n", peerName(info.PeerID, overlay))
	}
	c.places("dht     ", info.DHT)
	c.print("  socket   %s\n  peer ID  %s\n", socketName(info.Socket), info.PeerID)
	if info.Ephemeral {
		c.print("           (a new one at each start; keep one with --identity file:PATH)\n")
	}
	if info.Folder != "" {
		c.print("  folder   %s\n", info.Folder)
	}
	c.print("  disk     %s\n", info.Confined)
	c.places("map     ", info.Packs)
	c.places("cache   ", info.Origins)
	c.print("\n")
	if info.Amnesia {
		c.print("  %s\n", c.paint(yellow, amnesiaLine))
	}
	if info.Open {
		c.print("  %s\n", c.paint(red, "OPEN: whoever reaches a listener may do everything"))
	}
	next := "put FILE"
	if face != "gateway" {
		next = "status" // objects are put at the gateway
	}
	c.print("\nNow type, in another terminal:\n\n")
	c.print("  micronode %s%s\n\nCtrl-C drains the node and stops it.\n\n", next, socketArgument(socket))
}

// peerName is what another node's --peer takes. Of a node that listens at all
// addresses of a machine, nobody here knows which one others can reach.
func peerName(id, overlay string) string {
	if overlay == "" {
		return ""
	}
	if host, port, err := net.SplitHostPort(overlay); err == nil && unspecified(host) {
		overlay = net.JoinHostPort("HOST", port)
	}
	return id + "@" + overlay
}

func unspecified(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "" || err == nil && ip.IsUnspecified()
}

// mostPlaces is how many URLs of one kind the banner names.
const mostPlaces = 5

// places names the URLs under which something is served.
func (c *console) places(what string, urls []string) {
	for _, one := range urls[:min(len(urls), mostPlaces)] {
		c.print("  %s %s\n", what, one)
	}
	if more := len(urls) - mostPlaces; more > 0 {
		c.print("           and %d more\n", more)
	}
}

// socketArgument is what a client must add to find a node on a socket that is
// not the usual one.
func socketArgument(socket string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%+=:,./_-"
	switch {
	case socket == "":
		return ""
	case strings.Trim(socket, plain) == "":
		return " --socket " + socket
	}
	return " --socket '" + strings.ReplaceAll(socket, "'", `'\''`) + "'"
}

// socketName shows an abstract socket as other tools do, with an @.
func socketName(socket string) string {
	if strings.ContainsAny(socket, "/@") {
		return socket
	}
	return "@" + socket
}
