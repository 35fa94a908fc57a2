package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"unicode/utf8"

	"micronode/b3"
	"micronode/client"
	"micronode/fault"
	"micronode/internal/invitation"
	"micronode/internal/terminal"
)

type putCommand struct {
	Files  []string `arg:"" name:"file" complete:"file" help:"Files and folders to store. A single - is standard input."`
	Name   string   `placeholder:"NAME" help:"Set this name of the node to the stored object or folder."`
	Follow bool     `help:"Store a file that a link in a folder leads to, if it is in the folder too. Without it links are skipped."`
	quiet  bool     // no line for each file of a folder
	named  bool     // what is stored is kept for a name
	nodeFlags
	outputFlags
}

// Help is shown by put --help.
func (putCommand) Help() string {
	return `The address of an object is the BLAKE3 of its bytes, so the same bytes always have the same address. The command computes it too, and compares it with the node's.

One line is printed for each file. If one of several files fails, the others are still stored. What the node has already is not sent again: neither whole objects, nor what it has kept of a file of 8 MiB or more whose put was interrupted. Run the command again to continue.

For a folder, all files are stored, several at once, and then a manifest with their addresses; its line is the last. Links, devices and empty folders are skipped, the first two with a line each; --follow stores the files that links inside of the folder lead to. With --name the name is checked first, and set after everything is stored. It keeps what it stands for: what it stood for before may be evicted from then on, unless it is pinned, or another name stands for it. Without --name everything is pinned.

Examples:

    micronode put map.pmtiles
    micronode put *.jpg --json
    micronode put site --name docs
    tar c site | micronode put -`
}

// storedFile is the output for a file.
type storedFile struct {
	File    string     `json:"file"`
	Address b3.Address `json:"address"`
	Size    int64      `json:"size"`
	Name    string     `json:"name,omitempty"`    // the name that was set for it
	Skipped int        `json:"skipped,omitempty"` // links and devices in the folder that are not stored

	Copied int64 `json:"copied,omitempty"` // bytes that did not move: the node had them from an older version

	Shared   string          `json:"shared,omitempty"`  // the name as other nodes know it
	Released client.Released `json:"released,omitzero"` // of what the name stood for before
}

const putOp = "put"

// Run stores one file after the other.
func (p *putCommand) Run(ctx context.Context, c *console) error {
	if p.Name != "" && len(p.Files) > 1 {
		return &fault.Error{Op: putOp, Kind: fault.Malformed, Detail: "--name takes one file or folder, and several were given",
			Next: "Move them into one folder and store it, or store them one by one."}
	}
	node, err := p.dial()
	if err != nil {
		return err
	}
	defer node.Close()
	if p.named = p.Name != ""; p.named {
		if err := node.CheckName(ctx, bareName(p.Name)); err != nil {
			return err
		}
	}
	return c.forEach(ctx, putOp, p.Files, func(name string) error {
		folder := isFolder(name)
		put := p.putFile
		if folder {
			put = p.putFolder
		}
		one, err := put(ctx, c, node, name)
		if err != nil {
			return err
		}
		if !p.named {
			c.printStored(one)
			return nil
		}
		err = one.setName(ctx, node, bareName(p.Name))
		c.printStored(one) // even if the name could not be set
		if err == nil && !c.json {
			c.noticeReleased(one.Released)
			c.noticeShared(one, folder)
		}
		return err
	})
}

// setName sets a name to what was stored for it.
func (s *storedFile) setName(ctx context.Context, node *client.Client, name string) error {
	record, err := node.SetName(ctx, name, s.Address)
	if err != nil {
		return err
	}
	s.Name, s.Shared, s.Released = record.Name, record.Shared, record.Released
	if record.Missing > 0 {
		return fault.New(putOp, fault.NotFound, "%s of name:%s were removed while it was put", terminal.Pluralize(record.Missing, "object"), name).
			Advise("Run the command again: it sends only what is missing.")
	}
	return nil
}

// noticeReleased says what became of what a name stood for before.
func (c *console) noticeReleased(released client.Released) {
	switch {
	case released.Kept != "":
		c.notice("what the name stood for before stays pinned: %s", sanitize([]byte(released.Kept)))
	case released.Objects > 0:
		c.notice("unpinned what the name stood for before: %s, %s; micronode gc removes it", terminal.Pluralize(released.Objects, "object"), terminal.FormatBytes(float64(released.Bytes)))
	}
}

// noticeShared says what to type on a machine that is connected with the node.
func (c *console) noticeShared(one storedFile, folder bool) {
	if one.Shared == "" {
		return // the node is of an earlier version
	}
	target := filepath.Base(filepath.Clean(one.File))
	if one.File == "-" || target == "." || target == ".." || target == "/" {
		target = "COPY"
	}
	if folder {
		target += "/"
	}
	c.notice("on a machine that is connected: micronode get %s -o %s", quoteForShell(one.Shared), quoteForShell(target))
}

// needsQuotes reports whether a shell may take a character for something else.
func needsQuotes(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:@", r))
}

// quoteForShell is a text as it is typed in a shell.
func quoteForShell(text string) string {
	text = sanitize([]byte(text))
	if text != "" && !strings.ContainsFunc(text, needsQuotes) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// putFile stores one file.
func (p *putCommand) putFile(ctx context.Context, c *console, node *client.Client, name string) (storedFile, error) {
	source, size, err := c.open(name)
	if err != nil {
		return storedFile{}, err
	}
	defer source.Close()
	bar := c.newProgressBar(name, size)
	defer bar.clear()
	object, err := node.Put(ctx, source, client.PutOptions{Progress: bar.set, Named: p.named, Resume: true})
	return storedFile{File: name, Address: object.Address, Size: object.Size}, err
}

func (c *console) printStored(one storedFile) {
	switch {
	case c.json:
		c.printJSON(one)
	case one.Name != "":
		c.print("%s  %s  name:%s\n", one.Address, one.File, sanitize([]byte(one.Name)))
	default:
		c.print("%s  %s\n", one.Address, one.File)
	}
}

type getCommand struct {
	ID     string `arg:"" name:"address" help:"What to fetch: an address, such as b3:af13…, a name, such as name:docs, or the string that micronode share printed."`
	Output string `short:"o" placeholder:"PATH" complete:"file" help:"Write to this file or folder instead of standard output. A single - is standard output, even if it is a terminal."`
	Peer   string `placeholder:"ID" complete:"any" help:"If the node does not have the object, fetch it from this peer, or from any, and cache it."`
	Local  bool   `help:"Use only what the node has; do not fetch from other nodes."`
	Force  bool   `short:"f" help:"Replace a file that exists without asking."`
	copied int64  // atomic: bytes that did not move: the node had them from an older version
	nodeFlags
	outputFlags
}

// Help is shown by get --help.
func (getCommand) Help() string {
	return `The bytes are verified as they arrive. With -o the file is created or replaced only after all bytes are verified. Without -o verified bytes are printed as they arrive, and the exit code is 0 only if all of them are verified.

The node fetches a missing object from a provider and caches it; it may evict it later. If it has an older version, that is what the name stood for before, or the file with the same path of the folder, only what differs moves.

If the name stands for a folder, its files are fetched into the folder -o, several at once, from all nodes that have them. Files that exist and are correct are kept, so that an interrupted fetch continues when the command runs again; wrong files are replaced; other files are left alone. Nothing is written outside of the folder. Without -o the files are listed. The address of a manifest is fetched as a folder if -o is a folder, or ends with a slash.

On a terminal, a file that exists is replaced only after a question, or with --force. The string of micronode share needs no node here: without one, a node runs in RAM for as long as it takes.

Examples:

    micronode get b3:af13… -o map.pmtiles
    micronode get b3:af13… | tar x
    micronode get b3:af13… --peer any -o map.pmtiles
    micronode get name:docs
    micronode get docs -o site
    micronode get docs/index.html -o index.html
    micronode get name:docs@wq3… -o site
    micronode get mn1_i…`
}

const getOp = "get"

// resolvedObject is the object to fetch.
type resolvedObject struct {
	name     string // empty if it was given by its address
	address  b3.Address
	manifest *client.Manifest // nil if it is not treated as a folder
	missing  bool             // the node fetches it while it is read
}

// explain says more about an object that the node could not fetch.
func (r resolvedObject) explain(err error) error {
	if err == nil || !r.missing {
		return err
	}
	return explainMissing(r.address, err)
}

// Run fetches the object, or the folder.
func (g *getCommand) Run(ctx context.Context, c *console) error {
	if invitation.Contains(g.ID) {
		return g.getShare(ctx, c)
	}
	if err := g.validate(c); err != nil {
		return err
	}
	node, err := g.dial()
	if err != nil {
		return err
	}
	defer node.Close()
	return g.fetch(ctx, c, node)
}

// fetch fetches what the ID stands for, and writes it to where it belongs.
func (g *getCommand) fetch(ctx context.Context, c *console, node *client.Client) error {
	what, err := g.resolve(ctx, node)
	if err != nil {
		return err
	}
	switch {
	case what.manifest != nil && g.Output == "":
		g.printListing(c, what)
		return nil
	case what.manifest != nil && g.Output != "-":
		return g.getFolder(ctx, c, node, what)
	case g.Output == "" || g.Output == "-":
		return g.toStdout(ctx, c, node, what)
	}
	if err := g.confirmReplace(ctx, c, what.address); err != nil {
		return err
	}
	size, err := g.toFile(ctx, c, node, what)
	if err == nil && c.json {
		c.printJSON(storedFile{File: g.Output, Address: what.address, Size: size, Name: what.name, Copied: atomic.LoadInt64(&g.copied)})
	}
	if err == nil {
		g.noticeCopied(c)
	}
	return err
}

// noticeCopied says how much did not move.
func (g *getCommand) noticeCopied(c *console) {
	if n := atomic.LoadInt64(&g.copied); n > 0 && !c.json {
		c.notice("%s did not move: the node had them from an older version", terminal.FormatBytes(float64(n)))
	}
}

// isName reports whether the ID is a name, not an address.
func (g *getCommand) isName() bool { return strings.HasPrefix(g.ID, namePrefix) }

// validate rejects invalid combinations before any request is sent.
func (g *getCommand) validate(c *console) error {
	if g.Peer != "" && g.Local {
		return &fault.Error{Op: getOp, Kind: fault.Malformed, Detail: "--peer and --local contradict each other", Next: "Leave one of them out."}
	}
	if _, err := g.peer(); err != nil {
		return err
	}
	if g.isName() {
		return nil
	}
	if _, err := parseAddress(g.ID); err != nil {
		if mayBeName(g.ID) {
			return nil
		}
		return err
	}
	if g.Output == "" || g.Output == "-" {
		return g.refuseJSON(c)
	}
	return nil
}

// refuseJSON refuses --json where bytes go to standard output unchanged.
func (g *getCommand) refuseJSON(c *console) error {
	if !c.json {
		return nil
	}
	return &fault.Error{Op: getOp, Kind: fault.Malformed, Detail: "--json and the object cannot both go to standard output",
		Next: "Name a file for the object with -o PATH."}
}

// resolve resolves the ID, and makes sure that the node has the object.
func (g *getCommand) resolve(ctx context.Context, node *client.Client) (what resolvedObject, err error) {
	if g.ID, err = expandName(ctx, node, g.ID); err != nil {
		return resolvedObject{}, err
	}
	if g.isName() {
		name, path, _ := strings.Cut(g.ID, "/")
		resolved, err := node.Resolve(ctx, name, client.ResolveOptions{})
		if err != nil {
			return resolvedObject{}, err
		}
		what.name, what.address = bareName(resolved.Key), resolved.Manifest
		if path != "" { // one file of the folder
			if err := g.ensureStored(ctx, node, what.address); err != nil {
				return resolvedObject{}, err
			}
			all, err := addressesOf(ctx, node, g.ID)
			if err != nil {
				return resolvedObject{}, err
			}
			what.name, what.address = bareName(g.ID), all[0]
			what.missing, err = g.isMissing(ctx, node, what.address)
			return what, err
		}
	} else if what.address, err = parseAddress(g.ID); err != nil {
		return resolvedObject{}, err
	}
	folder := g.Output != "-" && wantsFolder(g.Output)
	if !g.isName() && !folder {
		what.missing, err = g.isMissing(ctx, node, what.address)
		return what, err // it is fetched unchanged, whatever it is
	}
	if err := g.ensureStored(ctx, node, what.address); err != nil {
		return resolvedObject{}, err
	}
	manifest, err := node.Manifest(ctx, what.address)
	switch {
	case err == nil:
		what.manifest = &manifest
	case !errors.Is(err, client.ErrNotManifest):
		return resolvedObject{}, err
	case folder:
		return resolvedObject{}, &fault.Error{Op: getOp, Kind: fault.Malformed, Detail: g.ID + " is one file, and cannot become the folder " + g.Output,
			Next: "Name a file; this is a folder."}
	}
	return what, nil
}

// ensureStored makes sure that the node has an object.
func (g *getCommand) ensureStored(ctx context.Context, node *client.Client, address b3.Address) error {
	if g.Peer == "" {
		if _, err := node.Stat(ctx, address); fault.KindOf(err) != fault.NotFound {
			return nil // it is there, or the node fails: then the next call returns the reason, which the answer to HEAD cannot hold
		}
	}
	return g.fetchMissing(ctx, node, address)
}

// isMissing reports whether the node has to fetch an object that it does not
// have. One that comes from a certain peer is fetched before it is read.
func (g *getCommand) isMissing(ctx context.Context, node *client.Client, address b3.Address) (bool, error) {
	if g.Peer != "" || g.Local {
		return false, g.ensureStored(ctx, node, address)
	}
	_, err := node.Stat(ctx, address)
	return fault.KindOf(err) == fault.NotFound, nil // if the node fails, the next call returns the reason
}

// explainMissing says more about an object that could not be fetched.
func explainMissing(address b3.Address, err error) error {
	absent := &fault.Error{Op: getOp, Kind: fault.NotFound, Detail: "the node does not have " + address.String()}
	switch fault.KindOf(err) {
	case fault.NotFound, fault.MethodNotAllowed: // or there is no index at all
		absent.Detail += ", and found no provider for it"
		absent.Next = "Check the address, or add a peer that may have it: micronode peers add ID@HOST:PORT"
	case fault.Unauthorized, fault.Forbidden:
		absent.Detail += ", and a fetch needs a token"
		absent.Next = "Set MICRO_TOKEN to a token with the scope object:put."
	default:
		return err
	}
	return absent
}

// fetchMissing makes the node fetch an object that it does not have.
func (g *getCommand) fetchMissing(ctx context.Context, node *client.Client, address b3.Address) error {
	if g.Peer != "" {
		peer, _ := g.peer() // validated before
		_, err := node.Fetch(ctx, address, peer)
		return err
	}
	if g.Local {
		return &fault.Error{Op: getOp, Kind: fault.NotFound, Detail: "the node does not have " + address.String(), Next: "Leave out --local to fetch it from other nodes."}
	}
	object, err := node.FetchAnywhere(ctx, address)
	atomic.AddInt64(&g.copied, object.Copied)
	return explainMissing(address, err)
}

// peer is the ID of the peer to ask; empty for any.
func (g *getCommand) peer() (string, error) {
	if g.Peer == "" || g.Peer == "any" {
		return "", nil
	}
	return peerID(g.Peer)
}

// confirmReplace asks before another file is replaced, if there is somebody to
// ask. A program that wrote -o has decided.
func (g *getCommand) confirmReplace(ctx context.Context, c *console, address b3.Address) error {
	info, err := os.Stat(g.Output)
	if err != nil || !info.Mode().IsRegular() || g.Force || !c.inTerminal || !c.errTerminal {
		return nil
	}
	if have, err := hashFile(g.Output); err == nil && have == address {
		return nil // it stays as it is
	}
	answer, err := c.prompt(ctx, fmt.Sprintf("micronode: %s exists and is something else. Replace it? [y/N] ", sanitize([]byte(g.Output))), false)
	if err != nil {
		return err
	}
	if answer = strings.ToLower(strings.TrimSpace(answer)); answer == "y" || answer == "yes" {
		return nil
	}
	return &fault.Error{Op: getOp, Kind: fault.Conflict, Detail: g.Output + " was not replaced", Next: "Choose another place with -o PATH, or replace it with --force."}
}

// hashFile returns the address of what is in a file.
func hashFile(path string) (b3.Address, error) {
	file, err := os.Open(path)
	if err != nil {
		return b3.Address{}, newOpenError(err)
	}
	defer file.Close()
	hasher := new(b3.Hasher)
	if _, err := io.Copy(hasher, file); err != nil {
		return b3.Address{}, newOpenError(err)
	}
	return hasher.Sum(), nil
}

// toFile writes the whole file or nothing. If the path is not a regular file,
// such as a device or a pipe, it is written to directly and not replaced.
func (g *getCommand) toFile(ctx context.Context, c *console, node *client.Client, what resolvedObject) (size int64, err error) {
	path := g.Output
	if whole, err := filepath.EvalSymlinks(path); err == nil {
		path = whole // the link stays, and its target is replaced
	}
	bar := &progressBar{}
	defer func() { bar.clear() }()
	progress := func(done, total int64) {
		if size == 0 {
			bar = c.newProgressBar(g.Output, total)
		}
		size = done
		bar.set(done, total)
	}
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() && !info.IsDir() {
		err = g.toDevice(ctx, node, what, path, progress)
		return size, err
	}
	err = node.DownloadWith(ctx, what.address, path, client.GetOptions{Fetch: what.missing, Progress: progress})
	return size, what.explain(err)
}

func (g *getCommand) toDevice(ctx context.Context, node *client.Client, what resolvedObject, path string, progress func(done, total int64)) error {
	device, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return wrapWriteError(g.Output, err)
	}
	object, err := node.Get(ctx, what.address, client.GetOptions{Fetch: what.missing, Progress: progress})
	err = what.explain(err)
	if err == nil {
		defer object.Close()
		err = copyTo(device, g.Output, object)
	}
	if closed := device.Close(); err == nil {
		err = wrapWriteError(g.Output, closed)
	}
	return err
}

// toStdout copies the bytes as they arrive. A terminal gets them sanitized,
// and nothing of an object that is not text.
func (g *getCommand) toStdout(ctx context.Context, c *console, node *client.Client, what resolvedObject) error {
	if err := g.refuseJSON(c); err != nil {
		return err
	}
	bar := &progressBar{}
	defer func() { bar.clear() }()
	object, err := node.Get(ctx, what.address, client.GetOptions{Fetch: what.missing, Progress: func(done, total int64) { bar.set(done, total) }})
	if err != nil {
		return what.explain(err)
	}
	defer object.Close()
	if !c.outTerminal {
		bar = c.newProgressBar(what.address.String(), object.Size())
		return copyTo(c.out, "standard output", object)
	}
	in := bufio.NewReader(object)
	begin, err := in.Peek(in.Size())
	if err != nil && err != io.EOF {
		return err
	}
	if g.Output != "-" && isBinary(begin) {
		return &fault.Error{Op: getOp, Kind: fault.Malformed, Detail: "the object is binary, and standard output is a terminal",
			Next: "Write it to a file with -o PATH, or print it with -o -."}
	}
	if g.Output == "-" {
		return copyTo(c.out, "standard output", in)
	}
	sanitized := &sanitizingWriter{to: c.out, noColours: true} // -o - or a pipe gets the bytes unchanged
	return errors.Join(copyTo(sanitized, "standard output", in), wrapWriteError("standard output", sanitized.Close()))
}

// isBinary guesses, from its first bytes, that an object is not text.
func isBinary(begin []byte) bool {
	for n := 0; n < utf8.UTFMax && len(begin) > 0 && !utf8.Valid(begin); n++ {
		begin = begin[:len(begin)-1] // a character may be cut in two at the end
	}
	return bytes.IndexByte(begin, 0) >= 0 || !utf8.Valid(begin)
}

// copyTo copies the object. The client's errors are typed, so an untyped one
// is of the destination.
func copyTo(to io.Writer, name string, from io.Reader) error {
	_, err := io.Copy(to, from)
	return wrapWriteError(name, err)
}

func wrapWriteError(name string, err error) error {
	if _, typed := errors.AsType[*fault.Error](err); err == nil || typed {
		return err
	}
	return newWriteError(getOp, name, err)
}

type rmCommand struct {
	Addresses []string `arg:"" name:"address" help:"What to remove: addresses, such as b3:af13…, or names, such as name:docs."`
	nodeFlags
	outputFlags
}

// Help is shown by rm --help.
func (rmCommand) Help() string {
	return `Only this node removes them. Other nodes keep their copies. With a name, the name is removed, and every object that it stood for and no other name of the node does. micronode name rm removes only the name.

Examples:

    micronode rm b3:af13…
    micronode rm name:docs`
}

// removedObject is the output for an object, with --json only.
type removedObject struct {
	Address b3.Address `json:"address"`
	Removed bool       `json:"removed"`
}

// Run removes one object after the other.
func (r *rmCommand) Run(ctx context.Context, c *console) error {
	node, err := r.dial()
	if err != nil {
		return err
	}
	defer node.Close()
	return c.forEach(ctx, "rm", r.Addresses, func(text string) error {
		var removed []b3.Address
		text, err := expandName(ctx, node, text)
		if err != nil {
			return err
		}
		if strings.HasPrefix(text, namePrefix) {
			removed, err = removeName(ctx, node, text)
		} else if removed, err = addressesOf(ctx, node, text); err == nil {
			err = node.Delete(ctx, removed[0])
		}
		if err != nil {
			return err
		}
		if c.json {
			for _, address := range removed {
				c.printJSON(removedObject{address, true})
			}
		}
		return nil
	})
}

// parseAddress reads the address of an object as the user types it.
func parseAddress(text string) (b3.Address, error) {
	const op = "address"
	if strings.HasPrefix(text, "name:") {
		return b3.Address{}, fault.New(op, fault.Malformed, "%q is a name; this command needs an address", text).
			Advise("Give the address of the name, as `micronode name get` prints it: b3: and 64 hex digits.")
	}
	address, err := b3.Parse(text)
	if bad, ok := errors.AsType[*b3.Malformed](err); ok {
		return b3.Address{}, fault.New(op, fault.Malformed, "%q is not an address: %s", bad.Input, bad.Reason).
			Advise("Give the address as `micronode put` printed it: b3: and 64 lower-case hex digits.")
	}
	return address, err
}
