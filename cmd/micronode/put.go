package main

import (
	"context"

	"micronode/b3"
	"micronode/client"
	"micronode/fault"
)

type putCommand struct {
	Files []string `arg:"" name:"file" complete:"file" help:"Files and folders to store. A single - is standard input."`
	Name  string   `placeholder:"NAME" help:"Let this name of the node stand for what is stored."`
	target
	printing
}

// Help is shown by put --help.
func (putCommand) Help() string {
	return `The address of an object is the BLAKE3 of its bytes, so the same bytes always have the same address. It is worked out here too, and compared with the node's.

One line is printed for each file. If one of several files fails, the others are stored all the same.

Of a folder all files are stored, several at once, and then a manifest that says where they are; its line is the last. What the node has already is not sent again. Links, devices and empty folders are not stored: the first two are errors. With --name the name is set when all is stored, and not before.

Examples:

    micronode put map.pmtiles
    micronode put *.jpg --json
    micronode put site --name docs
    tar c site | micronode put -`
}

// stored is what is printed for a file.
type stored struct {
	File    string     `json:"file"`
	Address b3.Address `json:"address"`
	Size    int64      `json:"size"`
	Name    string     `json:"name,omitempty"` // that stands for it now
}

const putOp = "put"

// Run stores one file after the other.
func (p *putCommand) Run(ctx context.Context, c *console) error {
	if p.Name != "" && len(p.Files) > 1 {
		return &fault.Error{Op: putOp, Kind: fault.Malformed, Detail: "a name stands for one thing, and there are several",
			Next: "Put them into one folder, and store that; or store them one by one."}
	}
	node, err := p.dial()
	if err != nil {
		return err
	}
	defer node.Close()
	return c.each(ctx, putOp, p.Files, func(name string) error {
		put := p.file
		if isFolder(name) {
			put = p.folder
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
		c.stored(one) // also if it has no name now
		return err
	})
}

// file stores one file.
func (p *putCommand) file(ctx context.Context, c *console, node *client.Client, name string) (stored, error) {
	source, size, err := c.open(name)
	if err != nil {
		return stored{}, err
	}
	defer source.Close()
	bar := c.newMeter(name, size)
	defer bar.clear()
	object, err := node.Put(ctx, source, client.PutOptions{Progress: bar.set})
	return stored{File: name, Address: object.Address, Size: object.Size}, err
}

func (c *console) stored(one stored) {
	switch {
	case c.json:
		c.printJSON(one)
	case one.Name != "":
		c.print("%s  %s  name:%s\n", one.Address, one.File, visible([]byte(one.Name)))
	default:
		c.print("%s  %s\n", one.Address, one.File)
	}
}
