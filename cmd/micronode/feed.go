package main

import (
	"context"
	"time"

	"micronode/client"
)

type feedCommand struct {
	Post feedPost `cmd:"" help:"Post something to those who follow."`
	Read feedRead `cmd:"" help:"Print the feed of a user, the best first."`
}

// Help is shown by feed --help.
func (feedCommand) Help() string {
	return `A post comes to all who follow its author, if facets.feed and facets.graph are on. Use follow to make one follow another.

Examples:

    micronode follow bob ann
    micronode feed post ann "the bridge is open again"
    micronode feed read bob`
}

type feedPost struct {
	User string  `arg:"" help:"The author."`
	Text *string `arg:"" optional:"" help:"The post, up to 16 KiB. Without it, or if it is -, it is standard input."`
	Key  string  `placeholder:"TEXT" help:"Names the post, so that running this again is no second one."`
	target
	printing
}

// Help is shown by feed post --help.
func (feedPost) Help() string {
	return `When the command ends, the post is kept; it comes into the feeds in a moment. What is long is stored with put; then its address is what to post.

Examples:

    micronode feed post ann "the bridge is open again"
    fortune | micronode feed post ann --key "$(date +%F)"`
}

// Run posts.
func (p *feedPost) Run(ctx context.Context, c *console) error {
	text, err := p.text(ctx, c)
	if err != nil {
		return err
	}
	node, err := p.dial()
	if err != nil {
		return err
	}
	defer node.Close()
	posted, err := node.Post(ctx, p.User, text, client.PostOptions{Key: p.Key})
	if err != nil {
		return err
	}
	if c.json {
		c.printJSON(posted)
	} else {
		c.print("%s\n", visible([]byte(posted.ID)))
	}
	return nil
}

// text is what is to be posted.
func (p *feedPost) text(ctx context.Context, c *console) (string, error) {
	if p.Text != nil && *p.Text != "-" {
		return *p.Text, nil
	}
	if c.inTerminal && c.errTerminal {
		c.remark("type the post; Ctrl-D ends it")
	}
	source, err := c.input(ctx)
	if err != nil {
		return "", err
	}
	defer source.Close()
	text, err := readMessage(source)
	return string(text), err
}

type feedRead struct {
	User   string `arg:"" help:"Whose feed."`
	Limit  int    `placeholder:"N" help:"At most so many, up to 100."`
	Offset int    `placeholder:"N" help:"Leave out so many."`
	target
	printing
}

// Help is shown by feed read --help.
func (feedRead) Help() string {
	return `A post counts by its age, and twice as much if its author and the reader follow each other.

Examples:

    micronode feed read bob
    micronode feed read bob --limit 5 --json | jq -r '.items[].body'`
}

// Run prints the feed.
func (f *feedRead) Run(ctx context.Context, c *console) error {
	node, err := f.dial()
	if err != nil {
		return err
	}
	defer node.Close()
	feed, err := node.Feed(ctx, f.User, client.FeedOptions{Limit: f.Limit, Offset: f.Offset})
	if err != nil {
		return err
	}
	if c.json {
		feed.Items = append([]client.FeedItem{}, feed.Items...)
		c.printJSON(feed)
		return nil
	}
	if len(feed.Items) == 0 {
		c.remark("the feed of %s is empty\nMake it follow somebody: micronode follow %[1]s NAME", visible([]byte(f.User)))
		return nil
	}
	for _, one := range feed.Items {
		c.print("%s  %s  %s\n", one.At.UTC().Format(time.RFC3339), visible([]byte(one.Author)), visible([]byte(one.Body)))
	}
	if feed.Next > 0 {
		c.remark("there is more: micronode feed read %s --offset %d", visible([]byte(f.User)), feed.Next)
	}
	return nil
}
