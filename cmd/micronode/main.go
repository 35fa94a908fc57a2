package main

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"micronode/fault"
)

func main() {
	c := newConsole()
	c.json = asksForJSON(os.Args[1:]) // before anybody else looks
	ctx, stop := c.untilInterrupted(context.Background())
	code := execute(ctx, c, os.Args[1:])
	stop()
	os.Exit(code)
}

// execute runs one command and returns its exit code. What a command prints
// counts as part of its work: if it cannot be written, the command has failed.
func execute(ctx context.Context, c *console, args []string) (code int) {
	defer func() {
		if bug := recover(); bug != nil {
			code = c.fail(fault.New("main", fault.Internal, "%v", bug))
		}
	}()
	if c.json = asksForJSON(args); len(args) == 0 {
		return c.lost()
	}
	line, err := newParser(ctx, c).Parse(args)
	if err != nil {
		return c.misused(err)
	}
	err = stoppedBy(ctx, line.Run())
	if err == nil {
		err = c.unwritten
	}
	return c.fail(err)
}

// lost is for somebody who typed the bare name to see what happens.
func (c *console) lost() int {
	parser := newParser(context.Background(), c)
	parser.Stdout = c.err
	trace, err := kong.Trace(parser, nil)
	if err == nil {
		err = trace.PrintUsage(false)
	}
	if err != nil {
		return c.fail(err)
	}
	return usedWrongly
}

// untilInterrupted returns a context that ends with the first SIGINT or
// SIGTERM. The second one ends the process at once: whoever presses the keys
// again does not want to wait.
func (c *console) untilInterrupted(ctx context.Context) (context.Context, func()) {
	ctx, interrupt := context.WithCancelCause(ctx)
	end, err := onSignals(c.interruption(interrupt), syscall.SIGINT, syscall.SIGTERM)
	if err != nil {
		interrupt(err) // it cannot be; but if it is, nothing is begun
		end = func() {}
	}
	return ctx, end
}

// echo is how soon a signal comes again that was meant once. timeout(1) and some
// other programs that run this one send a signal to it, and then to the group
// that it is in. Nobody's fingers are that quick.
const echo = 100 * time.Millisecond

// interruption is what to do about signals: the first one interrupts, another
// one ends the process. Whether a program is listening is asked now: when a
// signal comes, the command line may be being read on another goroutine.
func (c *console) interruption(interrupt context.CancelCauseFunc) func(os.Signal) {
	var first os.Signal
	var at time.Time
	program := c.json
	return func(signal os.Signal) {
		switch {
		case first == nil:
			first, at = signal, time.Now()
			interrupt(&interrupted{signal})
		case signal == first && time.Since(at) < echo:
		default:
			if leave := c.leave.Load(); leave != nil {
				(*leave)()
			}
			if !program {
				fmt.Fprintln(c.err, "micronode: stopped at once")
			}
			c.exit(128 + int(signal.(syscall.Signal)))
		}
	}
}
