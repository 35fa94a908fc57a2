package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
	"micronode/fault"
	"micronode/internal/observe"
	"micronode/internal/supervise"
)

func main() {
	c := newConsole()
	c.json = wantsJSON(os.Args[1:]) // before the arguments are parsed
	ctx, stop := c.untilInterrupted(context.Background())
	code := execute(ctx, c, os.Args[1:])
	stop()
	os.Exit(code)
}

// execute runs one command and returns its exit code. The output is part of
// the work of a command: if it cannot be written, the command has failed.
func execute(ctx context.Context, c *console, args []string) (code int) {
	defer func() {
		if bug := recover(); bug != nil {
			code = c.fail(fault.New("main", fault.Internal, "%v", bug))
		}
	}()
	parser := newParser(ctx, c)
	if c.json = wantsJSON(args); isIncomplete(parser.Model.Node, args) {
		return c.printUsage(parser, args)
	}
	if slices.Equal(args, []string{"--version"}) {
		args = []string{"version"} // what people type to every program
	}
	line, err := parser.Parse(args)
	if err != nil {
		return c.reportUsageError(err)
	}
	err = withInterruptCause(ctx, line.Run())
	if err == nil {
		err = c.outputErr
	}
	return c.fail(err)
}

// printUsage prints the help of an incomplete command.
func (c *console) printUsage(parser *kong.Kong, args []string) int {
	parser.Stdout = c.err
	trace, err := kong.Trace(parser, args)
	if err == nil {
		err = trace.PrintUsage(false)
	}
	if err != nil {
		return c.fail(err)
	}
	return exitUsage
}

// untilInterrupted returns a context that ends with the first SIGINT or
// SIGTERM. The second one ends the process at once: a user who presses Ctrl-C
// again does not want to wait.
func (c *console) untilInterrupted(ctx context.Context) (context.Context, func()) {
	ctx, interrupt := context.WithCancelCause(ctx)
	end, err := onSignals(c.signalHandler(interrupt), syscall.SIGINT, syscall.SIGTERM)
	if err != nil {
		interrupt(err) // unreachable; if it happens, the command is not started
		end = func() {}
	}
	return ctx, end
}

// duplicateSignalWindow is how soon a duplicate of a signal arrives.
// timeout(1) and some other programs that run this one send a signal to it,
// and then to its process group. A user cannot press keys that quickly.
const duplicateSignalWindow = 100 * time.Millisecond

// signalHandler returns the signal handler: the first signal interrupts,
// another one ends the process. It reads c.json now, because the command line
// may be parsed on another goroutine when a signal arrives.
func (c *console) signalHandler(interrupt context.CancelCauseFunc) func(os.Signal) {
	var first os.Signal
	var at time.Time
	jsonOutput := c.json
	return func(sent os.Signal) {
		switch {
		case first == nil:
			first, at = sent, time.Now()
			interrupt(&interruptError{sent})
		case sent == first && time.Since(at) < duplicateSignalWindow:
		default:
			if leave := c.restoreTerminal.Load(); leave != nil {
				(*leave)()
			}
			if !jsonOutput {
				fmt.Fprintln(c.err, "micronode: stopped at once")
			}
			c.exit(128 + int(sent.(syscall.Signal)))
		}
	}
}

// interruptError is the cause of a context that a signal ended.
type interruptError struct{ signal os.Signal }

// Error names the signal as people type it.
func (i *interruptError) Error() string {
	return "stopped by " + signalName(i.signal)
}

// FaultCode makes an interruption a fault of the kind Canceled.
func (i *interruptError) FaultCode() string { return fault.Canceled.Code() }

// onSignals calls handle for each of the signals until stop is called. The
// handler must be quick: a signal that arrives while another one waits is
// lost, as signals are.
func onSignals(handle func(os.Signal), signals ...os.Signal) (stop func(), err error) {
	const stage = "signals"
	supervisor, err := supervise.New(supervise.Options{Stages: []supervise.Stage{{Name: stage}}, DrainTimeout: time.Second})
	if err != nil {
		return nil, err
	}
	group, err := supervisor.NewGroup(supervise.GroupSpec{Service: "node", Kind: stage, Stage: stage, Max: 1})
	if err != nil {
		return nil, err
	}
	in := make(chan os.Signal, 1)
	signal.Notify(in, signals...)
	err = group.Go(func(ctx context.Context) error {
		for {
			select {
			case one := <-in:
				handle(one)
			case <-ctx.Done():
				return nil
			}
		}
	})
	return func() {
		signal.Stop(in)
		group.Close()
		_ = group.Wait(context.Background()) // it ends with the group
	}, err
}

type versionCommand struct{ outputFlags }

// Run prints the version of this binary.
func (versionCommand) Run(c *console) error {
	build := observe.ReadBuild("micronode")
	if c.json {
		c.printJSON(build)
	} else {
		c.print("micronode %s (%s, %s)\n", build.Version, build.Commit, build.Go)
	}
	return nil
}
