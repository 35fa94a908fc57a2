package main

import (
	"fmt"
	"os"
	"text/tabwriter"

	"micronode/fault"
	"micronode/internal/config"
	"micronode/internal/node"
)

type configCommand struct {
	Check configCheck `cmd:"" help:"Check a configuration file and the environment."`
	Show  configShow  `cmd:"" help:"Show every setting that a node would use, and its origin."`
}

type configCheck struct {
	File string `arg:"" optional:"" complete:"file" help:"The configuration file. Without it, only the environment is checked."`
	configFlags
	outputFlags
}

// Help is shown by config check --help.
func (configCheck) Help() string {
	return `All errors are printed at once, each with its location and the next step.

Example:

    micronode config check micronode.toml`
}

// Run loads the configuration and reports whether it is valid.
func (cc *configCheck) Run(c *console) error {
	switch {
	case cc.File != "" && cc.Config != "":
		return &fault.Error{Op: "config.check", Kind: fault.Malformed, Detail: "there are two files: " + cc.File + " and " + cc.Config,
			Next: "Name one: micronode config check FILE"}
	case cc.File != "":
		cc.Config = cc.File
	}
	if _, err := cc.load(); err != nil {
		return err
	}
	if c.json {
		c.printJSON(struct {
			OK   bool   `json:"ok"`
			File string `json:"file"`
		}{true, cc.Config})
	} else if cc.Config == "" {
		c.print("the environment is valid\n")
	} else {
		c.print("%s is valid\n", cc.Config)
	}
	return nil
}

type configShow struct {
	Origin bool `help:"Show where each value comes from."`
	configFlags
	outputFlags
}

// Help is shown by config show --help.
func (configShow) Help() string {
	return `These are the settings of a node that is started now: defaults, file, environment. Secrets are not shown. Without --origin, the output is a configuration file.

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
		w := tabwriter.NewWriter(c.safeOut(), 0, 0, 2, ' ', 0)
		for _, entry := range loaded.Entries() {
			fmt.Fprintf(w, "%s\t%s\t%s\n", entry.Key, entry.Value, entry.Origin)
		}
		c.recordWriteErr(w.Flush())
	default:
		c.print("%s", loaded.TOML())
	}
	return nil
}

// configFlags selects the configuration of a command.
type configFlags struct {
	Config  string `placeholder:"FILE" complete:"file" help:"The configuration file."`
	Profile string `default:"micronode" enum:"micronode,macronode" help:"The set of defaults: micronode or macronode."`
}

// load loads the configuration as run would.
func (c configFlags) load(flags ...config.Flag) (*config.Loaded[node.Config], error) {
	return node.Load(c.Profile, c.sources(flags...))
}

func (c configFlags) sources(flags ...config.Flag) config.Sources {
	return config.Sources{File: c.Config, Environ: os.Environ(), Flags: flags}
}
