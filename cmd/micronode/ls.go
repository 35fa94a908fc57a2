package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"micronode/b3"
	"micronode/client"
	"micronode/fault"
	"micronode/internal/terminal"
)

type lsCommand struct {
	Names []string `arg:"" optional:"" name:"name" help:"List only what these stand for: names, such as name:docs, or addresses of folders."`
	Sort  string   `enum:"address,size,age,class,pin" default:"address" help:"The order: address; size, with the largest first; age, with the newest first; or class (or pin), with what is pinned first."`
	nodeFlags
	outputFlags
}

// Help is shown by ls --help.
func (lsCommand) Help() string {
	return `Each line is an object: its address, its size, its class, for how long the node has it, and the names of this node that it belongs to. It is pinned if it was put or pinned by hand, named if it stays because names stand for it, and cached if it may be evicted. The files of a folder are objects of their own, and so is its manifest. micronode name ls lists the names.

Examples:

    micronode ls
    micronode ls name:docs
    micronode ls --sort size | head
    micronode ls --sort age`
}

// listedObject is the output for an object.
type listedObject struct {
	Address b3.Address `json:"address"`
	Size    int64      `json:"size"`
	Class   string     `json:"class"`
	Stored  string     `json:"stored,omitempty"`
	Names   []string   `json:"names,omitempty"`
}

// Run lists the objects of the node.
func (l *lsCommand) Run(ctx context.Context, c *console) error {
	node, err := l.dial()
	if err != nil {
		return err
	}
	defer node.Close()
	list, err := listObjects(ctx, node)
	if err != nil {
		return err
	}
	if len(l.Names) > 0 {
		wanted := map[b3.Address]bool{}
		for _, text := range l.Names {
			all, err := addressesOf(ctx, node, text)
			if err != nil {
				return err
			}
			for _, one := range all {
				wanted[one] = true
			}
		}
		list = slices.DeleteFunc(list, func(one listedObject) bool { return !wanted[one.Address] })
	}
	switch l.Sort {
	case "size":
		slices.SortStableFunc(list, func(a, b listedObject) int { return cmp.Compare(b.Size, a.Size) })
	case "age":
		slices.SortStableFunc(list, func(a, b listedObject) int { return strings.Compare(b.Stored, a.Stored) }) // all are UTC
	case "class", "pin":
		order := []string{"pinned", "named", "cached"}
		slices.SortStableFunc(list, func(a, b listedObject) int {
			return cmp.Compare(slices.Index(order, a.Class), slices.Index(order, b.Class))
		})
	}
	switch {
	case c.json:
		c.printJSON(list)
	case len(list) == 0:
		c.notice("the node has no objects\nStore one: micronode put FILE")
	default:
		rows := make([][]string, 0, len(list))
		for _, one := range list {
			rows = append(rows, []string{one.Address.String(), terminal.FormatBytes(float64(one.Size)), one.Class, ageOf(one.Stored, time.Now()), sanitize([]byte(strings.Join(one.Names, " ")))})
		}
		c.printTable(rows)
	}
	return nil
}

// ageOf is how long ago something was, in its largest unit; empty if that is not
// known.
func ageOf(at string, now time.Time) string {
	then, err := time.Parse(time.RFC3339, at)
	if err != nil {
		return ""
	}
	switch age := max(0, now.Sub(then)); {
	case age < time.Minute:
		return fmt.Sprintf("%d s", age/time.Second)
	case age < time.Hour:
		return fmt.Sprintf("%d min", age/time.Minute)
	case age < 48*time.Hour:
		return fmt.Sprintf("%d h", age/time.Hour)
	default:
		return fmt.Sprintf("%d days", age/(24*time.Hour))
	}
}

type duCommand struct {
	nodeFlags
	outputFlags
}

// Help is shown by du --help.
func (duCommand) Help() string {
	return `One line for each name of the node, then what has no name, and the sum. An object that several names share counts for each of them, and once in the sum.

Example:

    micronode du`
}

type gcCommand struct {
	DryRun bool `help:"Only say how much it would remove."`
	nodeFlags
	outputFlags
}

// Help is shown by gc --help.
func (gcCommand) Help() string {
	return `Removed are the objects that were fetched from other nodes, and those that were unpinned: by micronode unpin, or because a name was set to something else. What is pinned stays, and so does what a name of the node, the registry, an open proposal or a share stands for. The node evicts the same objects by itself when it needs the space.

Examples:

    micronode gc --dry-run
    micronode gc`
}

// Run removes what nobody keeps.
func (g *gcCommand) Run(ctx context.Context, c *console) error {
	node, err := g.dial()
	if err != nil {
		return err
	}
	defer node.Close()
	result, err := node.Collect(ctx, g.DryRun)
	if err != nil {
		return err
	}
	switch {
	case c.json:
		c.printJSON(result)
	case g.DryRun:
		c.print("%s, %s would be removed\n", terminal.Pluralize(result.Objects, "object"), terminal.FormatBytes(float64(result.Bytes)))
	default:
		c.print("%s, %s removed\n", terminal.Pluralize(result.Objects, "object"), terminal.FormatBytes(float64(result.Bytes)))
	}
	return nil
}

// usedBytes is the output for a name, for what has none, and for the sum.
type usedBytes struct {
	Name    string `json:"name,omitempty"`
	Objects int    `json:"objects"`
	Bytes   int64  `json:"bytes"`
	Pinned  int64  `json:"pinned"` // the part that the node does not evict
}

func (u *usedBytes) add(one listedObject) {
	u.Objects++
	u.Bytes += one.Size
	if one.Class != "cached" {
		u.Pinned += one.Size
	}
}

// Run sums up the objects of the node.
func (d *duCommand) Run(ctx context.Context, c *console) error {
	node, err := d.dial()
	if err != nil {
		return err
	}
	defer node.Close()
	list, err := listObjects(ctx, node)
	if err != nil {
		return err
	}
	named, rest, sum := map[string]*usedBytes{}, usedBytes{}, usedBytes{}
	for _, one := range list {
		sum.add(one)
		if len(one.Names) == 0 {
			rest.add(one)
		}
		for _, name := range one.Names {
			if named[name] == nil {
				named[name] = &usedBytes{Name: name}
			}
			named[name].add(one)
		}
	}
	names := []usedBytes{}
	for _, name := range slices.Sorted(maps.Keys(named)) {
		names = append(names, *named[name])
	}
	if c.json {
		c.printJSON(struct {
			Names   []usedBytes `json:"names"`
			Without usedBytes   `json:"without"`
			Sum     usedBytes   `json:"sum"`
		}{names, rest, sum})
		return nil
	}
	rows := [][]string{{"", "objects", "size", "pinned"}}
	row := func(title string, u usedBytes) {
		rows = append(rows, []string{title, fmt.Sprint(u.Objects), terminal.FormatBytes(float64(u.Bytes)), terminal.FormatBytes(float64(u.Pinned))})
	}
	for _, one := range names {
		row(namePrefix+sanitize([]byte(one.Name)), one)
	}
	row("without a name", rest)
	row("in all", sum)
	c.printTable(rows)
	return nil
}

// listObjects returns the objects of a node, with the names that each belongs
// to.
func listObjects(ctx context.Context, node *client.Client) ([]listedObject, error) {
	names, err := node.Names(ctx)
	if err != nil && fault.KindOf(err) != fault.NotFound { // a node without an index has no names
		return nil, err
	}
	of := map[b3.Address][]string{}
	for _, one := range names {
		all, err := contentOf(ctx, node, one.Manifest)
		if err != nil {
			return nil, err
		}
		for _, address := range all {
			of[address] = append(of[address], one.Name)
		}
	}
	list := []listedObject{}
	for one, err := range node.Objects(ctx) {
		if err != nil {
			return nil, err
		}
		list = append(list, listedObject{one.Address, one.Size, one.Class, one.Stored, of[one.Address]})
	}
	return list, nil
}

// addressesOf returns what a user means by an address or a name: one object,
// or, for the name of a folder, its manifest and all files. A path behind the
// name is one file of it.
func addressesOf(ctx context.Context, node *client.Client, text string) ([]b3.Address, error) {
	text, err := expandName(ctx, node, text)
	if err != nil {
		return nil, err
	}
	if !strings.HasPrefix(text, namePrefix) {
		address, err := parseAddress(text)
		return []b3.Address{address}, err
	}
	name, path, _ := strings.Cut(text, "/")
	resolved, err := node.Resolve(ctx, name, client.ResolveOptions{})
	if err != nil {
		return nil, err
	}
	if path == "" {
		return contentOf(ctx, node, resolved.Manifest)
	}
	manifest, err := node.Manifest(ctx, resolved.Manifest)
	if err != nil {
		return nil, err
	}
	for _, one := range manifest.Entries {
		if one.Path == path {
			return []b3.Address{one.B3}, nil
		}
	}
	return nil, fault.New("name", fault.NotFound, "%s has no file %q", name, path).Advise("List its files with micronode get " + name)
}

// contentOf returns an object and, if it is a manifest, the files that it lists.
// Of one that the node does not have, the files are unknown.
func contentOf(ctx context.Context, node *client.Client, address b3.Address) ([]b3.Address, error) {
	all := []b3.Address{address}
	manifest, err := node.Manifest(ctx, address)
	if errors.Is(err, client.ErrNotManifest) || fault.KindOf(err) == fault.NotFound {
		return all, nil
	}
	seen := map[b3.Address]bool{address: true}
	for _, one := range manifest.Entries {
		if !seen[one.B3] {
			seen[one.B3], all = true, append(all, one.B3)
		}
	}
	return all, err
}

// removeName removes a name of the node, and what only it stood for.
func removeName(ctx context.Context, node *client.Client, text string) (removed []b3.Address, err error) {
	all, err := addressesOf(ctx, node, text)
	if err != nil {
		return nil, err
	}
	if err := node.DeleteName(ctx, bareName(text)); err != nil {
		return nil, err
	}
	names, err := node.Names(ctx)
	if err != nil {
		return nil, err
	}
	kept := map[b3.Address]bool{}
	for _, one := range names {
		content, err := contentOf(ctx, node, one.Manifest)
		if err != nil {
			return nil, err
		}
		for _, address := range content {
			kept[address] = true
		}
	}
	for _, address := range all {
		if kept[address] {
			continue
		}
		if err := node.Delete(ctx, address); err != nil && fault.KindOf(err) != fault.NotFound {
			return removed, err
		}
		removed = append(removed, address)
	}
	return removed, nil
}
