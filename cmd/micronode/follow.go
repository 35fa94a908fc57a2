package main

import (
	"context"
	"strconv"

	"micronode/client"
)

type followCommand struct {
	Who  string `arg:"" help:"The follower."`
	Whom string `arg:"" help:"The user to follow."`
	nodeFlags
	outputFlags
}

// Help is shown by follow --help.
func (followCommand) Help() string {
	return `The node stores the graph of followers, if facets.graph is on. The feed of a user contains the posts of everyone that the user follows.

Example:

    micronode follow ann bob`
}

// followResult is the output with --json.
type followResult struct {
	Who     string `json:"who"`
	Whom    string `json:"whom"`
	Follows bool   `json:"follows"`
	New     bool   `json:"new,omitempty"`
}

// Run makes one user follow another.
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
		c.printJSON(followResult{f.Who, f.Whom, true, created})
	case !created:
		c.notice("%s already follows %s", sanitize([]byte(f.Who)), sanitize([]byte(f.Whom)))
	}
	return nil
}

type unfollowCommand struct {
	Who  string `arg:"" help:"The follower."`
	Whom string `arg:"" help:"Whom."`
	nodeFlags
	outputFlags
}

// Help is shown by unfollow --help.
func (unfollowCommand) Help() string {
	return `The posts of that user leave the feed at once.

Example:

    micronode unfollow ann bob`
}

// Run makes one user not follow another.
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
		c.printJSON(followResult{Who: u.Who, Whom: u.Whom})
	}
	return nil
}

type neighboursCommand struct {
	Node      string `arg:"" help:"The user to start from."`
	Hops      int    `default:"1" placeholder:"N" help:"The maximum distance, from 1 to 3."`
	Max       int    `placeholder:"N" help:"The maximum number to list."`
	Direction string `default:"follows" enum:"follows,followers" placeholder:"WAY" help:"follows lists the users that it follows, followers lists its followers."`
	nodeFlags
	outputFlags
}

// Help is shown by neighbours --help.
func (neighboursCommand) Help() string {
	return `The nearest come first. Each user is listed once. The starting user is not listed.

Examples:

    micronode neighbours ann
    micronode neighbours ann --hops 2 --max 100
    micronode neighbours ann --direction followers --json | jq -r '.neighbors[].id'`
}

// Run prints the neighbours of a user.
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
		c.notice("%s has no neighbours", sanitize([]byte(n.Node)))
		return nil
	}
	rows := [][]string{{"steps", "name"}}
	for _, one := range found.Neighbors {
		rows = append(rows, []string{strconv.Itoa(one.Hops), sanitize([]byte(one.ID))})
	}
	c.printTable(rows)
	if found.Truncated {
		c.notice("there may be more; raise --max to see them")
	}
	return nil
}
