package main

import "micronode/internal/observe"

type versionCommand struct{ outputFlags }

// Run prints the version of this binary.
func (versionCommand) Run(c *console) error {
	build := observe.ReadBuild("micronode")
	if c.json {
		c.printJSON(build)
	} else {
		c.print("micronode %s (%s, %s)\n", build.Version, build.Commit, build.Go)
	}
	return nil
}
