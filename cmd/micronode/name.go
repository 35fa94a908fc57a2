package main

import (
	"context"
	"strings"
	"time"

	"micronode/b3"
	"micronode/client"
	"micronode/fault"
)

type nameCommand struct {
	Set nameSet `cmd:"" help:"Set a name to an object or a folder."`
	Get nameGet `cmd:"" help:"Print the address that a name stands for."`
	Ls  nameLs  `cmd:"" help:"List the names of the node."`
	Rm  nameRm  `cmd:"" help:"Remove names from the node."`
}

// Help is shown by name --help.
func (nameCommand) Help() string {
	return `Each node has its own names: name:docs is the name docs of this node, and name:docs@PEER-ID that of another node. The node signs its names, so that no other node can set them. A name in the registry takes precedence.

Examples:

    micronode put site --name docs
    micronode name set docs b3:af13…
    micronode name get docs@wq3…
    micronode name ls`
}

// namePrefix distinguishes names from addresses.
const namePrefix = "name:"

// bareName is a name without its prefix.
func bareName(text string) string { return strings.TrimPrefix(text, namePrefix) }

// mayBeName reports whether a text without a prefix may be meant as a name.
func mayBeName(text string) bool {
	name, _, _ := strings.Cut(text, "/")
	return !strings.Contains(text, ":") && name != ""
}

// expandName adds the prefix to a name that the node can resolve. Everything else
// is returned as it is, and what is neither is refused as an address.
func expandName(ctx context.Context, node *client.Client, text string) (string, error) {
	if strings.HasPrefix(text, namePrefix) || !mayBeName(text) {
		return text, nil
	}
	name, _, _ := strings.Cut(text, "/")
	_, err := node.Resolve(ctx, namePrefix+name, client.ResolveOptions{})
	switch fault.KindOf(err) {
	case fault.NotFound, fault.Malformed:
		return "", fault.New("address", fault.Malformed, "%q is neither an address nor a name that this node knows", text).
			Advise("Give the address as `micronode put` printed it: b3: and 64 lower-case hex digits; or a name of micronode name ls.")
	}
	if err != nil {
		return "", err
	}
	return namePrefix + text, nil
}

type nameSet struct {
	Name    string `arg:"" help:"The name, such as docs."`
	Address string `arg:"" help:"The address to set, such as b3:af13…, or another name, such as name:old."`
	nodeFlags
	outputFlags
}

// Help is shown by name set --help.
func (nameSet) Help() string {
	return `A name is in lower case, has no white space at its ends and no @. A name that the registry holds cannot be set. Other nodes see the change when their cached record expires, or when they ask this node.

A name keeps what it stands for. What it stood for before may be evicted from then on, unless it is pinned, or another name stands for it. With another name, it is set to what that stands for now.

Examples:

    micronode name set docs b3:af13…
    micronode name set docs-before name:docs`
}

// Run sets the name.
func (n *nameSet) Run(ctx context.Context, c *console) error {
	if _, err := parseAddress(n.Address); err != nil && !strings.HasPrefix(n.Address, namePrefix) && !mayBeName(n.Address) {
		return err
	}
	node, err := n.dial()
	if err != nil {
		return err
	}
	defer node.Close()
	if err := node.CheckName(ctx, bareName(n.Name)); err != nil {
		return err
	}
	all, err := addressesOf(ctx, node, n.Address)
	if err != nil {
		return err
	}
	record, err := node.SetName(ctx, bareName(n.Name), all[0])
	if err != nil {
		return err
	}
	if c.json {
		c.printJSON(record)
		return nil
	}
	c.print("%s  name:%s\n", record.Manifest, sanitize([]byte(record.Name)))
	c.noticeReleased(record.Released)
	return nil
}

type nameGet struct {
	Name string `arg:"" help:"The name, such as docs or docs@PEER-ID."`
	nodeFlags
	outputFlags
}

// Help is shown by name get --help.
func (nameGet) Help() string {
	return `Only the address is printed. Use resolve to see the source of the answer and the providers.

Examples:

    micronode name get docs
    micronode get $(micronode name get docs) -o docs.json`
}

// nameOutput is the output for a name, with --json only.
type nameOutput struct {
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
		c.printJSON(nameOutput{bareName(resolved.Key), resolved.Manifest, resolved.Source})
	} else {
		c.print("%s\n", resolved.Manifest)
	}
	return nil
}

type nameLs struct {
	nodeFlags
	outputFlags
}

// Help is shown by name ls --help.
func (nameLs) Help() string {
	return `Only names of this node are listed, not those of the registry or of other nodes. A name is shadowed if the registry holds it: the value in the registry is used instead.

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
		c.notice("the node has no names\nSet one: micronode name set NAME b3:…")
	default:
		c.printNames(list)
	}
	return nil
}

func (c *console) printNames(list []client.NameRecord) {
	rows := [][]string{{"name", "address", "since", ""}}
	for _, one := range list {
		since, remark := "-", ""
		if !one.Issued.IsZero() {
			since = one.Issued.UTC().Format(time.RFC3339)
		}
		if one.Shadowed {
			remark = "shadowed by the registry"
		}
		rows = append(rows, []string{sanitize([]byte(one.Name)), one.Manifest.String(), since, remark})
	}
	c.printTable(rows)
}

type nameRm struct {
	Names []string `arg:"" name:"name" help:"The names, such as docs."`
	nodeFlags
	outputFlags
}

// Help is shown by name rm --help.
func (nameRm) Help() string {
	return `Only the name is removed. What only it stood for stays until the node needs the space, unless it is pinned; rm removes it at once. Other nodes may cache the name for at most a day.

Example:

    micronode name rm docs`
}

// removedName is the output for a removed name, with --json only.
type removedName struct {
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
	return c.forEach(ctx, "name.rm", n.Names, func(name string) error {
		if err := node.DeleteName(ctx, bareName(name)); err != nil {
			return err
		}
		if c.json {
			c.printJSON(removedName{bareName(name), true})
		}
		return nil
	})
}
