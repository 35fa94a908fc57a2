package main

import (
	"fmt"
	"text/tabwriter"

	"micronode/fault"
)

type configCommand struct {
	Check configCheck `cmd:"" help:"Check a configuration, and the environment with it."`
	Show  configShow  `cmd:"" help:"Show every value that a node would run with, and where it comes from."`
}

type configCheck struct {
	File string `arg:"" optional:"" complete:"file" help:"The configuration file. Without it, the environment alone is checked."`
	setup
	printing
}

// Help is shown by config check --help.
func (configCheck) Help() string {
	return `All mistakes are told at once, each with its place and what to do.

Example:

    micronode config check micronode.toml`
}

// Run loads the configuration and says whether it can be used.
func (k *configCheck) Run(c *console) error {
	switch {
	case k.File != "" && k.Config != "":
		return &fault.Error{Op: "config.check", Kind: fault.Malformed, Detail: "there are two files: " + k.File + " and " + k.Config,
			Next: "Name one: micronode config check FILE"}
	case k.File != "":
		k.Config = k.File
	}
	if _, err := k.load(); err != nil {
		return err
	}
	if c.json {
		c.printJSON(struct {
			OK   bool   `json:"ok"`
			File string `json:"file"`
		}{true, k.Config})
	} else if k.Config == "" {
		c.print("the environment is fine\n")
	} else {
		c.print("%s is fine\n", k.Config)
	}
	return nil
}

type configShow struct {
	Origin bool `help:"Show where each value comes from."`
	setup
	printing
}

// Help is shown by config show --help.
func (configShow) Help() string {
	return `It is what a node that is started now would use: defaults, file, environment. Secrets are not shown. Without --origin, what is printed is a configuration file.

Examples:

    micronode config show > micronode.toml
    micronode config show --config micronode.toml --origin`
}

// Run prints the configuration.
func (s *configShow) Run(c *console) error {
	loaded, err := s.load()
	if err != nil {
		return err
	}
	switch {
	case c.json:
		c.printJSON(loaded.Entries())
	case s.Origin:
		w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
		for _, entry := range loaded.Entries() {
			fmt.Fprintf(w, "%s\t%s\t%s\n", entry.Key, entry.Value, entry.Origin)
		}
		c.wrote(w.Flush())
	default:
		c.print("%s", loaded.TOML())
	}
	return nil
}
