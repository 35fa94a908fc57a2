package main

import (
	"context"
	"strconv"
	"strings"

	"micronode/fault"
)

// each does something with every name. A failure is told at once and does not
// stop the others; the error at the end is the first of them.
func (c *console) each(ctx context.Context, op string, names []string, do func(name string) error) error {
	var first error
	for i, name := range names {
		err := stoppedBy(ctx, do(name))
		if err == nil {
			continue
		}
		c.tell(about(op, name, err))
		if first == nil {
			first = told{err}
		}
		if left := len(names) - i - 1; left > 0 && hopeless(err) {
			c.remark("%d more not tried", left)
			break
		}
	}
	return first
}

// hopeless tells whether an error is about the node and not about the one
// thing: it would be the same for all that follow.
func hopeless(err error) bool {
	if fault.OpOf(err) == openOp {
		return false
	}
	switch fault.KindOf(err) {
	case fault.Canceled, fault.NotReady, fault.NoRoute, fault.Unauthorized, fault.Forbidden:
		return true
	}
	return false
}

// about says which of several things an error is about, if it does not say so
// itself.
func about(op, name string, err error) error {
	failed := &fault.Error{Op: op, Kind: fault.KindOf(err), Next: fault.NextOf(err), Err: err}
	if text := what(err); !strings.HasPrefix(text, name) && !strings.HasPrefix(text, strconv.Quote(name)) {
		failed.Detail = name
	}
	return failed
}
