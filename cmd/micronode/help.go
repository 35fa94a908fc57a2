package main

import (
	"strings"

	"github.com/alecthomas/kong"

	"micronode/fault"
)

type helpCommand struct {
	Command []string `arg:"" optional:"" help:"The command, such as token mint."`
}

// Help is shown by help --help.
func (helpCommand) Help() string {
	return `Examples:

    micronode help
    micronode help token mint`
}

// Run prints what --help prints after the same words.
func (h *helpCommand) Run(c *console, parser *kong.Kong) error {
	const op = "help"
	if findCommand(parser.Model.Node, h.Command) == nil {
		return &fault.Error{Op: op, Kind: fault.NotFound, Detail: "there is no command " + strings.Join(h.Command, " "), Next: "Type micronode help for a list."}
	}
	trace, err := kong.Trace(parser, h.Command)
	if err == nil {
		err = trace.PrintUsage(false)
	}
	return fault.Wrap(op, err)
}

// findCommand walks the words down the tree of commands; nil if one of them is
// none.
func findCommand(node *kong.Node, words []string) *kong.Node {
	for _, word := range words {
		var found *kong.Node
		for _, child := range node.Children {
			if child.Name == word {
				found = child
			}
		}
		if found == nil {
			return nil
		}
		node = found
	}
	return node
}

// isIncomplete reports whether the words name commands only, and the last one
// needs another.
func isIncomplete(root *kong.Node, words []string) bool {
	node := findCommand(root, words)
	return node != nil && len(node.Children) > 0 && node.DefaultCmd == nil
}
