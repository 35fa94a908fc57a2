package main

import (
	"context"

	"micronode/b3"
	"micronode/client"
)

type putCommand struct {
	Files []string `arg:"" name:"file" complete:"file" help:"Files to store. A single - is standard input."`
	target
	printing
}

// Help is shown by put --help.
func (putCommand) Help() string {
	return `The address of an object is the BLAKE3 of its bytes, so the same bytes always have the same address. It is worked out here too, and compared with the node's.

One line is printed for each file. If one of several files fails, the others are stored all the same.

Examples:

    micronode put map.pmtiles
    micronode put *.jpg --json
    tar c site | micronode put -`
}

// stored is what is printed for a file.
type stored struct {
	File    string     `json:"file"`
	Address b3.Address `json:"address"`
	Size    int64      `json:"size"`
}

// Run stores one file after the other.
func (p *putCommand) Run(ctx context.Context, c *console) error {
	node, err := p.dial()
	if err != nil {
		return err
	}
	defer node.Close()
	return c.each(ctx, "put", p.Files, func(name string) error {
		source, size, err := c.open(name)
		if err != nil {
			return err
		}
		defer source.Close()
		bar := c.newMeter(name, size)
		defer bar.clear()
		object, err := node.Put(ctx, source, client.PutOptions{Progress: bar.set})
		if err != nil {
			return err
		}
		bar.clear()
		c.stored(stored{name, object.Address, object.Size})
		return nil
	})
}

func (c *console) stored(one stored) {
	if c.json {
		c.printJSON(one)
	} else {
		c.print("%s  %s\n", one.Address, one.File)
	}
}
