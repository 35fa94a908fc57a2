package main

import (
	"context"
	"fmt"

	"micronode/fault"
)

type registryBundle struct {
	Version uint64 `arg:"" help:"Which version."`
	Output  string `short:"o" placeholder:"PATH" complete:"file" help:"Write it to this file instead of standard output."`
	target
	printing
}

// Help is shown by registry bundle --help.
func (registryBundle) Help() string {
	return `A bundle is one version with all that proves it: its approvals, how the signers came to be signers, and its place in the log that the last checkpoint signs. Whoever has it needs no node to verify it.

Examples:

    micronode registry bundle 7 -o version-7.json
    micronode registry verify version-7.json --registry b3:… --log-key …`
}

// exported is what is printed for a bundle that went to a file.
type exported struct {
	Version uint64 `json:"version"`
	File    string `json:"file"`
	Size    int    `json:"size"`
}

// Run exports one version.
func (r *registryBundle) Run(ctx context.Context, c *console) error {
	const op = "registry.bundle"
	toStdout := r.Output == "" || r.Output == "-"
	if toStdout && c.json {
		return &fault.Error{Op: op, Kind: fault.Malformed, Detail: "--json and the bundle cannot both go to standard output",
			Next: "Name a file for the bundle with -o PATH."}
	}
	node, err := r.dial()
	if err != nil {
		return err
	}
	defer node.Close()
	raw, err := node.RegistryBundle(ctx, r.Version)
	if err != nil {
		return err
	}
	if toStdout {
		c.print("%s", raw)
		return nil
	}
	if err := saveFile(op, r.Output, raw, publicMode); err != nil {
		return err
	}
	if c.json {
		c.printJSON(exported{r.Version, r.Output, len(raw)})
	} else {
		c.print("%s  %s\n", r.Output, fmt.Sprintf("%d bytes", len(raw)))
	}
	return nil
}
