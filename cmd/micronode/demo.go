package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"micronode/fault"
	"micronode/internal/terminal"
)

type demoCommand struct {
	Nodes int  `default:"3" placeholder:"N" help:"The number of nodes to start, 3 to 9 (default ${default})."`
	Keep  bool `help:"Keep the nodes running after the last step, until Ctrl-C."`
	outputFlags
}

// Help is shown by demo --help.
func (demoCommand) Help() string {
	return `The demonstration starts real nodes on this machine, each in its own process, on free ports, connected in a chain. Each step is checked: put and name a folder on the first node, resolve it on the second, fetch it through the edge of the third; relay a message; commit a registry change with two signatures of three; kill the first node and continue with the others. Everything is in RAM. Nothing is written to disk, and nothing is left at the end.

With --json each step is one line, {"step","ok","ms","detail","command"}, and the last line is the summary.

The exit code is 0 only if every step succeeded.

Examples:

    micronode demo
    micronode demo --nodes 5
    micronode demo --keep
    micronode demo --json | jq -c '[.step, .ok, .ms]'`
}

const (
	demoOp = "demo"

	// minDemoNodes is the minimum for relaying a message.
	minDemoNodes = 3

	// maxDemoNodes is the longest row that a message can pass: it travels
	// eight hops.
	maxDemoNodes = 9

	// demoStepTimeout is more than any step takes, even on a slow machine.
	demoStepTimeout = 30 * time.Second
)

// Run runs the demo.
func (d *demoCommand) Run(ctx context.Context, c *console) error {
	if d.Nodes < minDemoNodes || d.Nodes > maxDemoNodes {
		return &fault.Error{Op: demoOp, Kind: fault.Malformed, Detail: fmt.Sprintf("--nodes is %d", d.Nodes),
			Next: fmt.Sprintf("Give a number from %d to %d: the nodes form a chain, and a message is relayed at most eight times.", minDemoNodes, maxDemoNodes)}
	}
	run := demoRun{console: c, steps: demoSteps(), nodes: d.Nodes, keep: d.Keep, stepTimeout: demoStepTimeout}
	return run.run(ctx)
}

// demoStep is one step of the demo. It returns what it has verified, and the
// command with which a user can see the same.
type demoStep struct {
	name    string
	command func(*demoNetwork) string
	run     func(context.Context, *demoNetwork) (detail string, err error)
}

// demoRun is one run of the demo.
type demoRun struct {
	// set at construction
	*console
	steps       []demoStep // the last one stops the nodes
	nodes       int
	keep        bool
	stepTimeout time.Duration // of one step

	passed int // number of steps that passed; owned by run
}

// run runs all steps, or stops at the first that fails. No node is left
// running in any case.
func (d *demoRun) run(ctx context.Context) error {
	begun := time.Now()
	s, err := newDemoNetwork(ctx, d.nodes)
	if err != nil {
		return err
	}
	defer s.close()
	d.printIntro()
	err = d.runSteps(ctx, s)
	d.printSummary(err, time.Since(begun))
	return err
}

// runSteps runs one step after the other. With --keep it pauses before the
// last.
func (d *demoRun) runSteps(ctx context.Context, s *demoNetwork) error {
	for i, one := range d.steps {
		if last := i == len(d.steps)-1; last && d.keep {
			d.printKept(s)
			<-s.ctx.Done() // Ctrl-C, or a node that died
			if ctx.Err() != nil {
				s.ctx = context.WithoutCancel(ctx) // the nodes must still be stopped cleanly
			}
		}
		if err := d.runStep(s, one); err != nil {
			return err
		}
	}
	return nil
}

// runStep runs one step and prints its result.
func (d *demoRun) runStep(s *demoNetwork, one demoStep) error {
	ctx, cancel := context.WithTimeoutCause(s.ctx, d.stepTimeout, stepTimeoutError(d.stepTimeout))
	defer cancel()
	if d.outTerminal && !d.json {
		d.print("… %s\r", one.name) // the next line is longer
	}
	begun := time.Now()
	detail, err := one.run(ctx, s)
	took := time.Since(begun)
	if err != nil {
		err = stepError(ctx, one, err)
		d.printFailed(one, took, err)
		return err
	}
	d.passed++
	d.printPassed(one, took, detail, one.command(s))
	return nil
}

func stepTimeoutError(patience time.Duration) error {
	return &fault.Error{Op: demoOp, Kind: fault.Timeout, Detail: fmt.Sprintf("the step did not complete within %s", patience),
		Next: "See the node's log. On a busy machine, try again later."}
}

// stepError names the step that failed and the cause. If the step was
// cancelled, the cause of the cancellation is better than the error of the
// call that noticed it; but the last error of the step is better than a
// timeout.
func stepError(ctx context.Context, one demoStep, err error) error {
	cause := context.Cause(ctx)
	_, dead := errors.AsType[*nodeExitedError](cause)
	if _, byHand := errors.AsType[*interruptError](cause); dead || byHand {
		err = cause
	}
	return &fault.Error{Op: demoOp, Kind: fault.KindOf(err), Detail: "the step " + one.name + " failed", Next: fault.NextOf(err), Err: err}
}

// stepResult is the result of one step as JSON.
type stepResult struct {
	Step    string         `json:"step"`
	OK      bool           `json:"ok"`
	MS      int64          `json:"ms"`
	Detail  string         `json:"detail"`
	Command string         `json:"command,omitempty"`
	Node    int            `json:"node,omitempty"`  // where it failed
	Log     []string       `json:"log,omitempty"`   // the last log lines of this node
	Nodes   []demoNodeInfo `json:"nodes,omitempty"` // with --keep
}

func (d *demoRun) printIntro() {
	if !d.json {
		d.print("%d nodes on this machine, in RAM. Nothing is written to disk.\n\n", d.nodes)
	}
}

// printPassed prints a step that passed.
func (d *demoRun) printPassed(one demoStep, took time.Duration, detail, command string) {
	if d.json {
		d.printJSON(stepResult{Step: one.name, OK: true, MS: took.Milliseconds(), Detail: detail, Command: command})
		return
	}
	d.print("%s %-8s %5d ms  %s\n", d.paint(terminal.Green, "✓"), one.name, took.Milliseconds(), detail)
	d.print("%s$ %s\n", strings.Repeat(" ", 21), command)
}

// printFailed prints a step that failed, and the log of the node that it is
// about.
func (d *demoRun) printFailed(one demoStep, took time.Duration, err error) {
	text := terminal.ErrorText(errors.Unwrap(err)) // the name of the step is printed before it
	nodeErr, known := errors.AsType[*nodeError](err)
	result := stepResult{Step: one.name, MS: took.Milliseconds(), Detail: text}
	if known {
		result.Node, result.Log = nodeErr.node.number, nodeErr.node.log.lines()
	}
	if d.json {
		d.printJSON(result)
		return
	}
	d.print("%s %-8s %5d ms  %s\n", d.paint(terminal.Red, "✗"), one.name, took.Milliseconds(), sanitize([]byte(text)))
	if len(result.Log) > 0 {
		fmt.Fprintf(d.err, "\nthe last log lines of node %d:\n\n", result.Node)
	}
	for _, line := range result.Log {
		fmt.Fprintf(d.err, "  %s\n", sanitize([]byte(line)))
	}
	fmt.Fprintln(d.err)
}

// printSummary is the last line.
func (d *demoRun) printSummary(err error, took time.Duration) {
	detail := fmt.Sprintf("%d of %d steps succeeded", d.passed, len(d.steps))
	switch {
	case d.json:
		d.printJSON(stepResult{Step: demoOp, OK: err == nil, MS: took.Milliseconds(), Detail: detail})
	case err == nil && d.keep:
		d.print("\nAll %d steps succeeded.\n", len(d.steps))
	case err == nil:
		d.print("\nAll %d steps succeeded, in %.1f s. Now run your own node:\n\n  micronode run\n", len(d.steps), took.Seconds())
	default:
		d.print("\n%s.\n", detail)
	}
}

// printKept prints what can be done with the nodes that are left running.
func (d *demoRun) printKept(s *demoNetwork) {
	if d.json {
		d.printJSON(stepResult{Step: "keep", OK: true, Detail: "the nodes run until this process is stopped", Nodes: s.nodeInfos()})
		return
	}
	d.print("\nThe nodes keep running.\n\n")
	for _, one := range s.nodeInfos() {
		if one.State != nodeRunning {
			d.print("  node %d  %s\n", one.Node, one.State)
			continue
		}
		d.print("  node %d  gateway %s  admin %s  socket %s  process %d\n", one.Node, one.HTTP, one.Admin, displaySocket(one.Socket), one.PID)
	}
	second := s.second()
	d.print("\nTry, in another terminal:\n\n")
	for _, line := range []string{
		"micronode status" + second.socketFlag(),
		"micronode get " + s.siteName() + second.socketFlag(),
		"micronode sub news" + s.last().socketFlag(),
		"micronode pub news hello" + second.socketFlag(),
		"micronode registry log" + second.socketFlag(),
		"curl -o large.bin " + second.banner.HTTP + s.edgePath(s.largest()),
	} {
		d.print("  %s\n", line)
	}
	d.print("\nCtrl-C stops them all; so does: kill %d\n\n", os.Getpid())
}
