package main

import (
	"context"
	"strconv"
	"strings"

	"micronode/fault"
	"micronode/internal/terminal"
)

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
