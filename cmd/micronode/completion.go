package main

import (
	"maps"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

type completionCommand struct {
	Shell string `arg:"" enum:"bash,zsh,fish,powershell" help:"bash, zsh, fish or powershell."`
}

// Help is shown by completion --help.
func (completionCommand) Help() string {
	return `Examples:

    source <(micronode completion bash)
    micronode completion zsh > ~/.zfunc/_micronode
    micronode completion fish > ~/.config/fish/completions/micronode.fish
    micronode completion powershell | Out-String | Invoke-Expression`
}

// Run prints the script. It is generated from the model that parses the
// command line, so the two cannot disagree.
func (cc *completionCommand) Run(c *console, parser *kong.Kong) error {
	write := map[string]func(completionPoints) string{"bash": bashScript, "zsh": zshScript, "fish": fishScript, "powershell": powershellScript}[cc.Shell]
	c.print("%s", write(completionPointsOf(parser.Model.Node)))
	return nil
}

// completionPoints lists what can be typed at each point of a command line.
type completionPoints []completionPoint

// completionPoint is a point in a command line: after the bare name, or after
// a command.
type completionPoint struct {
	Path     string // "token mint"; empty after the bare name
	Commands []subcommand
	Options  []option
	Argument valueHint // what can follow besides commands and options
}

// subcommand is a word that can be typed.
type subcommand struct{ Name, Help string }

// option is a flag.
type option struct {
	Long, Short string // without hyphens; Short may be empty
	Help        string
	TakesValue  bool // a value follows
	Value       valueHint
}

// valueHint describes the possible values of an option or argument.
type valueHint struct {
	Words []string // the possible values, if they are known
	Files bool     // the name of a file
}

// Names is the option as it can be typed.
func (o option) Names() []string {
	if o.Short == "" {
		return []string{"--" + o.Long}
	}
	return []string{"-" + o.Short, "--" + o.Long}
}

// Flags are the long names of all options.
func (p completionPoint) Flags() []string {
	var names []string
	for _, one := range p.Options {
		names = append(names, "--"+one.Long)
	}
	return names
}

// Words are the commands, or the known values of the argument.
func (p completionPoint) Words() []string {
	words := slices.Clone(p.Argument.Words)
	for _, one := range p.Commands {
		words = append(words, one.Name)
	}
	return words
}

// ValueFlags are all options that take a value, at any point.
func (c completionPoints) ValueFlags() []string {
	names := map[string]bool{}
	for _, at := range c {
		for _, one := range at.Options {
			for _, name := range one.Names() {
				names[name] = names[name] || one.TakesValue
			}
		}
	}
	maps.DeleteFunc(names, func(_ string, takes bool) bool { return !takes })
	return slices.Sorted(maps.Keys(names))
}

// completionPointsOf walks the model from a command down.
func completionPointsOf(node *kong.Node) completionPoints {
	here := completionPoint{}
	if node.Type == kong.CommandNode {
		here.Path = node.Path()
	}
	typed := node
	if node.DefaultCmd != nil {
		typed = node.DefaultCmd // the command that runs without a subcommand
	}
	for _, group := range typed.AllFlags(true) {
		for _, flag := range group {
			one := option{Long: flag.Name, Help: flag.Help, TakesValue: !flag.IsBool(), Value: valueHintOf(flag.Value)}
			if flag.Short != 0 {
				one.Short = string(flag.Short)
			}
			here.Options = append(here.Options, one)
		}
	}
	for _, argument := range node.Positional {
		here.Argument = valueHintOf(argument)
	}
	list := completionPoints{here}
	for _, child := range node.Children {
		if child.Hidden {
			continue
		}
		list[0].Commands = append(list[0].Commands, subcommand{child.Name, child.Help})
		list = append(list, completionPointsOf(child)...)
	}
	return list
}

// valueHintOf reads the hint from the declaration of a value: an enum, or the
// tag complete, which is file, scope, or a list of words.
func valueHintOf(value *kong.Value) valueHint {
	tag := value.Tag.Get("complete")
	switch {
	case value.Enum != "":
		return valueHint{Words: value.EnumSlice()}
	case tag == "file":
		return valueHint{Files: true}
	case tag == "scope":
		return valueHint{Words: strings.Split(scopeNames(), ", ")}
	case tag != "":
		return valueHint{Words: strings.Split(tag, ",")}
	default:
		return valueHint{}
	}
}
