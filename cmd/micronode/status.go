package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"micronode/client"
	"micronode/fault"
	"micronode/internal/flow"
)

type statusCommand struct {
	Wait time.Duration `placeholder:"DURATION" help:"Wait until the node is ready, at most so long, such as 5s."`
	target
	printing
}

// Help is shown by status --help.
func (statusCommand) Help() string {
	return `If the node is not ready, each reason is shown with the next step. A node that answers is no error, whatever it answers; with --wait, one that is not ready in time is. Of a node that runs as several processes the parts are shown, where they run, and which are away.

Examples:

    micronode status
    micronode status --wait 5s && micronode put FILE`
}

// report is what a node says about itself, and why it is not as it should be.
type report struct {
	client.Status
	Missing []string        `json:"missing"`
	Reasons []client.Reason `json:"reasons"`
}

// Run asks the node and prints what it says.
func (s *statusCommand) Run(ctx context.Context, c *console) error {
	node, err := s.dial()
	if err != nil {
		return err
	}
	defer node.Close()
	if s.Wait > 0 {
		if err := s.await(ctx, node); err != nil {
			return err
		}
	}
	status, err := node.Status(ctx)
	if err != nil {
		return err
	}
	readiness, err := node.Ready(ctx)
	if err != nil {
		return err
	}
	all := report{status, append([]string{}, readiness.Missing...), urgentFirst(readiness)}
	if c.json {
		c.printJSON(all)
		return nil
	}
	all.print(c)
	return nil
}

// pollPause is how long to wait between two questions.
const pollPause = 50 * time.Millisecond

// await waits until the node is there and takes reads and writes. A degraded
// one does; there is no telling whether that ever changes.
func (s *statusCommand) await(ctx context.Context, node *client.Client) error {
	ctx, cancel := context.WithTimeout(ctx, s.Wait)
	defer cancel()
	var last error
	for {
		readiness, err := node.Ready(ctx)
		switch {
		case err == nil && readiness.Ready && readiness.WriteReady:
			return nil
		case err == nil:
			last = notReady(readiness)
		case ctx.Err() == nil || last == nil:
			last = err
		}
		if err := flow.Sleep(ctx, pollPause); err != nil {
			return s.late(err, last)
		}
	}
}

func notReady(r client.Readiness) error {
	err := fault.New("status", fault.NotReady, "the node is not ready")
	var reasons []error
	for _, one := range urgentFirst(r) {
		reasons = append(reasons, fmt.Errorf("%s: %s", one.Dep, one.Reason))
		if err.Next == "" {
			err.Next = one.Next
		}
	}
	err.Err = errors.Join(reasons...)
	return err
}

// urgentFirst puts what is missing before what is only worth a remark: the first
// next step is the one that people take.
func urgentFirst(r client.Readiness) []client.Reason {
	list := append([]client.Reason{}, r.Reasons...)
	rank := func(one client.Reason) int {
		if slices.Contains(r.Missing, one.Dep) {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(list, func(a, b client.Reason) int { return cmp.Compare(rank(a), rank(b)) })
	return list
}

// late is why the waiting was over: the time was up, or somebody interrupted.
func (s *statusCommand) late(ended, last error) error {
	if fault.KindOf(ended) != fault.Timeout {
		return ended
	}
	return &fault.Error{Op: "status", Kind: fault.KindOf(last), Next: fault.NextOf(last),
		Detail: fmt.Sprintf("waited for %s", s.Wait), Err: last}
}

// print shows the report to a person.
func (r report) print(c *console) {
	c.print("micronode %s, profile %s, is %s\n", r.Version, r.Profile, r.verdict(c))
	for _, reason := range r.Reasons {
		c.print("\n  %s: %s\n  %s\n", reason.Dep, reason.Reason, reason.Next)
	}
	c.print("\n")
	r.table(c, [][]string{
		{"peer ID", r.PeerID},
		{"gateway", urlOf(r.Listen.HTTP)},
		{"admin", urlOf(r.Listen.Admin)},
		{"overlay", r.Listen.Overlay},
	})
	if r.Amnesia {
		c.print("\n  %s\n", amnesiaLine)
	}
	r.printParts(c)
	services := [][]string{{"service", "state", "restarts"}}
	for _, one := range r.Services {
		services = append(services, []string{one.Name, one.State, fmt.Sprint(one.Restarts)})
	}
	c.print("\n")
	r.table(c, services)
	r.printQueues(c)
}

// printParts shows where the parts of a node are that runs as several processes.
func (r report) printParts(c *console) {
	if len(r.Parts) == 0 {
		return
	}
	rows := [][]string{{"part", "state", "where"}}
	for _, one := range r.Parts {
		state, where := "up", "here"
		if !one.Up {
			state = "away"
		}
		if one.At != "" {
			where = one.At
		}
		rows = append(rows, []string{one.Name, state, where})
	}
	c.print("\n")
	r.table(c, rows)
}

func (r report) verdict(c *console) string {
	switch {
	case !r.Ready:
		return c.paint(red, "not ready")
	case !r.WriteReady:
		return c.paint(yellow, "ready for reads only")
	case r.Degraded:
		return c.paint(yellow, "ready, but degraded")
	default:
		return c.paint(green, "ready")
	}
}

// printQueues shows where work piles up.
func (r report) printQueues(c *console) {
	rows := [][]string{{"queue", "holds", "of"}}
	for _, one := range r.Queues {
		if one.Depth > 0 {
			rows = append(rows, []string{one.Service + "." + one.Name, fmt.Sprint(one.Depth), fmt.Sprint(one.Cap)})
		}
	}
	if len(rows) == 1 {
		c.print("\n  all queues are empty\n")
		return
	}
	c.print("\n")
	r.table(c, rows)
}

// table prints rows in columns, without those that have nothing to say.
func (report) table(c *console, rows [][]string) {
	c.table(slices.DeleteFunc(rows, func(row []string) bool { return row[len(row)-1] == "" }))
}

// table prints rows in columns.
func (c *console) table(rows [][]string) {
	w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(w, "  "+strings.Join(row, "\t"))
	}
	c.wrote(w.Flush())
}

// urlOf is an address as something to click on.
func urlOf(address string) string {
	if address == "" || strings.Contains(address, "://") {
		return address
	}
	return "http://" + address
}
