package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"micronode/b3"
	"micronode/client"
	"micronode/fault"
)

type getCommand struct {
	ID     string `arg:"" name:"address" help:"What to fetch: an address, such as b3:af13…, or a name, such as name:docs."`
	Output string `short:"o" placeholder:"PATH" complete:"file" help:"Write to this file or folder instead of standard output. A single - is standard output, even if it is a terminal."`
	Peer   string `placeholder:"ID" complete:"any" help:"If the node does not have the object, let it fetch it from this peer, or from any, and keep it."`
	Local  bool   `help:"Take only what the node has itself; do not let it look elsewhere."`
	target
	printing
}

// Help is shown by get --help.
func (getCommand) Help() string {
	return `The bytes are verified as they come. With -o the file appears, or is replaced, only when all of them were right. Without -o they are passed on as they come, and the exit code tells whether the last one was right too.

What the node does not have, it fetches from whoever has it, and keeps it as something that can be had again.

If the name stands for a folder, its files are fetched into the folder -o, several at once, from as many nodes as have them. Files that are there and right are kept, so what was broken off goes on when the command is typed again; wrong ones are replaced; others are left alone. Nothing is written outside of the folder. Without -o the files are listed. The address of a manifest is fetched as a folder if -o is one, or ends with a slash.

Examples:

    micronode get b3:af13… -o map.pmtiles
    micronode get b3:af13… | tar x
    micronode get b3:af13… --peer any -o map.pmtiles
    micronode get name:docs
    micronode get name:docs -o site
    micronode get name:docs@wq3… -o site`
}

const getOp = "get"

// found is what is to be fetched.
type found struct {
	name     string // empty if it was named by its address
	address  b3.Address
	manifest *client.Manifest // nil if it is not to be taken for a folder
}

// Run fetches the object, or the folder.
func (g *getCommand) Run(ctx context.Context, c *console) error {
	if err := g.check(c); err != nil {
		return err
	}
	node, err := g.dial()
	if err != nil {
		return err
	}
	defer node.Close()
	what, err := g.find(ctx, node)
	if err != nil {
		return err
	}
	switch {
	case what.manifest != nil && g.Output == "":
		g.list(c, what)
		return nil
	case what.manifest != nil && g.Output != "-":
		return g.folder(ctx, c, node, what)
	case g.Output == "" || g.Output == "-":
		return g.toStdout(ctx, c, node, what.address)
	}
	size, err := g.toFile(ctx, c, node, what.address)
	if err == nil && c.json {
		c.printJSON(stored{File: g.Output, Address: what.address, Size: size, Name: what.name})
	}
	return err
}

// named tells whether a name is asked for, not an address.
func (g *getCommand) named() bool { return strings.HasPrefix(g.ID, namePrefix) }

// check refuses, before anybody is asked, what makes no sense.
func (g *getCommand) check(c *console) error {
	if g.Peer != "" && g.Local {
		return &fault.Error{Op: getOp, Kind: fault.Malformed, Detail: "--peer and --local contradict each other", Next: "Leave one of them out."}
	}
	if _, err := g.peer(); err != nil {
		return err
	}
	if g.named() {
		return nil
	}
	if _, err := parseAddress(g.ID); err != nil {
		return err
	}
	if g.Output == "" || g.Output == "-" {
		return g.noJSON(c)
	}
	return nil
}

// noJSON is for what goes to standard output as it is.
func (g *getCommand) noJSON(c *console) error {
	if !c.json {
		return nil
	}
	return &fault.Error{Op: getOp, Kind: fault.Malformed, Detail: "--json and the object cannot both go to standard output",
		Next: "Name a file for the object with -o PATH."}
}

// find learns what is asked for, and makes sure that the node has it.
func (g *getCommand) find(ctx context.Context, node *client.Client) (what found, err error) {
	if g.named() {
		resolved, err := node.Resolve(ctx, g.ID, client.ResolveOptions{})
		if err != nil {
			return found{}, err
		}
		what.name, what.address = bareName(resolved.Key), resolved.Manifest
	} else if what.address, err = parseAddress(g.ID); err != nil {
		return found{}, err
	}
	if err := g.ensure(ctx, node, what.address); err != nil {
		return found{}, err
	}
	folder := g.Output != "-" && wantsFolder(g.Output)
	if !g.named() && !folder {
		return what, nil // whatever it is, it is fetched as it is
	}
	manifest, err := node.Manifest(ctx, what.address)
	switch {
	case err == nil:
		what.manifest = &manifest
	case !errors.Is(err, client.ErrNotManifest):
		return found{}, err
	case folder:
		return found{}, &fault.Error{Op: getOp, Kind: fault.Malformed, Detail: g.ID + " is one file, and cannot become the folder " + g.Output,
			Next: "Name a file; this is a folder."}
	}
	return what, nil
}

// ensure makes the node have an object.
func (g *getCommand) ensure(ctx context.Context, node *client.Client, address b3.Address) error {
	if g.Peer == "" {
		if _, err := node.Stat(ctx, address); fault.KindOf(err) != fault.NotFound {
			return nil // it is there, or the node fails: then the answer to what follows says why, and this one has no room for it
		}
	}
	return g.obtain(ctx, node, address)
}

// obtain makes the node get an object that it does not have.
func (g *getCommand) obtain(ctx context.Context, node *client.Client, address b3.Address) (err error) {
	if g.Peer != "" {
		peer, _ := g.peer() // it was looked at before
		_, err = node.Fetch(ctx, address, peer)
		return err
	}
	absent := &fault.Error{Op: getOp, Kind: fault.NotFound, Detail: "the node does not have " + address.String()}
	if g.Local {
		absent.Next = "Leave --local out to let it look elsewhere."
		return absent
	}
	_, err = node.FetchAnywhere(ctx, address)
	switch fault.KindOf(err) {
	case fault.NotFound, fault.MethodNotAllowed: // or there is no index at all
		absent.Detail += ", and knows nobody who has it"
		absent.Next = "Check the address, or let the node know others who may have it: micronode peers add ID@HOST:PORT"
	case fault.Unauthorized, fault.Forbidden:
		absent.Detail += ", and does not look for it without leave"
		absent.Next = "Give a token with the scope object:put in MICRO_TOKEN."
	default:
		return err
	}
	return absent
}

// peer is the ID of the peer to ask; empty for any.
func (g *getCommand) peer() (string, error) {
	if g.Peer == "" || g.Peer == "any" {
		return "", nil
	}
	return peerID(g.Peer)
}

// toFile writes a file that is whole or not there. What is not a file, such as
// a device or a pipe, is written to as it is: to replace it by a file is the
// last thing that anybody wants.
func (g *getCommand) toFile(ctx context.Context, c *console, node *client.Client, address b3.Address) (size int64, err error) {
	path := g.Output
	if whole, err := filepath.EvalSymlinks(path); err == nil {
		path = whole // the link stays, and what it points to is replaced
	}
	bar := &meter{}
	defer func() { bar.clear() }()
	progress := func(done, total int64) {
		if size == 0 {
			bar = c.newMeter(g.Output, total)
		}
		size = done
		bar.set(done, total)
	}
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() && !info.IsDir() {
		err = g.toDevice(ctx, node, address, path, progress)
		return size, err
	}
	err = node.Download(ctx, address, path, progress)
	return size, err
}

func (g *getCommand) toDevice(ctx context.Context, node *client.Client, address b3.Address, path string, progress func(done, total int64)) error {
	device, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return unwritable(g.Output, err)
	}
	object, err := node.Get(ctx, address, client.GetOptions{Progress: progress})
	if err == nil {
		defer object.Close()
		err = copyTo(device, g.Output, object)
	}
	if closed := device.Close(); err == nil {
		err = unwritable(g.Output, closed)
	}
	return err
}

// toStdout passes the bytes on as they come. Of an object that is not text, a
// terminal is spared.
func (g *getCommand) toStdout(ctx context.Context, c *console, node *client.Client, address b3.Address) error {
	if err := g.noJSON(c); err != nil {
		return err
	}
	bar := &meter{}
	defer func() { bar.clear() }()
	object, err := node.Get(ctx, address, client.GetOptions{Progress: func(done, total int64) { bar.set(done, total) }})
	if err != nil {
		return err
	}
	defer object.Close()
	if !c.outTerminal {
		bar = c.newMeter(address.String(), object.Size())
		return copyTo(c.out, "standard output", object)
	}
	in := bufio.NewReader(object)
	begin, err := in.Peek(in.Size())
	if err != nil && err != io.EOF {
		return err
	}
	if g.Output != "-" && binary(begin) {
		return &fault.Error{Op: getOp, Kind: fault.Malformed, Detail: "the object is not text, and would mess up the terminal",
			Next: "Write it to a file with -o PATH, or say -o - to see it all the same."}
	}
	return copyTo(c.out, "standard output", in)
}

// binary guesses, from its beginning, that something is not meant to be read.
func binary(begin []byte) bool {
	for n := 0; n < utf8.UTFMax && len(begin) > 0 && !utf8.Valid(begin); n++ {
		begin = begin[:len(begin)-1] // a character may be cut in two at the end
	}
	return bytes.IndexByte(begin, 0) >= 0 || !utf8.Valid(begin)
}

// copyTo passes the object on. The client types its own errors, so one that has
// no type is of the side that is written to.
func copyTo(to io.Writer, name string, from io.Reader) error {
	_, err := io.Copy(to, from)
	return unwritable(name, err)
}

func unwritable(name string, err error) error {
	if _, typed := errors.AsType[*fault.Error](err); err == nil || typed {
		return err
	}
	return unwritten(getOp, name, err)
}
