package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"micronode/fault"
)

type demoCommand struct {
	Nodes int  `default:"3" placeholder:"N" help:"How many nodes to start: ${default} unless said otherwise, and not less."`
	Keep  bool `help:"Leave the nodes running when all was shown, until Ctrl-C."`
	printing
}

// Help is shown by demo --help.
func (demoCommand) Help() string {
	return `Real nodes are started on this machine, each in a process of its own, on ports that are free, connected in a row. Then it is shown what they can do, and each step is checked: a folder is put and named on the first, resolved on the second and fetched through the edge of the third; a message is relayed; a registry change takes two signatures of three; the first node is killed, and the others go on. Everything is in RAM. Nothing is written to disk, and nothing is left when it ends.

With --json each step is a line of its own, {"step","ok","ms","detail","command"}, and the last line is about all of them.

The exit code is 0 only if every step held.

Examples:

    micronode demo
    micronode demo --nodes 5
    micronode demo --keep
    micronode demo --json | jq -c '[.step, .ok, .ms]'`
}

const (
	demoOp = "demo"

	// fewestNodes is what it takes to relay something.
	fewestNodes = 3

	// mostNodes is as many as a message can pass in a row: it travels eight hops.
	mostNodes = 9

	// stepPatience is more than any step takes, even on a slow machine.
	stepPatience = 30 * time.Second
)

// Run plays the demo.
func (d *demoCommand) Run(ctx context.Context, c *console) error {
	if d.Nodes < fewestNodes || d.Nodes > mostNodes {
		return &fault.Error{Op: demoOp, Kind: fault.Malformed, Detail: fmt.Sprintf("--nodes is %d", d.Nodes),
			Next: fmt.Sprintf("Give a number from %d to %d: the nodes stand in a row, one relays to the next, and a message passes eight times at most.", fewestNodes, mostNodes)}
	}
	play := performance{console: c, steps: demoSteps(), nodes: d.Nodes, keep: d.Keep, patience: stepPatience}
	return play.run(ctx)
}

// step is one thing that is shown. What it tells is what was found to be so,
// and the command that a person would type to see the same.
type step struct {
	name    string
	command func(*stage) string
	run     func(context.Context, *stage) (detail string, err error)
}

// performance is one run of the demo.
type performance struct {
	// set at construction
	*console
	steps    []step // the last one ends the nodes
	nodes    int
	keep     bool
	patience time.Duration // with one step

	held int // how many steps held; owned by run
}

// run plays all steps, or ends with the first that does not hold. Whatever
// happens, no node is left.
func (p *performance) run(ctx context.Context) error {
	begun := time.Now()
	s, err := newStage(ctx, p.nodes)
	if err != nil {
		return err
	}
	defer s.clear()
	p.opening()
	err = p.play(ctx, s)
	p.closing(err, time.Since(begun))
	return err
}

// play goes from step to step. With --keep there is a pause before the last.
func (p *performance) play(ctx context.Context, s *stage) error {
	for i, one := range p.steps {
		if last := i == len(p.steps)-1; last && p.keep {
			p.kept(s)
			<-s.ctx.Done() // Ctrl-C, or a node that died
			if ctx.Err() != nil {
				s.ctx = context.WithoutCancel(ctx) // the nodes are still to be ended well
			}
		}
		if err := p.step(s, one); err != nil {
			return err
		}
	}
	return nil
}

// step plays one step and tells how it went.
func (p *performance) step(s *stage, one step) error {
	ctx, cancel := context.WithTimeoutCause(s.ctx, p.patience, overdue(p.patience))
	defer cancel()
	if p.outTerminal && !p.json {
		p.print("… %s\r", one.name) // what follows is longer
	}
	begun := time.Now()
	detail, err := one.run(ctx, s)
	took := time.Since(begun)
	if err != nil {
		err = failedStep(ctx, one, err)
		p.fell(one, took, err)
		return err
	}
	p.held++
	p.stood(one, took, detail, one.command(s))
	return nil
}

func overdue(patience time.Duration) error {
	return &fault.Error{Op: demoOp, Kind: fault.Timeout, Detail: fmt.Sprintf("it was not so after %s", patience),
		Next: "Look at what the node says; if the machine is very busy, try again when it is not."}
}

// failedStep says which step failed and why. Where the step was cut off, what
// cut it off says more than the call that noticed; but what it had found until
// then says more than that the time was up.
func failedStep(ctx context.Context, one step, err error) error {
	cause := context.Cause(ctx)
	_, dead := errors.AsType[*deadNode](cause)
	if _, byHand := errors.AsType[*interrupted](cause); dead || byHand {
		err = cause
	}
	return &fault.Error{Op: demoOp, Kind: fault.KindOf(err), Detail: "the step " + one.name + " failed", Next: fault.NextOf(err), Err: err}
}

// played is one step, for a program.
type played struct {
	Step    string   `json:"step"`
	OK      bool     `json:"ok"`
	MS      int64    `json:"ms"`
	Detail  string   `json:"detail"`
	Command string   `json:"command,omitempty"`
	Node    int      `json:"node,omitempty"`  // where it failed
	Log     []string `json:"log,omitempty"`   // the last that this node said
	Nodes   []actor  `json:"nodes,omitempty"` // with --keep
}

func (p *performance) opening() {
	if !p.json {
		p.print("%d nodes on this machine, in RAM. Nothing is written to disk.\n\n", p.nodes)
	}
}

// stood tells of a step that held.
func (p *performance) stood(one step, took time.Duration, detail, command string) {
	if p.json {
		p.printJSON(played{Step: one.name, OK: true, MS: took.Milliseconds(), Detail: detail, Command: command})
		return
	}
	p.print("%s %-8s %5d ms  %s\n", p.paint(green, "✓"), one.name, took.Milliseconds(), detail)
	p.print("%s$ %s\n", strings.Repeat(" ", 21), command)
}

// fell tells of a step that did not, and what the node said that it is about.
func (p *performance) fell(one step, took time.Duration, err error) {
	text := what(errors.Unwrap(err)) // which step it was stands before it
	about, known := errors.AsType[*onNode](err)
	result := played{Step: one.name, MS: took.Milliseconds(), Detail: text}
	if known {
		result.Node, result.Log = about.node.number, about.node.log.lines()
	}
	if p.json {
		p.printJSON(result)
		return
	}
	p.print("%s %-8s %5d ms  %s\n", p.paint(red, "✗"), one.name, took.Milliseconds(), visible([]byte(text)))
	if len(result.Log) > 0 {
		fmt.Fprintf(p.err, "\nthe last that node %d said:\n\n", result.Node)
	}
	for _, line := range result.Log {
		fmt.Fprintf(p.err, "  %s\n", visible([]byte(line)))
	}
	fmt.Fprintln(p.err)
}

// closing is the last line.
func (p *performance) closing(err error, took time.Duration) {
	detail := fmt.Sprintf("%d of %d steps held", p.held, len(p.steps))
	switch {
	case p.json:
		p.printJSON(played{Step: demoOp, OK: err == nil, MS: took.Milliseconds(), Detail: detail})
	case err == nil && p.keep:
		p.print("\nAll %d steps held.\n", len(p.steps))
	case err == nil:
		p.print("\nAll %d steps held, in %.1f s. Now run a node of your own:\n\n  micronode run\n", len(p.steps), took.Seconds())
	default:
		p.print("\n%s.\n", detail)
	}
}

// kept tells what can be done with the nodes that are left running.
func (p *performance) kept(s *stage) {
	if p.json {
		p.printJSON(played{Step: "keep", OK: true, Detail: "the nodes run until this process is told to stop", Nodes: s.cast()})
		return
	}
	p.print("\nThe nodes are left running.\n\n")
	for _, one := range s.cast() {
		if one.State != running {
			p.print("  node %d  %s\n", one.Node, one.State)
			continue
		}
		p.print("  node %d  gateway %s  admin %s  socket %s  process %d\n", one.Node, one.HTTP, one.Admin, socketName(one.Socket), one.PID)
	}
	second := s.second()
	p.print("\nTry, in another terminal:\n\n")
	for _, line := range []string{
		"micronode status" + second.flag(),
		"micronode get " + s.siteName() + second.flag(),
		"micronode sub news" + s.last().flag(),
		"micronode pub news hello" + second.flag(),
		"micronode registry log" + second.flag(),
		"curl -o large.bin " + second.banner.HTTP + s.edgePath(s.largest()),
	} {
		p.print("  %s\n", line)
	}
	p.print("\nCtrl-C ends them all; so does: kill %d\n\n", os.Getpid())
}
