package main

import (
	"os"

	"micronode/internal/config"
	"micronode/internal/node"
)

// setup is which configuration a command is about.
type setup struct {
	Config  string `placeholder:"FILE" complete:"file" help:"The configuration file."`
	Profile string `default:"micronode" enum:"micronode,macronode" help:"Which defaults hold: micronode or macronode."`
}

// load reads it as run would.
func (s setup) load(flags ...config.Flag) (*config.Loaded[node.Config], error) {
	return node.Load(s.Profile, s.sources(flags...))
}

func (s setup) sources(flags ...config.Flag) config.Sources {
	return config.Sources{File: s.Config, Environ: os.Environ(), Flags: flags}
}
