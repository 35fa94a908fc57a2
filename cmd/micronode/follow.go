package main

import (
	"context"
	"strconv"

	"micronode/client"
)

type followCommand struct {
	Who  string `arg:"" help:"Who is to follow."`
	Whom string `arg:"" help:"Whom to follow."`
	target
	printing
}

// Help is shown by follow --help.
func (followCommand) Help() string {
	return `The node keeps who follows whom, if facets.graph is on. Whoever follows somebody has the posts of that one in the feed.

Example:

    micronode follow ann bob`
}

// following is what is printed with --json.
type following struct {
	Who     string `json:"who"`
	Whom    string `json:"whom"`
	Follows bool   `json:"follows"`
	New     bool   `json:"new,omitempty"`
}

// Run makes one follow another.
func (f *followCommand) Run(ctx context.Context, c *console) error {
	node, err := f.dial()
	if err != nil {
		return err
	}
	defer node.Close()
	created, err := node.Follow(ctx, f.Who, f.Whom)
	if err != nil {
		return err
	}
	switch {
	case c.json:
		c.printJSON(following{f.Who, f.Whom, true, created})
	case !created:
		c.remark("%s followed %s before", visible([]byte(f.Who)), visible([]byte(f.Whom)))
	}
	return nil
}

type unfollowCommand struct {
	Who  string `arg:"" help:"Who is not to follow any more."`
	Whom string `arg:"" help:"Whom."`
	target
	printing
}

// Help is shown by unfollow --help.
func (unfollowCommand) Help() string {
	return `The posts of that one are left out of the feed at once.

Example:

    micronode unfollow ann bob`
}

// Run makes one not follow another.
func (u *unfollowCommand) Run(ctx context.Context, c *console) error {
	node, err := u.dial()
	if err != nil {
		return err
	}
	defer node.Close()
	if err := node.Unfollow(ctx, u.Who, u.Whom); err != nil {
		return err
	}
	if c.json {
		c.printJSON(following{Who: u.Who, Whom: u.Whom})
	}
	return nil
}

type neighboursCommand struct {
	Node      string `arg:"" help:"Who is in the middle."`
	Hops      int    `default:"1" placeholder:"N" help:"How many steps away at most, from 1 to 3."`
	Max       int    `placeholder:"N" help:"At most so many."`
	Direction string `default:"follows" enum:"follows,followers" placeholder:"WAY" help:"follows, to those whom it follows, or followers, to those who follow it."`
	target
	printing
}

// Help is shown by neighbours --help.
func (neighboursCommand) Help() string {
	return `The nearest come first. Nobody is listed twice, and who is in the middle is not listed at all.

Examples:

    micronode neighbours ann
    micronode neighbours ann --hops 2 --max 100
    micronode neighbours ann --direction followers --json | jq -r '.neighbors[].id'`
}

// Run prints those around a node.
func (n *neighboursCommand) Run(ctx context.Context, c *console) error {
	node, err := n.dial()
	if err != nil {
		return err
	}
	defer node.Close()
	found, err := node.Neighbours(ctx, n.Node, client.NeighboursOptions{Hops: n.Hops, Max: n.Max, Direction: n.Direction})
	if err != nil {
		return err
	}
	if c.json {
		found.Neighbors = append([]client.Near{}, found.Neighbors...)
		c.printJSON(found)
		return nil
	}
	if len(found.Neighbors) == 0 {
		c.remark("there is nobody around %s", visible([]byte(n.Node)))
		return nil
	}
	rows := [][]string{{"steps", "name"}}
	for _, one := range found.Neighbors {
		rows = append(rows, []string{strconv.Itoa(one.Hops), visible([]byte(one.ID))})
	}
	c.table(rows)
	if found.Truncated {
		c.remark("there may be more; raise --max to see them")
	}
	return nil
}
