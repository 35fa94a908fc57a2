package main

import (
	"context"
	"time"

	"micronode/client"
)

type feedCommand struct {
	Post feedPost `cmd:"" help:"Publish a post to the followers of its author."`
	Read feedRead `cmd:"" help:"Print the feed of a user, best first."`
}

// Help is shown by feed --help.
func (feedCommand) Help() string {
	return `A post appears in the feed of every follower of its author, if facets.feed and facets.graph are on. Use follow to make one user follow another.

Examples:

    micronode follow bob ann
    micronode feed post ann "the bridge is open again"
    micronode feed read bob`
}

type feedPost struct {
	User string  `arg:"" help:"The author."`
	Text *string `arg:"" optional:"" help:"The post, up to 16 KiB. Without it, or if it is -, it is standard input."`
	Key  string  `placeholder:"TEXT" help:"The idempotency key: a second run with the same key creates no second post."`
	nodeFlags
	outputFlags
}

// Help is shown by feed post --help.
func (feedPost) Help() string {
	return `When the command ends, the post is stored; it appears in the feeds a moment later. Store longer content with put, and post its address.

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
		c.print("%s\n", sanitize([]byte(posted.ID)))
	}
	return nil
}

// text is the text to post.
func (p *feedPost) text(ctx context.Context, c *console) (string, error) {
	if p.Text != nil && *p.Text != "-" {
		return *p.Text, nil
	}
	if c.inTerminal && c.errTerminal {
		c.notice("type the post, then Ctrl-D")
	}
	source, err := c.openStdin(ctx)
	if err != nil {
		return "", err
	}
	defer source.Close()
	text, err := readMessage(source)
	return string(text), err
}

type feedRead struct {
	User   string `arg:"" help:"The user."`
	Limit  int    `placeholder:"N" help:"The maximum number of posts, up to 100."`
	Offset int    `placeholder:"N" help:"Skip N posts."`
	nodeFlags
	outputFlags
}

// Help is shown by feed read --help.
func (feedRead) Help() string {
	return `Posts rank by age; the score doubles if author and reader follow each other.

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
		c.notice("the feed of %s is empty\nFollow another user: micronode follow %[1]s NAME", sanitize([]byte(f.User)))
		return nil
	}
	for _, one := range feed.Items {
		c.print("%s  %s  %s\n", one.At.UTC().Format(time.RFC3339), sanitize([]byte(one.Author)), sanitize([]byte(one.Body)))
	}
	if feed.Next > 0 {
		c.notice("there is more: micronode feed read %s --offset %d", sanitize([]byte(f.User)), feed.Next)
	}
	return nil
}
