package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"micronode/b3"
	"micronode/client"
)

// isFolder tells whether there is a folder of this name, or a link to one.
func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// wantsFolder tells whether somebody who names a path means a folder, be it
// there or not.
func wantsFolder(path string) bool {
	return strings.HasSuffix(path, string(filepath.Separator)) || isFolder(path)
}

// folderMeter shows how all files of a folder get on, as one. Its size is known
// when the first of them has begun.
type folderMeter struct {
	// set at construction
	console *console
	name    string

	once sync.Once
	bar  *meter // set once
}

// set may be called by several goroutines at once.
func (m *folderMeter) set(done, total int64) {
	m.once.Do(func() { m.bar = m.console.newMeter(m.name, total) })
	m.bar.set(done, total)
}

// clear is for the end, when nobody sets it any more.
func (m *folderMeter) clear() {
	if m.bar != nil {
		m.bar.clear()
	}
}

// folder stores the files of a folder, and prints a line for each. What it
// returns is about the manifest.
func (p *putCommand) folder(ctx context.Context, c *console, node *client.Client, name string) (stored, error) {
	bar := &folderMeter{console: c, name: name}
	whole, err := node.PutFolder(ctx, name, client.FolderOptions{Progress: bar.set})
	bar.clear()
	if err != nil {
		return stored{}, err
	}
	for _, one := range whole.Manifest.Entries {
		c.stored(stored{File: filepath.Join(name, filepath.FromSlash(one.Path)), Address: one.B3, Size: one.Size})
	}
	return stored{File: name, Address: whole.Address, Size: whole.Size}, nil
}

// fetchedFolder is what is printed for a folder that was fetched.
type fetchedFolder struct {
	File    string     `json:"file"`
	Address b3.Address `json:"address"` // of the manifest
	Size    int64      `json:"size"`    // of all files
	Files   int        `json:"files"`
	Kept    int        `json:"kept"` // of them, how many were there already, and right
}

// folder fetches all files of a manifest.
func (g *getCommand) folder(ctx context.Context, c *console, node *client.Client, from found) error {
	bar := &folderMeter{console: c, name: g.Output}
	got, err := node.GetFolder(ctx, *from.manifest, g.Output, client.FolderOptions{
		Progress: bar.set,
		Missing:  func(ctx context.Context, address b3.Address) error { return g.obtain(ctx, node, address) },
	})
	bar.clear()
	if err != nil {
		return err
	}
	if c.json {
		c.printJSON(fetchedFolder{g.Output, from.address, got.Size, got.Files, got.Kept})
		return nil
	}
	c.print("%s  %s  %s, %s", from.address, g.Output, counted(got.Files, "file"), counted(int(got.Size), "byte"))
	if got.Kept > 0 {
		c.print("; %d there already", got.Kept)
	}
	c.print("\n")
	return nil
}

// listing is what is printed of a manifest.
type listing struct {
	Name    string     `json:"name,omitempty"`
	Address b3.Address `json:"address"`
	Size    int64      `json:"size"` // of all files
	Entries []listed   `json:"entries"`
}

type listed struct {
	Path    string     `json:"path"`
	Size    int64      `json:"size"`
	Address b3.Address `json:"address"`
	Type    string     `json:"type"`
	Exec    bool       `json:"exec,omitempty"`
}

// list prints what a manifest says.
func (g *getCommand) list(c *console, from found) {
	all := listing{Name: from.name, Address: from.address, Size: from.manifest.Size(), Entries: []listed{}}
	rows := [][]string{{"path", "size", "address"}}
	for _, one := range from.manifest.Entries {
		all.Entries = append(all.Entries, listed{one.Path, one.Size, one.B3, one.Type, one.Exec})
		rows = append(rows, []string{visible([]byte(one.Path)), fmt.Sprint(one.Size), one.B3.String()})
	}
	if c.json {
		c.printJSON(all)
		return
	}
	c.table(rows)
	c.remark("it is a folder: fetch its files with -o DIR")
}
