package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync/atomic"

	"golang.org/x/term"
)

// console is what a command has of the world: the three streams, and whether
// somebody looks at them.
type console struct {
	// set at construction
	in                                   io.Reader
	out, err                             io.Writer
	inTerminal, outTerminal, errTerminal bool
	colours                              bool
	exit                                 func(code int)          // ends the process at once
	leave                                *atomic.Pointer[func()] // gives the terminal back before; whoever changes the terminal sets it

	json bool // set by the parser: programs are listening

	unwritten error // the first failure to write to out; owned by the command
}

func newConsole() *console {
	outTerminal := term.IsTerminal(int(os.Stdout.Fd()))
	return &console{
		in: os.Stdin, out: os.Stdout, err: os.Stderr, exit: os.Exit, leave: new(atomic.Pointer[func()]),
		inTerminal: term.IsTerminal(int(os.Stdin.Fd())), outTerminal: outTerminal, errTerminal: term.IsTerminal(int(os.Stderr.Fd())),
		colours: outTerminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb",
	}
}

// printing has the flag of every command that prints.
type printing struct {
	JSON jsonFlag `name:"json" help:"Print JSON, errors too."`
}

type jsonFlag bool

// AfterApply tells the console. The parser calls it if the flag was given.
func (f jsonFlag) AfterApply(c *console) error {
	c.json = bool(f)
	return nil
}

// asksForJSON looks for the flag in a command line that may not parse, so that
// the error about it comes in the form that was asked for.
func asksForJSON(args []string) bool {
	for _, arg := range args {
		switch arg {
		case "--json":
			return true
		case "--":
			return false
		}
	}
	return false
}

// print writes to standard output. A failure is remembered and ends the
// command with an error.
func (c *console) print(format string, args ...any) {
	_, err := fmt.Fprintf(c.out, format, args...)
	c.wrote(err)
}

// printJSON writes one document on a line of its own.
func (c *console) printJSON(document any) {
	encoder := json.NewEncoder(c.out)
	encoder.SetEscapeHTML(false) // it is not HTML
	c.wrote(encoder.Encode(document))
}

// remark says something on standard error that is no error, to a person only: a
// program would not know what to do with it.
func (c *console) remark(format string, args ...any) {
	if !c.json {
		fmt.Fprintf(c.err, "micronode: "+format+"\n", args...)
	}
}

func (c *console) wrote(err error) {
	if err == nil || c.unwritten != nil {
		return
	}
	c.unwritten = unwritten("print", "standard output", err)
}

// The colours of words that say how something does.
const (
	green  = "32"
	yellow = "33"
	red    = "31"
)

func (c *console) paint(colour, text string) string {
	if !c.colours {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}
