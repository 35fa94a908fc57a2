package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"micronode/b3"
	"micronode/client"
	"micronode/internal/terminal"
)

// isFolder reports whether a path is a folder, or a link to one.
func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// wantsFolder reports whether a path names a folder, whether it exists or not.
func wantsFolder(path string) bool {
	return strings.HasSuffix(path, string(filepath.Separator)) || isFolder(path)
}

// folderProgress shows the progress of all files of a folder as one bar. The
// size is known when the first of them has begun.
type folderProgress struct {
	// set at construction
	console *console
	name    string

	init sync.Once
	bar  *progressBar // set once
}

// set may be called by several goroutines at once.
func (f *folderProgress) set(done, total int64) {
	f.init.Do(func() { f.bar = f.console.newProgressBar(f.name, total) })
	f.bar.set(done, total)
}

// clear must be called when set is not called any more.
func (f *folderProgress) clear() {
	if f.bar != nil {
		f.bar.clear()
	}
}

// putFolder stores the files of a folder, and prints a line for each. The
// result is that of the manifest.
func (p *putCommand) putFolder(ctx context.Context, c *console, node *client.Client, name string) (storedFile, error) {
	bar := &folderProgress{console: c, name: name}
	skipped := 0
	result, err := node.PutFolder(ctx, name, client.FolderOptions{Progress: bar.set, FollowLinks: p.Follow, Named: p.named, Skipped: func(path, kind string) {
		skipped++
		c.notice("skipped %s: it is %s", path, kind)
	}})
	bar.clear()
	if err != nil {
		return storedFile{}, err
	}
	if p.quiet {
		return storedFile{File: name, Address: result.Address, Size: result.Size, Skipped: skipped}, nil
	}
	for _, one := range result.Manifest.Entries {
		c.printStored(storedFile{File: filepath.Join(name, filepath.FromSlash(one.Path)), Address: one.B3, Size: one.Size})
	}
	return storedFile{File: name, Address: result.Address, Size: result.Size, Skipped: skipped}, nil
}

// fetchedFolder is the output for a folder that was fetched.
type fetchedFolder struct {
	File    string     `json:"file"`
	Address b3.Address `json:"address"` // of the manifest
	Size    int64      `json:"size"`    // of all files
	Files   int        `json:"files"`
	Kept    int        `json:"kept"` // of them, how many were there already, and right

	Copied int64 `json:"copied,omitempty"` // bytes that did not move: the node had them from an older version
}

// getFolder fetches all files of a manifest.
func (g *getCommand) getFolder(ctx context.Context, c *console, node *client.Client, from resolvedObject) error {
	bar := &folderProgress{console: c, name: g.Output}
	got, err := node.GetFolder(ctx, *from.manifest, g.Output, client.FolderOptions{
		Progress: bar.set, Fetch: g.Peer == "" && !g.Local,
		Missing: func(ctx context.Context, address b3.Address) error { return g.fetchMissing(ctx, node, address) },
	})
	bar.clear()
	if err != nil {
		return err
	}
	if c.json {
		c.printJSON(fetchedFolder{g.Output, from.address, got.Size, got.Files, got.Kept, atomic.LoadInt64(&g.copied)})
		return nil
	}
	c.print("%s  %s  %s, %s", from.address, g.Output, terminal.Pluralize(got.Files, "file"), terminal.Pluralize(int(got.Size), "byte"))
	if got.Kept > 0 {
		c.print("; %d there already", got.Kept)
	}
	c.print("\n")
	g.noticeCopied(c)
	return nil
}

// listing is the output for a manifest.
type listing struct {
	Name    string         `json:"name,omitempty"`
	Address b3.Address     `json:"address"`
	Size    int64          `json:"size"` // of all files
	Entries []listingEntry `json:"entries"`
}

type listingEntry struct {
	Path    string     `json:"path"`
	Size    int64      `json:"size"`
	Address b3.Address `json:"address"`
	Type    string     `json:"type"`
	Exec    bool       `json:"exec,omitempty"`
}

// printListing prints the entries of a manifest.
func (g *getCommand) printListing(c *console, from resolvedObject) {
	all := listing{Name: from.name, Address: from.address, Size: from.manifest.Size(), Entries: []listingEntry{}}
	rows := [][]string{{"path", "size", "address"}}
	for _, one := range from.manifest.Entries {
		all.Entries = append(all.Entries, listingEntry{one.Path, one.Size, one.B3, one.Type, one.Exec})
		rows = append(rows, []string{sanitize([]byte(one.Path)), fmt.Sprint(one.Size), one.B3.String()})
	}
	if c.json {
		c.printJSON(all)
		return
	}
	c.printTable(rows)
	c.notice("this is a folder; fetch its files with -o DIR")
}
