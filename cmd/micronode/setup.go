package main

import (
	"os"

	"micronode/internal/config"
	"micronode/internal/node"
)

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
