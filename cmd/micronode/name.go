package main

import (
	"context"
	"strings"
	"time"

	"micronode/b3"
	"micronode/client"
)

type nameCommand struct {
	Set nameSet `cmd:"" help:"Let a name stand for an object or a folder."`
	Get nameGet `cmd:"" help:"Print the address that a name stands for."`
	Ls  nameLs  `cmd:"" help:"List the names of the node."`
	Rm  nameRm  `cmd:"" help:"Let the node forget names."`
}

// Help is shown by name --help.
func (nameCommand) Help() string {
	return `A node has names of its own: name:docs is what this node means by docs, and name:docs@PEER-ID what another one means by it. The node signs them, so nobody else can set them. What the registry says about a name wins.

Examples:

    micronode put site --name docs
    micronode name set docs b3:af13…
    micronode name get docs@wq3…
    micronode name ls`
}

// namePrefix tells names from addresses.
const namePrefix = "name:"

// bareName is a name that was typed with or without its prefix.
func bareName(text string) string { return strings.TrimPrefix(text, namePrefix) }

type nameSet struct {
	Name    string `arg:"" help:"The name, such as docs."`
	Address string `arg:"" help:"What it stands for from now on, such as b3:af13…"`
	target
	printing
}

// Help is shown by name set --help.
func (nameSet) Help() string {
	return `A name is in lower case, has no white space at its ends and no @. One that the registry holds cannot be set. Others learn of the change when what they remember is too old, or when they ask the node itself.

Example:

    micronode name set docs b3:af13…`
}

// Run sets the name.
func (n *nameSet) Run(ctx context.Context, c *console) error {
	address, err := parseAddress(n.Address)
	if err != nil {
		return err
	}
	node, err := n.dial()
	if err != nil {
		return err
	}
	defer node.Close()
	record, err := node.SetName(ctx, bareName(n.Name), address)
	if err != nil {
		return err
	}
	if c.json {
		c.printJSON(record)
	} else {
		c.print("%s  name:%s\n", record.Manifest, visible([]byte(record.Name)))
	}
	return nil
}

type nameGet struct {
	Name string `arg:"" help:"The name, such as docs or docs@PEER-ID."`
	target
	printing
}

// Help is shown by name get --help.
func (nameGet) Help() string {
	return `Only the address is printed. Use resolve to see where the answer comes from and who has the object.

Examples:

    micronode name get docs
    micronode get $(micronode name get docs) -o docs.json`
}

// meaning is what is printed of a name, with --json only.
type meaning struct {
	Name     string     `json:"name"`
	Manifest b3.Address `json:"manifest"`
	Source   string     `json:"source"`
}

// Run prints what the name stands for.
func (n *nameGet) Run(ctx context.Context, c *console) error {
	node, err := n.dial()
	if err != nil {
		return err
	}
	defer node.Close()
	resolved, err := node.Resolve(ctx, namePrefix+bareName(n.Name), client.ResolveOptions{})
	if err != nil {
		return err
	}
	if c.json {
		c.printJSON(meaning{bareName(resolved.Key), resolved.Manifest, resolved.Source})
	} else {
		c.print("%s\n", resolved.Manifest)
	}
	return nil
}

type nameLs struct {
	target
	printing
}

// Help is shown by name ls --help.
func (nameLs) Help() string {
	return `Only names of this node are listed, not those of the registry or of other nodes. A name is shadowed if the registry holds it: then its own meaning counts for nobody.

Examples:

    micronode name ls
    micronode name ls --json | jq -r '.[].name'`
}

// Run lists the names of the node.
func (n *nameLs) Run(ctx context.Context, c *console) error {
	node, err := n.dial()
	if err != nil {
		return err
	}
	defer node.Close()
	list, err := node.Names(ctx)
	if err != nil {
		return err
	}
	switch {
	case c.json:
		c.printJSON(append([]client.NameRecord{}, list...))
	case len(list) == 0:
		c.remark("the node has no names\nSet one: micronode name set NAME b3:…")
	default:
		c.names(list)
	}
	return nil
}

func (c *console) names(list []client.NameRecord) {
	rows := [][]string{{"name", "address", "since", ""}}
	for _, one := range list {
		since, remark := "-", ""
		if !one.Issued.IsZero() {
			since = one.Issued.UTC().Format(time.RFC3339)
		}
		if one.Shadowed {
			remark = "shadowed by the registry"
		}
		rows = append(rows, []string{visible([]byte(one.Name)), one.Manifest.String(), since, remark})
	}
	c.table(rows)
}

type nameRm struct {
	Names []string `arg:"" name:"name" help:"The names, such as docs."`
	target
	printing
}

// Help is shown by name rm --help.
func (nameRm) Help() string {
	return `Only the name is forgotten, not what it stood for. Other nodes may remember it for a day at most.

Example:

    micronode name rm docs`
}

// unnamed is what is printed for a name, with --json only.
type unnamed struct {
	Name    string `json:"name"`
	Removed bool   `json:"removed"`
}

// Run removes one name after the other.
func (n *nameRm) Run(ctx context.Context, c *console) error {
	node, err := n.dial()
	if err != nil {
		return err
	}
	defer node.Close()
	return c.each(ctx, "name.rm", n.Names, func(name string) error {
		if err := node.DeleteName(ctx, bareName(name)); err != nil {
			return err
		}
		if c.json {
			c.printJSON(unnamed{bareName(name), true})
		}
		return nil
	})
}
