package main

import (
	"context"

	"micronode/b3"
	"micronode/client"
	"micronode/fault"
)

type putCommand struct {
	Files []string `arg:"" name:"file" complete:"file" help:"Files and folders to store. A single - is standard input."`
	Name  string   `placeholder:"NAME" help:"Set this name of the node to the stored object or folder."`
	nodeFlags
	outputFlags
}

// Help is shown by put --help.
func (putCommand) Help() string {
	return `The address of an object is the BLAKE3 of its bytes, so the same bytes always have the same address. The command computes it too, and compares it with the node's.

One line is printed for each file. If one of several files fails, the others are still stored.

For a folder, all files are stored, several at once, and then a manifest with their addresses; its line is the last. Objects that the node has already are not sent again. Links, devices and empty folders are not stored: the first two are errors. With --name the name is set after everything is stored.

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
	Name    string     `json:"name,omitempty"` // the name that was set for it
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
	return c.forEach(ctx, putOp, p.Files, func(name string) error {
		put := p.putFile
		if isFolder(name) {
			put = p.putFolder
		}
		one, err := put(ctx, c, node, name)
		if err != nil {
			return err
		}
		if p.Name != "" {
			var record client.NameRecord
			record, err = node.SetName(ctx, bareName(p.Name), one.Address)
			one.Name = record.Name
		}
		c.printStored(one) // even if the name could not be set
		return err
	})
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
	object, err := node.Put(ctx, source, client.PutOptions{Progress: bar.set})
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
