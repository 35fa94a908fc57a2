package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/alecthomas/kong"

	"micronode/client"
	"micronode/fault"
	"micronode/internal/config"
	"micronode/internal/observe"
	"micronode/internal/terminal"
)

// exitUsage is the exit code for an invalid command line.
const exitUsage = 2

// reportedError is an error that was reported already; only its exit code is
// still needed.
type reportedError struct{ error }

// Unwrap returns the error with its kind.
func (r reportedError) Unwrap() error { return r.error }

// fail reports an error and returns its exit code, 0 for nil.
func (c *console) fail(err error) int {
	if err == nil {
		return 0
	}
	if _, already := errors.AsType[reportedError](err); !already {
		c.reportError(err)
	}
	return fault.KindOf(err).Exit()
}

// withInterruptCause names the signal that caused an error.
func withInterruptCause(ctx context.Context, err error) error {
	cause, sent := errors.AsType[*interruptError](context.Cause(ctx))
	if !sent || err == nil || fault.KindOf(err) != fault.Canceled {
		return err
	}
	if _, already := errors.AsType[reportedError](err); already {
		return err
	}
	return &fault.Error{Op: "main", Kind: fault.Canceled, Detail: cause.Error(),
		Next: "No work was left half done. Run the command again to continue."}
}

// reportError prints the error and the next step on standard error.
func (c *console) reportError(err error) {
	problem := problemOf(err)
	if c.json {
		c.reportErrorJSON(problem)
		return
	}
	fmt.Fprintf(c.safeErr(), "micronode: %s\n%s\n", problem.Detail, problem.Next)
}

func (c *console) reportErrorJSON(problem problem) {
	encoder := json.NewEncoder(c.safeErr())
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(problem) // there is no other stream to report it
}

// problem is an error as JSON: what the HTTP API would send, with everything
// that is known on this side of the network.
type problem struct {
	observe.Problem
	Exit     int             `json:"exit"`
	Problems []configProblem `json:"problems,omitempty"` // in a configuration
}

// configProblem is one problem of a configuration.
type configProblem struct {
	Where string `json:"where"`
	Key   string `json:"key"`
	What  string `json:"what"`
	Next  string `json:"next"`
}

func problemOf(err error) problem {
	p := problem{Problem: observe.ProblemOf(err, client.CorrID(err)), Exit: fault.KindOf(err).Exit()}
	p.Detail = terminal.ErrorText(err)
	for _, one := range config.ProblemsOf(err) {
		p.Problems = append(p.Problems, configProblem{one.Where, one.Key, one.What, one.Next})
	}
	return p
}

// reportUsageError reports an invalid command line. The parser suggests a
// similar word; without one, the help of the command is the next step.
func (c *console) reportUsageError(err error) int {
	command := "micronode"
	if parse, ok := errors.AsType[*kong.ParseError](err); ok && parse.Context.Selected() != nil {
		command = parse.Context.Selected().FullPath()
	}
	text, suggestion, suggested := strings.Cut(err.Error(), ", did you mean ")
	next := "See: " + command + " --help"
	if suggested {
		next = "Did you mean " + suggestion + " " + next
	}
	failed := &fault.Error{Op: "usage", Kind: fault.Malformed, Detail: text, Next: next}
	if c.json {
		problem := problemOf(failed)
		problem.Exit = exitUsage
		c.reportErrorJSON(problem)
	} else {
		c.reportError(failed)
	}
	return exitUsage
}

// forEach calls do for every name. A failure is reported at once and does not
// stop the others; the first error is returned at the end.
func (c *console) forEach(ctx context.Context, op string, names []string, do func(name string) error) error {
	var first error
	for i, name := range names {
		err := withInterruptCause(ctx, do(name))
		if err == nil {
			continue
		}
		c.reportError(withSubject(op, name, err))
		if first == nil {
			first = reportedError{err}
		}
		if remaining := len(names) - i - 1; remaining > 0 && isFatal(err) {
			c.notice("%d more not tried", remaining)
			break
		}
	}
	return first
}

// isFatal reports whether an error is about the node and not about the one
// name: it would be the same for all that follow.
func isFatal(err error) bool {
	if fault.OpOf(err) == openOp {
		return false
	}
	switch fault.KindOf(err) {
	case fault.Canceled, fault.NotReady, fault.NoRoute, fault.Unauthorized, fault.Forbidden:
		return true
	}
	return false
}

// withSubject adds the name that an error is about, unless the error has it
// already.
func withSubject(op, name string, err error) error {
	failed := &fault.Error{Op: op, Kind: fault.KindOf(err), Next: fault.NextOf(err), Err: err}
	if text := terminal.ErrorText(err); !strings.HasPrefix(text, name) && !strings.HasPrefix(text, strconv.Quote(name)) {
		failed.Detail = name
	}
	return failed
}
