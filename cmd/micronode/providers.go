package main

import (
	"context"
	"time"

	"micronode/client"
	"micronode/fault"
)

type providersCommand struct {
	Address      string        `arg:"" help:"The address of the object, such as b3:af13…"`
	Limit        int           `placeholder:"N" help:"The maximum number to list."`
	Region       string        `placeholder:"NAME" help:"Providers of this region come first."`
	MinFreshness time.Duration `placeholder:"TIME" help:"Only providers seen within this time, such as 10m."`
	nodeFlags
	outputFlags
}

// Help is shown by providers --help.
func (providersCommand) Help() string {
	return `The best come first. The score combines when the provider was last seen, its region, its round-trip time, its success rate, and recent failures.

Examples:

    micronode providers b3:af13…
    micronode providers b3:af13… --limit 3 --region eu-west
    micronode providers b3:af13… --json | jq -r '.providers[].addr'`
}

// Run prints the providers of the object.
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
	c.printProviders(found.Providers)
	if found.Hedge.Fired {
		c.print("\n  a hedged second look-up was sent, and %s\n", hedgeOutcome(found.Hedge.Winner))
	}
	return nil
}

// hedgeOutcome names the wave of requests that brought the answer.
func hedgeOutcome(wave string) string {
	switch wave {
	case "alpha":
		return "the first one answered first"
	case "beta":
		return "won"
	default:
		return "neither found it"
	}
}
