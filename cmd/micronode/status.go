package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"micronode/client"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/terminal"
)

type statusCommand struct {
	Wait time.Duration `placeholder:"DURATION" help:"Wait until the node is ready, at most for this time, such as 5s."`
	All  bool          `help:"List every service, and not only those that do not run or have failed."`
	nodeFlags
	outputFlags
}

// Help is shown by status --help.
func (statusCommand) Help() string {
	return `If the node is not ready, each reason is shown with the next step. The exit code is 0 if the node answers; with --wait, only if it becomes ready in time. For a node of several processes, the parts are shown with their addresses and states.

Examples:

    micronode status
    micronode status --all
    micronode status --wait 5s && micronode put FILE`
}

// statusReport is the status of a node, and why it is not ready.
type statusReport struct {
	client.Status
	Fetches []client.Fetch  `json:"fetches,omitempty"`
	Missing []string        `json:"missing"`
	Reasons []client.Reason `json:"reasons"`
}

// Run prints the status of the node.
func (s *statusCommand) Run(ctx context.Context, c *console) error {
	node, err := s.dial()
	if err != nil {
		return err
	}
	defer node.Close()
	if s.Wait > 0 {
		if err := s.awaitReady(ctx, node); err != nil {
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
	status.Ready, status.WriteReady, status.Degraded = readiness.Ready, readiness.WriteReady, readiness.Degraded // as of the moment of the reasons
	// Without an index there are none, and that it is away is among the reasons.
	fetches, _ := node.Fetches(ctx)
	all := statusReport{status, fetches, append([]string{}, readiness.Missing...), terminal.SortReasons(readiness)}
	if c.json {
		c.printJSON(all)
		return nil
	}
	all.print(c, s.All)
	return nil
}

// pollInterval is the pause between two requests.
const pollInterval = 50 * time.Millisecond

// awaitReady waits until the node is ready for reads and writes. A degraded
// node counts as ready, because it may stay degraded for ever.
func (s *statusCommand) awaitReady(ctx context.Context, node *client.Client) error {
	ctx, cancel := context.WithTimeout(ctx, s.Wait)
	defer cancel()
	var last error
	for {
		readiness, err := node.Ready(ctx)
		switch {
		case err == nil && readiness.Ready && readiness.WriteReady:
			return nil
		case err == nil:
			last = terminal.NotReadyError(readiness)
		case ctx.Err() == nil || last == nil:
			last = err
		}
		if err := flow.Sleep(ctx, pollInterval); err != nil {
			return s.waitError(err, last)
		}
	}
}

// waitError is why the waiting ended: the timeout passed, or it was
// interrupted.
func (s *statusCommand) waitError(ended, last error) error {
	if fault.KindOf(ended) != fault.Timeout {
		return ended
	}
	return &fault.Error{Op: "status", Kind: fault.KindOf(last), Next: fault.NextOf(last),
		Detail: fmt.Sprintf("waited for %s", s.Wait), Err: last}
}

// print prints the report as text, so that it fits a screen: first what is
// wrong, then in one line what runs, then what and where it is. Every service
// has a line only if that is asked for.
func (r statusReport) print(c *console, every bool) {
	text, colour := terminal.ReadinessText(r.Ready, r.WriteReady, r.Degraded)
	c.print("micronode %s, profile %s, is %s\n", r.Version, r.Profile, c.paint(colour, text))
	for _, reason := range r.Reasons {
		c.print("\n  %s: %s\n  %s\n", reason.Dep, reason.Reason, reason.Next)
	}
	away := slices.ContainsFunc(r.Parts, func(one client.Part) bool { return !one.Up })
	if away {
		r.printParts(c)
	}
	r.printServices(c, func(one client.Service) bool { return !every && isTroubled(one) })
	r.printErrors(c)
	r.printRunning(c, every)
	r.printQueues(c)
	r.printFetches(c)
	c.print("\n")
	rows := [][]string{
		{"peer ID", r.PeerID},
		{"gateway", urlOf(r.Listen.HTTP)},
		{"admin", urlOf(r.Listen.Admin)},
		{"overlay", r.Listen.Overlay},
		{"public", strings.Join(r.Public, ", ")},
		{"bandwidth", bandwidthText(r.Bandwidth)},
	}
	for _, one := range r.Certificates {
		if one.Expires != "" {
			rows = append(rows, []string{"certificate", one.Name + ", until " + one.Expires})
		}
	}
	r.printNonEmptyRows(c, rows)
	if r.Amnesia {
		c.print("\n  %s\n", amnesiaLine)
	}
	c.printKnocks(r.Knocks)
	c.printNearby(r.Nearby)
	r.printRefused(c)
	for _, one := range r.RefusedOrigins[:min(len(r.RefusedOrigins), maxKnocksShown)] {
		c.print("\n  A page of %s may not read %s.\n  %s\n", terminal.Sanitize(one.Origin), terminal.Sanitize(one.Route), terminal.Sanitize(one.Next))
	}
	if !away {
		r.printParts(c)
	}
	r.printServices(c, func(client.Service) bool { return every })
}

// bandwidthText is the limits in force; empty if none is set.
func bandwidthText(b *client.Bandwidth) string {
	if b == nil {
		return ""
	}
	rate := func(limit int64) string {
		if limit == 0 {
			return "off"
		}
		return terminal.FormatBytes(float64(limit)) + "/s"
	}
	text := "up " + rate(b.Up) + ", down " + rate(b.Down)
	if b.Scheduled {
		text += ", by the schedule"
	}
	if at, err := time.Parse(time.RFC3339, b.Until); err == nil {
		text += ", until " + at.Local().Format("Mon 15:04")
	}
	return text
}

// maxRefusedShown is how many of the clients that a limit has rejected are shown.
const maxRefusedShown = 5

// printRefused shows which clients a limit has rejected of late. That is no
// trouble of the node's.
func (r statusReport) printRefused(c *console) {
	for _, one := range r.Refused[:min(len(r.Refused), maxRefusedShown)] {
		c.print("\n  %s was refused %s, last at %s: %s\n", sanitize([]byte(one.Client)), terminal.Pluralize(one.Count, "time"), one.Last, sanitize([]byte(one.Limit)))
		if one.Setting != "" {
			c.print("  The setting is %s.\n", sanitize([]byte(one.Setting)))
		}
	}
	if more := len(r.Refused) - maxRefusedShown; more > 0 {
		c.print("\n  %s more in micronode status --json\n", terminal.Pluralize(more, "refused client"))
	}
}

// isTroubled reports whether a service does not just run, or has not just done
// what it had to do.
func isTroubled(one client.Service) bool {
	return one.State != "running" && one.State != "finished" || one.Restarts > 0 || one.LastErr != ""
}

// printServices shows how some of the services fare.
func (r statusReport) printServices(c *console, which func(client.Service) bool) {
	rows := [][]string{{"service", "state", "restarts"}}
	for _, one := range r.Services {
		if which(one) {
			rows = append(rows, []string{one.Name, one.State, fmt.Sprint(one.Restarts)})
		}
	}
	if len(rows) > 1 {
		c.print("\n")
		r.printNonEmptyRows(c, rows)
	}
}

// printErrors shows the last error of each service that failed.
func (r statusReport) printErrors(c *console) {
	failed := false
	for _, one := range r.Services {
		if one.LastErr == "" {
			continue
		}
		if !failed {
			c.print("\n  last errors\n")
		}
		failed = true
		c.print("  %s: %s\n", one.Name, strings.Join(strings.Fields(one.LastErr), " "))
	}
}

// printRunning is the line of what runs as it should.
func (r statusReport) printRunning(c *console, every bool) {
	var said []string
	quiet := 0
	for _, one := range r.Services {
		if !isTroubled(one) {
			quiet++
		}
	}
	if quiet > 0 && !every {
		said = append(said, "without trouble: "+terminal.Pluralize(quiet, "service")+"; --all lists them")
	}
	if !slices.ContainsFunc(r.Queues, func(one client.Queue) bool { return one.Depth > 0 }) {
		said = append(said, "all queues are empty")
	}
	if len(said) > 0 {
		c.print("\n  %s\n", strings.Join(said, "; "))
	}
}

// printParts shows where the parts of a node run, if it has several processes.
func (r statusReport) printParts(c *console) {
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
	r.printNonEmptyRows(c, rows)
}

// printQueues shows where work piles up.
func (r statusReport) printQueues(c *console) {
	rows := [][]string{{"queue", "holds", "of"}}
	for _, one := range r.Queues {
		if one.Depth > 0 {
			rows = append(rows, []string{one.Service + "." + one.Name, fmt.Sprint(one.Depth), fmt.Sprint(one.Cap)})
		}
	}
	if len(rows) > 1 {
		c.print("\n")
		r.printNonEmptyRows(c, rows)
	}
}

// maxFetchesShown is how many of the objects that are being fetched are shown.
const maxFetchesShown = 10

// printFetches shows how far the objects are that the node fetches.
func (r statusReport) printFetches(c *console) {
	if len(r.Fetches) == 0 {
		return
	}
	rows := [][]string{{"fetches", "has", "of", "from", "a second", "left"}}
	for _, one := range r.Fetches[:min(len(r.Fetches), maxFetchesShown)] {
		left := "?"
		if one.Left >= 0 {
			left = (time.Duration(one.Left) * time.Second).String()
		}
		rows = append(rows, []string{one.Address.String(), terminal.FormatBytes(float64(one.Arrived)), terminal.FormatBytes(float64(one.Size)),
			terminal.Pluralize(one.Sources, "source"), terminal.FormatBytes(float64(one.Rate)), left})
	}
	c.print("\n")
	c.printTable(rows)
	if more := len(r.Fetches) - maxFetchesShown; more > 0 {
		c.print("\n  %d more in micronode status --json\n", more)
	}
}

// printNonEmptyRows prints rows in columns, without the empty ones.
func (statusReport) printNonEmptyRows(c *console, rows [][]string) {
	c.printTable(slices.DeleteFunc(rows, func(row []string) bool { return row[len(row)-1] == "" }))
}

// printTable prints rows in columns.
func (c *console) printTable(rows [][]string) {
	w := tabwriter.NewWriter(c.safeOut(), 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(w, "  "+strings.Join(row, "\t"))
	}
	c.recordWriteErr(w.Flush())
}

// urlOf is the URL of an address.
func urlOf(address string) string {
	if address == "" || strings.Contains(address, "://") {
		return address
	}
	return "http://" + address
}
