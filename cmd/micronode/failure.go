package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/alecthomas/kong"

	"micronode/client"
	"micronode/fault"
	"micronode/internal/config"
	"micronode/internal/observe"
)

// usedWrongly is the exit code of a command line that makes no sense.
const usedWrongly = 2

// told is an error that the user knows about already; only its exit code is
// still to come.
type told struct{ error }

// Unwrap gives the kind of the error.
func (t told) Unwrap() error { return t.error }

// fail tells an error and returns its exit code. Without one it is 0.
func (c *console) fail(err error) int {
	if err == nil {
		return 0
	}
	if _, already := errors.AsType[told](err); !already {
		c.tell(err)
	}
	return fault.KindOf(err).Exit()
}

// stoppedBy names the signal behind an error that is only its echo.
func stoppedBy(ctx context.Context, err error) error {
	cause, sent := errors.AsType[*interrupted](context.Cause(ctx))
	if !sent || err == nil || fault.KindOf(err) != fault.Canceled {
		return err
	}
	if _, already := errors.AsType[told](err); already {
		return err
	}
	return &fault.Error{Op: "main", Kind: fault.Canceled, Detail: cause.Error(),
		Next: "Nothing was left half done. Type the command again to go on."}
}

// tell says what is wrong and what to do about it, on standard error.
func (c *console) tell(err error) {
	problem := problemOf(err)
	if c.json {
		c.tellJSON(problem)
		return
	}
	fmt.Fprintf(c.err, "micronode: %s\n%s\n", problem.Detail, problem.Next)
}

func (c *console) tellJSON(problem problem) {
	encoder := json.NewEncoder(c.err)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(problem) // there is nobody left to tell
}

// problem is an error for a program: what the HTTP API would send, with all
// that may be known on this side of the network.
type problem struct {
	observe.Problem
	Exit     int       `json:"exit"`
	Problems []mistake `json:"problems,omitempty"` // in a configuration
}

// mistake is one thing that is wrong with a configuration.
type mistake struct {
	Where string `json:"where"`
	Key   string `json:"key"`
	What  string `json:"what"`
	Next  string `json:"next"`
}

func problemOf(err error) problem {
	p := problem{Problem: observe.ProblemOf(err, client.CorrID(err)), Exit: fault.KindOf(err).Exit()}
	p.Detail = what(err)
	if list, several := errors.AsType[config.Problems](err); several {
		for _, one := range list {
			p.Problems = append(p.Problems, mistake{one.Where, one.Key, one.What, one.Next})
		}
	} else if one, ok := errors.AsType[*config.Problem](err); ok {
		p.Problems = []mistake{{one.Where, one.Key, one.What, one.Next}}
	}
	return p
}

// what is the text of an error for people: details and causes, without the
// names of operations, and without saying anything twice.
func what(err error) string {
	own, ok := err.(*fault.Error)
	if !ok {
		if list, joined := err.(interface{ Unwrap() []error }); joined && len(list.Unwrap()) == 1 {
			return what(list.Unwrap()[0])
		}
		if cause := errors.Unwrap(err); cause != nil && cause.Error() == err.Error() {
			return what(cause) // a wrapper that adds nothing to read
		}
		return err.Error()
	}
	switch {
	case own.Detail == "" && own.Err == nil:
		return own.Kind.Title()
	case own.Err == nil:
		return own.Detail
	}
	cause := what(own.Err)
	if strings.HasPrefix(cause, own.Detail) { // also if there is no detail
		return cause
	}
	return own.Detail + ": " + cause
}

// misused tells what is wrong with a command line. The parser suggests what is
// near; where nothing is, the help of the command is the next step.
func (c *console) misused(err error) int {
	command := "micronode"
	if parse, ok := errors.AsType[*kong.ParseError](err); ok && parse.Context.Selected() != nil {
		command = parse.Context.Selected().FullPath()
	}
	text, near, suggested := strings.Cut(err.Error(), ", did you mean ")
	next := "See: " + command + " --help"
	if suggested {
		next = "Did you mean " + near + " " + next
	}
	failed := &fault.Error{Op: "usage", Kind: fault.Malformed, Detail: text, Next: next}
	if c.json {
		problem := problemOf(failed)
		problem.Exit = usedWrongly
		c.tellJSON(problem)
	} else {
		c.tell(failed)
	}
	return usedWrongly
}
