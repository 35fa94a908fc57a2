package main

import (
	"context"
	"fmt"
	"time"

	"micronode/client"
)

type resolveCommand struct {
	ID    string `arg:"" name:"id" help:"A name (name:docs, docs@PEER-ID), an address (b3:af13…) or a CIDv1."`
	Fresh bool   `default:"true" negatable:"" help:"With --fresh=false an answer that is past its life will do, rather than none."`
	target
	printing
}

// Help is shown by resolve --help.
func (resolveCommand) Help() string {
	return `The source says where the answer comes from: this node (local), what it remembers (cache), the registry, a node of the network (dht, peer), or another router (delegated). Providers are those who are said to have the object, the best first.

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
	age := ago(resolved.Freshness)
	if resolved.Stale {
		age += ", " + c.paint(yellow, "stale")
	}
	c.print("%s\n\n", visible([]byte(resolved.Key)))
	c.table([][]string{{"address", resolved.Manifest.String()}, {"source", visible([]byte(resolved.Source))}, {"age", age}})
	c.print("\n")
	c.providers(resolved.Providers)
	return nil
}

// ago is a time as the index tells it.
func ago(n int64) string {
	if n < 0 {
		return "unknown"
	}
	return (time.Duration(n) * time.Second).String()
}

// providers prints a table of those who have an object.
func (c *console) providers(list []client.Provider) {
	if len(list) == 0 {
		c.print("  nobody is known to have it\n")
		return
	}
	rows := [][]string{{"provider", "address", "region", "class", "score", "latency", "seen"}}
	for _, one := range list {
		rows = append(rows, []string{cell(one.ID), cell(one.Addr), cell(one.Region), cell(one.Class), fmt.Sprintf("%.3f", one.Score), cell(one.Latency), ago(one.LastSeen)})
	}
	c.table(rows)
}

// cell is a text of a stranger in a table.
func cell(text string) string {
	if text == "" {
		return "-"
	}
	return visible([]byte(text))
}
