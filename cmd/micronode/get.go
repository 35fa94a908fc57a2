package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"unicode/utf8"

	"micronode/b3"
	"micronode/client"
	"micronode/fault"
)

type getCommand struct {
	Address string `arg:"" help:"The address of the object, such as b3:af13…"`
	Output  string `short:"o" placeholder:"PATH" complete:"file" help:"Write to this file instead of standard output. A single - is standard output, even if it is a terminal."`
	Peer    string `placeholder:"ID" complete:"any" help:"If the node does not have the object, let it fetch it from this peer, or from any, and keep it."`
	target
	printing
}

// Help is shown by get --help.
func (getCommand) Help() string {
	return `The bytes are verified as they come. With -o the file appears, or is replaced, only when all of them were right. Without -o they are passed on as they come, and the exit code tells whether the last one was right too.

Examples:

    micronode get b3:af13… -o map.pmtiles
    micronode get b3:af13… | tar x
    micronode get b3:af13… --peer any -o map.pmtiles`
}

const getOp = "get"

// Run fetches the object.
func (g *getCommand) Run(ctx context.Context, c *console) error {
	address, err := parseAddress(g.Address)
	if err != nil {
		return err
	}
	toStdout := g.Output == "" || g.Output == "-"
	if toStdout && c.json {
		return &fault.Error{Op: getOp, Kind: fault.Malformed, Detail: "--json and the object cannot both go to standard output",
			Next: "Name a file for the object with -o PATH."}
	}
	peer, err := g.peer()
	if err != nil {
		return err
	}
	node, err := g.dial()
	if err != nil {
		return err
	}
	defer node.Close()
	if g.Peer != "" {
		if _, err := node.Fetch(ctx, address, peer); err != nil {
			return err
		}
	}
	if toStdout {
		return g.toStdout(ctx, c, node, address)
	}
	size, err := g.toFile(ctx, c, node, address)
	if err == nil && c.json {
		c.printJSON(stored{g.Output, address, size})
	}
	return err
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
