package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"

	"micronode/fault"
	"micronode/internal/terminal"
)

const (
	op = "demo"

	// minNodes is the minimum for relaying a message.
	minNodes = 3

	// maxNodes is the longest row that a message can pass: it travels
	// eight hops.
	maxNodes = 9

	// stepTimeout is more than any step takes, even on a slow machine.
	stepTimeout = 30 * time.Second
)

// Demo is a demonstration, and how its results are shown.
type Demo struct {
	Nodes int  // how many to start
	Keep  bool // let the nodes run after the last step, until the context ends

	Out     io.Writer // the results
	Err     io.Writer // the log of a node that a failed step is about
	JSON    bool      // one document a step, instead of text
	Live    io.Writer // the terminal behind Out, to name the step that runs; nil if there is none
	Colours bool
}

// Run plays all steps, or stops at the first that fails. No node is left
// running in any case.
func (d Demo) Run(ctx context.Context) error {
	if runtime.GOOS == "windows" {
		return &fault.Error{Op: op, Kind: fault.RejectPolicy, Detail: "the demo stops nodes by signals, which Windows does not have",
			Next: "Start a node: micronode run."}
	}
	if d.Nodes < minNodes || d.Nodes > maxNodes {
		return &fault.Error{Op: op, Kind: fault.Malformed, Detail: fmt.Sprintf("--nodes is %d", d.Nodes),
			Next: fmt.Sprintf("Give a number from %d to %d: the nodes form a chain, and a message is relayed at most eight times.", minNodes, maxNodes)}
	}
	r := run{Demo: d, steps: allSteps(), stepTimeout: stepTimeout}
	return r.play(ctx)
}

// step is one step of the demo. It returns what it has verified, and the
// command with which a user can see the same.
type step struct {
	name    string
	command func(*network) string
	run     func(context.Context, *network) (detail string, err error)
}

// run is one run of the demo.
type run struct {
	// set at construction
	Demo
	steps       []step        // the last one stops the nodes
	stepTimeout time.Duration // of one step

	passed int // number of steps that passed; owned by play
}

// play starts the network, plays the steps and prints the summary.
func (r *run) play(ctx context.Context) error {
	begun := time.Now()
	net, err := newNetwork(ctx, r.Nodes)
	if err != nil {
		return err
	}
	defer net.close()
	if !r.JSON {
		r.print("%d nodes on this machine, in RAM. Nothing is written to disk.\n\n", r.Nodes)
	}
	err = r.runSteps(ctx, net)
	r.printSummary(err, time.Since(begun))
	return err
}

// runSteps runs one step after the other. With --keep it pauses before the
// last.
func (r *run) runSteps(ctx context.Context, net *network) error {
	for i, one := range r.steps {
		if last := i == len(r.steps)-1; last && r.Keep {
			r.printKept(net)
			<-net.ctx.Done() // Ctrl-C, or a node that died
			if ctx.Err() != nil {
				net.ctx = context.WithoutCancel(ctx) // the nodes must still be stopped cleanly
			}
		}
		if err := r.runStep(net, one); err != nil {
			return err
		}
	}
	return nil
}

// runStep runs one step and prints its result.
func (r *run) runStep(net *network, one step) error {
	ctx, cancel := context.WithTimeoutCause(net.ctx, r.stepTimeout, stepTimeoutError(r.stepTimeout))
	defer cancel()
	if r.Live != nil && !r.JSON {
		fmt.Fprintf(r.Live, "… %s\r", one.name) // the result covers it
	}
	begun := time.Now()
	detail, err := one.run(ctx, net)
	took := time.Since(begun)
	if err != nil {
		err = stepError(ctx, one, err)
		r.printFailed(one, took, err)
		return err
	}
	r.passed++
	r.printPassed(one, took, detail, one.command(net))
	return nil
}

func stepTimeoutError(patience time.Duration) error {
	return &fault.Error{Op: op, Kind: fault.Timeout, Detail: fmt.Sprintf("the step did not complete within %s", patience),
		Next: "See the node's log. On a busy machine, try again later."}
}

// stepError names the step that failed and the cause. If the step was
// cancelled, the cause of the cancellation is better than the error of the
// call that noticed it; but the last error of the step is better than a
// timeout.
func stepError(ctx context.Context, one step, err error) error {
	cause := context.Cause(ctx)
	if _, dead := errors.AsType[*nodeExitedError](cause); dead || fault.KindOf(cause) == fault.Canceled {
		err = cause
	}
	return &fault.Error{Op: op, Kind: fault.KindOf(err), Detail: "the step " + one.name + " failed", Next: fault.NextOf(err), Err: err}
}

// stepResult is the result of one step as JSON.
type stepResult struct {
	Step    string     `json:"step"`
	OK      bool       `json:"ok"`
	MS      int64      `json:"ms"`
	Detail  string     `json:"detail"`
	Command string     `json:"command,omitempty"`
	Node    int        `json:"node,omitempty"`  // where it failed
	Log     []string   `json:"log,omitempty"`   // the last log lines of this node
	Nodes   []nodeInfo `json:"nodes,omitempty"` // with --keep
}

// print writes a text. The writer keeps its own errors: what the demo does
// does not depend on them.
func (r *run) print(format string, args ...any) { fmt.Fprintf(r.Out, format, args...) }

// printJSON writes one document on a line of its own.
func (r *run) printJSON(document any) {
	encoder := json.NewEncoder(r.Out)
	encoder.SetEscapeHTML(false) // it is not HTML
	_ = encoder.Encode(document)
}

func (r *run) paint(colour terminal.Colour, text string) string {
	if !r.Colours {
		return text
	}
	return colour.Paint(text)
}

// printPassed prints a step that passed.
func (r *run) printPassed(one step, took time.Duration, detail, command string) {
	if r.JSON {
		r.printJSON(stepResult{Step: one.name, OK: true, MS: took.Milliseconds(), Detail: detail, Command: command})
		return
	}
	r.print("%s %-8s %5d ms  %s\n", r.paint(terminal.Green, "✓"), one.name, took.Milliseconds(), detail)
	r.print("%s$ %s\n", strings.Repeat(" ", 21), command)
}

// printFailed prints a step that failed, and the log of the node that it is
// about.
func (r *run) printFailed(one step, took time.Duration, err error) {
	text := terminal.ErrorText(errors.Unwrap(err)) // the name of the step is printed before it
	nodeErr, known := errors.AsType[*nodeError](err)
	result := stepResult{Step: one.name, MS: took.Milliseconds(), Detail: text}
	if known {
		result.Node, result.Log = nodeErr.node.number, nodeErr.node.log.lines()
	}
	if r.JSON {
		r.printJSON(result)
		return
	}
	r.print("%s %-8s %5d ms  %s\n", r.paint(terminal.Red, "✗"), one.name, took.Milliseconds(), terminal.Sanitize(text))
	if len(result.Log) > 0 {
		fmt.Fprintf(r.Err, "\nthe last log lines of node %d:\n\n", result.Node)
	}
	for _, line := range result.Log {
		fmt.Fprintf(r.Err, "  %s\n", terminal.Sanitize(line))
	}
	fmt.Fprintln(r.Err)
}

// printSummary is the last line.
func (r *run) printSummary(err error, took time.Duration) {
	detail := fmt.Sprintf("%d of %d steps succeeded", r.passed, len(r.steps))
	switch {
	case r.JSON:
		r.printJSON(stepResult{Step: op, OK: err == nil, MS: took.Milliseconds(), Detail: detail})
	case err == nil && r.Keep:
		r.print("\nAll %d steps succeeded.\n", len(r.steps))
	case err == nil:
		r.print("\nAll %d steps succeeded, in %.1f s. Now run your own node:\n\n  micronode run\n", len(r.steps), took.Seconds())
	default:
		r.print("\n%s.\n", detail)
	}
}

// printKept prints what can be done with the nodes that are left running.
func (r *run) printKept(net *network) {
	if r.JSON {
		r.printJSON(stepResult{Step: "keep", OK: true, Detail: "the nodes run until this process is stopped", Nodes: net.nodeInfos()})
		return
	}
	r.print("\nThe nodes keep running.\n\n")
	for _, one := range net.nodeInfos() {
		if one.State != nodeRunning {
			r.print("  node %d  %s\n", one.Node, one.State)
			continue
		}
		r.print("  node %d  gateway %s  admin %s  socket %s  process %d\n", one.Node, one.HTTP, one.Admin, terminal.FormatSocket(one.Socket), one.PID)
	}
	second := net.second()
	r.print("\nTry, in another terminal:\n\n")
	for _, line := range []string{
		"micronode status" + second.socketFlag(),
		"micronode get " + net.siteName() + second.socketFlag(),
		"micronode sub news" + net.last().socketFlag(),
		"micronode pub news hello" + second.socketFlag(),
		"micronode registry log" + second.socketFlag(),
		"curl -o large.bin " + second.banner.HTTP + net.edgePath(net.largest()),
	} {
		r.print("  %s\n", line)
	}
	r.print("\nCtrl-C stops them all; so does: kill %d\n\n", os.Getpid())
}
