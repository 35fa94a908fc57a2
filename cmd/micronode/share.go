package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"micronode/client"
	"micronode/fault"
	"micronode/internal/invitation"
	"micronode/internal/terminal"
)

type shareCommand struct {
	File  string        `arg:"" name:"file" complete:"file" help:"The file or folder to share. A single - is standard input."`
	Name  string        `placeholder:"NAME" help:"Its name: of this node, and of the file on the other machine. By default that of the file."`
	TTL   time.Duration `name:"ttl" placeholder:"TIME" help:"How long it is shared, such as 1h; 24h by default."`
	Uses  int           `placeholder:"N" help:"How many nodes may fetch it; 100 by default."`
	Local bool          `help:"For nodes on this machine only: the overlay does not listen on other addresses."`
	nodeFlags
	outputFlags
}

// Help is shown by share --help.
func (shareCommand) Help() string {
	return `It is stored, gets a name of this node, and one line is printed: the command to type on any other machine. Whoever has the line can fetch it while it is shared: from this node, or from others that have it. Those nodes are guests of this one: they come to know nothing else, and are refused when the share ends. micronode invite --list shows shares, and --withdraw ends one.

The line has the address of the content, so that it means the same for everybody, even after the name stands for something newer.

Examples:

    micronode share map.pmtiles
    micronode share site --ttl 1h
    tar c site | micronode share - --name site.tar`
}

// sharedOutput is the output for a share.
type sharedOutput struct {
	storedFile
	Line       string    `json:"line"` // the command for the other machine
	Invitation string    `json:"invitation"`
	ID         string    `json:"id"` // of the invitation, to withdraw it
	Expires    time.Time `json:"expires"`
	Uses       int       `json:"uses"`
	Addrs      []string  `json:"addrs"`
	Reach      string    `json:"reach"`
}

const shareOp = "share"

// Run stores a file or folder, and prints the line for the other machine.
func (s *shareCommand) Run(ctx context.Context, c *console) error {
	ttl, err := wholeSeconds(shareOp, s.TTL)
	if err != nil {
		return err
	}
	name := s.Name
	if name == "" {
		if name = shareName(s.File); name == "" {
			return &fault.Error{Op: shareOp, Kind: fault.Malformed, Detail: "there is no file name to share it under", Next: "Give one with --name NAME."}
		}
	}
	node, err := s.dial()
	if err != nil {
		return err
	}
	defer node.Close()
	if err := node.CheckName(ctx, nodeName(name)); err != nil {
		return err
	}
	put := putCommand{quiet: true, named: true}
	folder := isFolder(s.File)
	store := put.putFile
	if folder {
		store = put.putFolder
	}
	one, err := store(ctx, c, node, s.File)
	if err != nil {
		return err
	}
	if err := one.setName(ctx, node, nodeName(name)); err != nil {
		return err
	}
	made, err := node.Invite(ctx, client.InvitationRequest{TTL: ttl, Uses: s.Uses, Name: name, Local: s.Local, Object: &one.Address, Folder: folder})
	if err != nil {
		return err
	}
	line := "micronode get " + made.Invitation
	if c.json {
		c.printJSON(sharedOutput{one, line, made.Invitation, made.ID, made.Expires, made.Uses, made.Addrs, made.Reach})
		return nil
	}
	c.print("%s\n", line)
	c.noticeReleased(one.Released)
	c.notice("type that line on the other machine; it is for %s, until %s; %s", terminal.Pluralize(made.Uses, "node"), formatClock(made.Expires), made.Reach)
	return nil
}

// shareName is the name of a file, as long as a share has room for: the end of a
// long one is kept, because it says what kind of file it is.
func shareName(path string) string {
	if path == "-" {
		return ""
	}
	absolute, err := filepath.Abs(path)
	if err != nil {
		return ""
	}
	name := safeName(filepath.Base(absolute))
	const most = invitation.MaxName
	if len(name) <= most {
		return name
	}
	ext := filepath.Ext(name)
	if len(ext) > most/2 {
		ext = ""
	}
	return strings.ToValidUTF8(name[:most-len(ext)], "") + ext
}

// safeName is a name that can be that of a file here, and is shown as it is;
// empty if nothing is left of it. It may come from another machine.
func safeName(name string) string {
	name = strings.Map(func(r rune) rune {
		if r == '/' || r == '\\' || r == utf8.RuneError || unicode.IsControl(r) || !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, name)
	return strings.TrimLeft(strings.TrimSpace(name), ".")
}

// nodeName is what a file name becomes as a name of the node: in lower case, and
// without the @ that separates a name from its node.
func nodeName(name string) string {
	return strings.TrimSpace(strings.ReplaceAll(strings.ToLower(norm.NFC.String(bareName(name))), "@", "-"))
}

// getShare fetches what a line of micronode share stands for. If no node runs
// here, one runs in RAM for as long as it takes.
func (g *getCommand) getShare(ctx context.Context, c *console) error {
	with, err := invitation.Parse(g.ID)
	if err != nil {
		return err
	}
	if !with.Share {
		return &fault.Error{Op: getOp, Kind: fault.Malformed, Detail: "this is an invitation, and says nothing of what to fetch",
			Next: "Type: micronode join " + g.ID}
	}
	if g.Peer != "" || g.Local {
		return &fault.Error{Op: getOp, Kind: fault.Malformed, Detail: "a share says where to fetch from", Next: "Leave out --peer and --local."}
	}
	if err := g.chooseOutput(c, with); err != nil {
		return err
	}
	node, err := g.dial()
	if err != nil {
		return err
	}
	defer node.Close()
	if _, err := node.Status(ctx); g.mayRunNode() && isGone(err) {
		c.notice("no node is running; one runs in RAM until this is fetched")
		own, err := startTemporaryNode(ctx)
		if err != nil {
			return err
		}
		defer own.stop()
		node = own.client
	}
	// Whoever has it will do, even if the one that shares it does not answer.
	if _, failed := node.Join(ctx, g.ID); failed != nil {
		if _, err := node.FetchAnywhere(ctx, with.Object); err != nil {
			return failed
		}
	}
	g.ID = with.Object.String()
	return g.fetch(ctx, c, node)
}

// mayRunNode reports whether this command may run a node of its own: only if no
// other node was named.
func (g *getCommand) mayRunNode() bool {
	return g.Socket == "" && os.Getenv("MICRO_SOCKET") == "" && os.Getenv("MICRO_URL") == ""
}

// chooseOutput chooses where to write to, if -o does not: a file or folder with
// the name of the share. What is there is not replaced without being asked for.
func (g *getCommand) chooseOutput(c *console, with invitation.Invitation) error {
	if g.Output == "" {
		if g.Output = safeName(with.Name); g.Output == "" {
			g.Output = "shared"
		}
		if info, err := os.Lstat(g.Output); err == nil && (!with.Folder || !info.IsDir()) && !g.Force && !c.inTerminal {
			return &fault.Error{Op: getOp, Kind: fault.Conflict, Detail: g.Output + " exists here already", Next: "Choose another place with -o PATH, or replace it with --force."}
		}
	}
	if with.Folder && g.Output != "-" && !strings.HasSuffix(g.Output, "/") {
		g.Output += "/"
	}
	return nil
}
