package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"micronode/client"
	"micronode/fault"
	"micronode/internal/terminal"
)

type resolveCommand struct {
	ID    string `arg:"" name:"id" help:"A name (name:docs, docs@PEER-ID), an address (b3:af13…) or a CIDv1."`
	Fresh bool   `default:"true" negatable:"" help:"With --fresh=false an expired answer is accepted if there is no fresh one."`
	nodeFlags
	outputFlags
}

// Help is shown by resolve --help.
func (resolveCommand) Help() string {
	return `The source of the answer is this node (local), its cache (cache), the registry, a node of the network (dht, peer), or another router (delegated). Providers come best first.

Examples:

    micronode resolve name:docs
    micronode resolve docs@wq3… --json
    micronode resolve name:docs --fresh=false`
}

// Run resolves the ID.
func (r *resolveCommand) Run(ctx context.Context, c *console) error {
	node, err := r.dial()
	if err != nil {
		return err
	}
	defer node.Close()
	resolved, err := node.Resolve(ctx, r.ID, client.ResolveOptions{AllowStale: !r.Fresh})
	if err != nil {
		return err
	}
	if c.json {
		c.printJSON(resolved)
		return nil
	}
	age := formatAge(resolved.Freshness)
	if resolved.Stale {
		age += ", " + c.paint(terminal.Yellow, "stale")
	}
	c.print("%s\n\n", sanitize([]byte(resolved.Key)))
	c.printTable([][]string{{"address", resolved.Manifest.String()}, {"source", sanitize([]byte(resolved.Source))}, {"age", age}})
	c.print("\n")
	c.printProviders(resolved.Providers)
	return nil
}

// formatAge formats an age in seconds, as the index gives it.
func formatAge(n int64) string {
	if n < 0 {
		return "unknown"
	}
	return (time.Duration(n) * time.Second).String()
}

// printProviders prints a table of the providers of an object.
func (c *console) printProviders(list []client.Provider) {
	if len(list) == 0 {
		c.print("  no provider is known\n")
		return
	}
	rows := [][]string{{"provider", "address", "region", "class", "score", "latency", "seen"}}
	for _, one := range list {
		id := textOrDash(one.ID)
		if one.Self {
			id += " (this node)"
		}
		rows = append(rows, []string{id, textOrDash(one.Addr), textOrDash(one.Region), textOrDash(one.Class), fmt.Sprintf("%.3f", one.Score), textOrDash(one.Latency), formatAge(one.LastSeen)})
	}
	c.printTable(rows)
}

// textOrDash is an untrusted text in a table.
func textOrDash(text string) string {
	if text == "" {
		return "-"
	}
	return sanitize([]byte(text))
}

type providersCommand struct {
	Address      string        `arg:"" help:"The address of the object, such as b3:af13…, or its name."`
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
    micronode providers name:docs
    micronode providers b3:af13… --limit 3 --region eu-west
    micronode providers b3:af13… --json | jq -r '.providers[].addr'`
}

// Run prints the providers of the object.
func (p *providersCommand) Run(ctx context.Context, c *console) error {
	if _, err := parseAddress(p.Address); err != nil && !strings.HasPrefix(p.Address, namePrefix) && !mayBeName(p.Address) {
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
	all, err := addressesOf(ctx, node, p.Address)
	if err != nil {
		return err
	}
	found, err := node.Providers(ctx, all[0], client.ProvidersOptions{Limit: p.Limit, Region: p.Region, MinFreshness: p.MinFreshness})
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
