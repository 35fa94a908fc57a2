package main

import (
	"fmt"
	"strings"

	"github.com/alecthomas/kong"

	"micronode/internal/observe"
)

type manCommand struct {
	Date string `placeholder:"DATE" help:"The date in the footer."`
}

// Run prints the manual page, for man(1). Like the completions, it is generated
// from the model that parses the command line.
func (m *manCommand) Run(c *console, parser *kong.Kong) error {
	root := parser.Model.Node
	c.print(".TH MICRONODE 1 \"%s\" \"micronode %s\"\n", m.Date, observe.ReadBuild("micronode").Version)
	summary, rest, _ := strings.Cut(description, "\n")
	c.print(".SH NAME\nmicronode \\- %s\n.SH SYNOPSIS\n.B micronode\n.I COMMAND\n[\\fIFLAGS\\fR] [\\fIARGUMENTS\\fR]\n", roff(strings.ToLower(summary[:1])+strings.TrimSuffix(summary[1:], ".")))
	c.print(".SH DESCRIPTION\n%s", roffText(rest))
	c.print(".SH COMMANDS\n")
	for _, command := range root.Leaves(true) {
		c.print(".SS %s\n%s\n", roff(command.Path()), roff(command.Help))
		c.print(".PP\n.B %s\n", roff("micronode "+commandSummary(command)))
		for _, group := range command.AllFlags(true) {
			for _, flag := range group {
				if flag.Name == "help" {
					continue
				}
				c.print(".TP\n.B %s\n%s\n", roff(flagSummary(flag)), roff(strings.ReplaceAll(flag.Help, "${default}", flag.Default)))
			}
		}
		if command.Detail != "" {
			c.print(".PP\n%s", roffText(command.Detail))
		}
	}
	c.print(`.SH ENVIRONMENT
.TP
.B MICRO_URL
The node that commands talk to; without it, the node of this user on this machine.
.TP
.B MICRO_TOKEN
The capability for that node.
.TP
.B MICRO_SECTION__KEY
A setting of \fBmicronode run\fR, such as MICRO_HTTP__ADDR.
.TP
.B AMNESIA
1 refuses \fB\-\-persist\fR, 0 requires it.
.TP
.B MICRO_THREADS
How many threads run at once.
.SH FILES
.TP
.I /etc/micronode/micronode.toml
Settings of the node that runs as a service.
.TP
.I /var/lib/micronode
What it keeps.
`)
	return nil
}

// commandSummary is the command with its arguments, as it is typed.
func commandSummary(command *kong.Node) string {
	words := []string{command.Path()}
	for _, argument := range command.Positional {
		words = append(words, argument.Summary())
	}
	return strings.Join(words, " ")
}

// flagSummary is a flag as it is typed.
func flagSummary(flag *kong.Flag) string {
	text := "--" + flag.Name
	if flag.Short != 0 {
		text = fmt.Sprintf("-%c, %s", flag.Short, text)
	}
	if !flag.IsBool() {
		text += "=" + strings.Trim(flag.FormatPlaceHolder(), `"`)
	}
	return text
}

// roffText turns paragraphs, with indented examples, into roff.
func roffText(text string) string {
	var out strings.Builder
	example := false
	for line := range strings.Lines(strings.Trim(text, "\n")) {
		line = strings.TrimSuffix(line, "\n")
		indented := strings.HasPrefix(line, "    ")
		switch {
		case line == "" && !example:
			out.WriteString(".PP\n")
			continue
		case indented && !example:
			out.WriteString(".nf\n.RS\n")
		case example && line != "" && !indented:
			out.WriteString(".RE\n.fi\n")
		}
		example = indented || example && line == ""
		out.WriteString(roff(strings.TrimPrefix(line, "    ")) + "\n")
	}
	if example {
		out.WriteString(".RE\n.fi\n")
	}
	return out.String()
}

// roff keeps a line from being taken for a request, and a hyphen from being
// broken or made into a dash. A terminal without Unicode has no ellipsis.
func roff(line string) string {
	line = strings.NewReplacer(`\`, `\e`, "-", `\-`, "…", "...").Replace(line)
	if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
		line = `\&` + line
	}
	return line
}
