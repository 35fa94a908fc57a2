package main

import (
	"context"
	"time"

	"micronode/client"
	"micronode/fault"
)

type providersCommand struct {
	Address      string        `arg:"" help:"The address of the object, such as b3:af13…"`
	Limit        int           `placeholder:"N" help:"At most so many."`
	Region       string        `placeholder:"NAME" help:"Those of this region first."`
	MinFreshness time.Duration `placeholder:"TIME" help:"Only those that were heard of within this time, such as 10m."`
	target
	printing
}

// Help is shown by providers --help.
func (providersCommand) Help() string {
	return `The best come first. The score is made of how lately they were heard of, whether they are in the region, how near they are, how often they kept their word, and whether they have failed just now.

Examples:

    micronode providers b3:af13…
    micronode providers b3:af13… --limit 3 --region eu-west
    micronode providers b3:af13… --json | jq -r '.providers[].addr'`
}

// Run prints who has the object.
func (p *providersCommand) Run(ctx context.Context, c *console) error {
	address, err := parseAddress(p.Address)
	if err != nil {
		return err
	}
	if p.Limit < 0 || p.MinFreshness < 0 || p.MinFreshness > 0 && p.MinFreshness < time.Second {
		return &fault.Error{Op: "providers", Kind: fault.Malformed, Detail: "--limit or --min-freshness is too small",
			Next: "Give a limit of 1 or more, and a time of 1s or more."}
	}
	node, err := p.dial()
	if err != nil {
		return err
	}
	defer node.Close()
	found, err := node.Providers(ctx, address, client.ProvidersOptions{Limit: p.Limit, Region: p.Region, MinFreshness: p.MinFreshness})
	if err != nil {
		return err
	}
	if found.Providers == nil {
		found.Providers = []client.Provider{}
	}
	if c.json {
		c.printJSON(found)
		return nil
	}
	c.providers(found.Providers)
	if found.Hedge.Fired {
		c.print("\n  a second wave of questions was sent, and %s\n", winner(found.Hedge.Winner))
	}
	return nil
}

// winner says which wave of questions brought the answer.
func winner(wave string) string {
	switch wave {
	case "alpha":
		return "the first one won all the same"
	case "beta":
		return "won"
	default:
		return "neither found it"
	}
}
