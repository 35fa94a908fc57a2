package main

import (
	"strings"

	"micronode/internal/node"
)

// amnesiaLine is what every surface says about a node that keeps nothing.
const amnesiaLine = "AMNESIA: everything is gone at exit"

// started is the banner, for a program.
type started struct {
	Event     string `json:"event"`
	PeerID    string `json:"peer_id"`
	Ephemeral bool   `json:"ephemeral"`
	Version   string `json:"version"`
	Profile   string `json:"profile"`
	HTTP      string `json:"http"`
	Admin     string `json:"admin"`
	Socket    string `json:"socket"`
	Amnesia   bool   `json:"amnesia"`
	Confined  string `json:"confined"`
	Open      bool   `json:"open"`
}

// banner tells where the node is and what to type next. The listeners are open
// by then, so what it names can be used.
func (c *console) banner(info node.Info, socket string) {
	if c.json {
		c.printJSON(started{"started", info.PeerID, info.Ephemeral, info.Version, info.Profile, info.HTTP, info.Admin,
			info.Socket, info.Amnesia, info.Confined, info.Open})
		return
	}
	c.print("micronode %s is running\n\n", info.Version)
	c.print("  gateway  %s\n  admin    %s\n  socket   %s\n  peer ID  %s\n", info.HTTP, info.Admin, socketName(info.Socket), info.PeerID)
	if info.Ephemeral {
		c.print("           (a new one at each start; keep one with --identity file:PATH)\n")
	}
	c.print("  disk     %s\n\n", info.Confined)
	if info.Amnesia {
		c.print("  %s\n", c.paint(yellow, amnesiaLine))
	}
	if info.Open {
		c.print("  %s\n", c.paint(red, "OPEN: whoever reaches a listener may do everything"))
	}
	c.print("\nNow type, in another terminal:\n\n")
	c.print("  micronode put FILE%s\n\nCtrl-C drains the node and stops it.\n\n", socketArgument(socket))
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
