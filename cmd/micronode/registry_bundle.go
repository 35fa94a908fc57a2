package main

import (
	"context"
	"fmt"

	"micronode/fault"
)

type registryBundle struct {
	Version uint64 `arg:"" help:"The version."`
	Output  string `short:"o" placeholder:"PATH" complete:"file" help:"Write it to this file instead of standard output."`
	nodeFlags
	outputFlags
}

// Help is shown by registry bundle --help.
func (registryBundle) Help() string {
	return `A bundle is one version with its proofs: its approvals, the history of the signers, and its inclusion proof in the log that the last checkpoint signs. It is verified without a node.

Examples:

    micronode registry bundle 7 -o version-7.json
    micronode registry verify version-7.json --registry b3:… --log-key …`
}

// bundleOutput is the output for a bundle that was written to a file.
type bundleOutput struct {
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
	if err := writeFileAtomic(op, r.Output, raw, publicMode); err != nil {
		return err
	}
	if c.json {
		c.printJSON(bundleOutput{r.Version, r.Output, len(raw)})
	} else {
		c.print("%s  %s\n", r.Output, fmt.Sprintf("%d bytes", len(raw)))
	}
	return nil
}
