package main

import (
	"maps"
	"slices"
	"strings"
	"text/template"

	"github.com/alecthomas/kong"

	"micronode/fault"
)

type completionCommand struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

// Help is shown by completion --help.
func (completionCommand) Help() string {
	return `Examples:

    source <(micronode completion bash)
    micronode completion zsh > ~/.zfunc/_micronode
    micronode completion fish > ~/.config/fish/completions/micronode.fish`
}

// Run prints the script. It is made from the very model that parses the command
// line, so the two cannot disagree.
func (s *completionCommand) Run(c *console, parser *kong.Kong) error {
	script := map[string]*template.Template{"bash": bashScript, "zsh": zshScript, "fish": fishScript}[s.Shell]
	var text strings.Builder
	if err := script.Execute(&text, placesOf(parser.Model.Node)); err != nil {
		return fault.Wrap("completion", err)
	}
	c.print("%s", text.String())
	return nil
}

// places is what can be typed, at each place of a command line.
type places []place

// place is a point in a command line: after the bare name, or after a command.
type place struct {
	Path     string // "token mint"; empty after the bare name
	Commands []choice
	Options  []option
	Argument answer // what stands there besides commands and options
}

// choice is a word that can be typed.
type choice struct{ Name, Help string }

// option is a flag.
type option struct {
	Long, Short string // without hyphens; Short may be empty
	Help        string
	Takes       bool // a value follows
	Value       answer
}

// answer is a value that somebody is asked for.
type answer struct {
	Words []string // what it may be, if that is known
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
func (p place) Flags() []string {
	var names []string
	for _, one := range p.Options {
		names = append(names, "--"+one.Long)
	}
	return names
}

// Words are the commands, or what is known of the argument.
func (p place) Words() []string {
	words := slices.Clone(p.Argument.Words)
	for _, one := range p.Commands {
		words = append(words, one.Name)
	}
	return words
}

// Takers are all options that are followed by a value, wherever they stand.
func (list places) Takers() []string {
	names := map[string]bool{}
	for _, at := range list {
		for _, one := range at.Options {
			for _, name := range one.Names() {
				names[name] = names[name] || one.Takes
			}
		}
	}
	maps.DeleteFunc(names, func(_ string, takes bool) bool { return !takes })
	return slices.Sorted(maps.Keys(names))
}

// placesOf walks the model from a command down.
func placesOf(node *kong.Node) places {
	here := place{}
	if node.Type == kong.CommandNode {
		here.Path = node.Path()
	}
	typed := node
	if node.DefaultCmd != nil {
		typed = node.DefaultCmd // what it does alone
	}
	for _, group := range typed.AllFlags(true) {
		for _, flag := range group {
			here.Options = append(here.Options, optionOf(flag))
		}
	}
	for _, argument := range node.Positional {
		here.Argument = answerOf(argument)
	}
	list := places{here}
	for _, child := range node.Children {
		list[0].Commands = append(list[0].Commands, choice{child.Name, child.Help})
		list = append(list, placesOf(child)...)
	}
	return list
}

func optionOf(flag *kong.Flag) option {
	one := option{Long: flag.Name, Help: flag.Help, Takes: !flag.IsBool(), Value: answerOf(flag.Value)}
	if flag.Short != 0 {
		one.Short = string(flag.Short)
	}
	return one
}

// answerOf reads what the declaration of a value says about it: an enum, or the
// tag complete, which is file, scope, or a list of words.
func answerOf(value *kong.Value) answer {
	tag := value.Tag.Get("complete")
	switch {
	case value.Enum != "":
		return answer{Words: value.EnumSlice()}
	case tag == "file":
		return answer{Files: true}
	case tag == "scope":
		return answer{Words: strings.Split(scopeNames(), ", ")}
	case tag != "":
		return answer{Words: strings.Split(tag, ",")}
	default:
		return answer{}
	}
}

func newScript(name, text string) *template.Template {
	return template.Must(template.New(name).Funcs(template.FuncMap{
		"join":  strings.Join,
		"quote": func(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" },
		"fish":  func(text string) string { return "'" + strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(text) + "'" },
		"item":  func(name, help string) string { return strings.ReplaceAll(name, ":", `\:`) + ":" + help },
		"child": func(path, name string) string { return strings.TrimSpace(path + " " + name) },
	}).Parse(text))
}
