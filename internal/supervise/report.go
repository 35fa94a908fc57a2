package supervise

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// EndState says how a service, a pool or a group ended. That of a pool is the worst
// of its workers', in the order of this list.
type EndState string

const (
	EndFinished    EndState = "finished"     // returned nil before the drain
	EndDrained     EndState = "drained"      // returned by itself after it was asked to
	EndCanceled    EndState = "canceled"     // returned when its context ended
	EndBackoff     EndState = "in backoff"   // was waiting for a restart
	EndNotStarted  EndState = "not started"  // the shutdown came first
	EndFailed      EndState = "failed"       // failed while it was drained
	EndDown        EndState = "down"         // was not restarted any more
	EndAborted     EndState = "aborted"      // still ran at the deadline, then returned
	EndLeftRunning EndState = "left running" // did not return at all
)

var endStatesBySeverity = []EndState{EndFinished, EndDrained, EndCanceled, EndBackoff, EndNotStarted, EndFailed, EndDown, EndAborted, EndLeftRunning}

// Report describes a shutdown.
type Report struct {
	Reason string
	Err    error // of the service whose failure was fatal, if one was

	Began        time.Time
	Took         time.Duration
	DrainTimeout time.Duration // what it was allowed to take

	Stages      []StageReport // in the order of the drain
	Aborted     []string      // still ran at their deadline
	LeftRunning []string      // those among them that ignored the abort
	Restarts    uint64        // of all services, since the start

	ObserverErr error // the first panic of OnEvent, if there was one
}

// StageReport describes the drain of one stage.
type StageReport struct {
	Name    string
	Took    time.Duration
	Timeout time.Duration // what was left of it in the end
	Tasks   []TaskReport
}

// TaskReport is how one service, pool or group ended.
type TaskReport struct {
	Service, Name string
	End           EndState
	Tasks         int           // workers of the pool, or tasks that the group had when the drain began
	After         time.Duration // from the start of the stage's drain; zero if it had ended before
	Restarts      uint64
	Err           error // the last error; that of the drain hook comes first
}

// reportStage adds the stage to the report.
func (s *Supervisor) reportStage(st *stage, from, deadline time.Time, report *Report) Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	stageReport := StageReport{Name: st.Name, Took: time.Since(from), Timeout: deadline.Sub(from)}
	for _, u := range st.units {
		stageReport.Tasks = append(stageReport.Tasks, u.taskReport(from))
		report.Restarts += u.total.Restarts
		u.addToReport(report)
	}
	for _, g := range st.groups {
		if g.atDrain > 0 {
			stageReport.Tasks = append(stageReport.Tasks, g.taskReport(from))
			g.addToReport(report)
		}
	}
	report.Stages = append(report.Stages, stageReport)
	return s.stamp(Event{Type: EventStageDrained, Stage: st.Name,
		Detail: fmt.Sprintf("%s of %s", formatDuration(stageReport.Took), formatDuration(stageReport.Timeout))})
}

// taskReport is the unit's element. Called with mu held.
func (u *unit) taskReport(from time.Time) TaskReport {
	e := TaskReport{Service: u.spec.Service, Name: u.spec.Name, End: EndNotStarted, Tasks: len(u.slots),
		Restarts: u.total.Restarts, Err: u.lastErr}
	if u.started {
		e.End = slices.MaxFunc(u.slots, func(a, b *slot) int {
			return slices.Index(endStatesBySeverity, a.end) - slices.Index(endStatesBySeverity, b.end)
		}).end
	}
	switch {
	case e.End == EndLeftRunning || u.running > 0:
		e.After = time.Since(from)
	case u.draining:
		e.After = u.since.Sub(from)
	}
	if u.hookErr != nil {
		e.Err = u.hookErr
	}
	return e
}

// addToReport adds what was aborted or left to the report's lists. Called with mu held.
func (u *unit) addToReport(report *Report) {
	for _, slot := range u.slots {
		if slot.task != nil && slot.task.aborted {
			report.Aborted = append(report.Aborted, slot.label())
		}
		if slot.end == EndLeftRunning {
			report.LeftRunning = append(report.LeftRunning, slot.label())
		}
	}
	if u.hook != nil && u.hook.aborted {
		label := fmt.Sprintf("%s (%s)", u.spec.Name, hookDetail)
		report.Aborted = append(report.Aborted, label)
		if !u.hook.ended {
			report.LeftRunning = append(report.LeftRunning, label)
		}
	}
}

// taskReport is the group's element. Called with mu held.
func (g *Group) taskReport(from time.Time) TaskReport {
	e := TaskReport{Service: g.spec.Service, Name: g.spec.Kind, Tasks: g.atDrain, After: g.since.Sub(from)}
	switch {
	case g.left > 0:
		e.End, e.After = EndLeftRunning, time.Since(from)
	case g.aborted > 0:
		e.End = EndAborted
	case g.spec.Finish:
		e.End = EndDrained
	default:
		e.End = EndCanceled
	}
	return e
}

// addToReport does the same for a group.
func (g *Group) addToReport(report *Report) {
	label := func(n int) string { return fmt.Sprintf("%s.%s (%s)", g.spec.Service, g.spec.Kind, tasks(n)) }
	if g.aborted > 0 {
		report.Aborted = append(report.Aborted, label(g.aborted))
	}
	if g.left > 0 {
		report.LeftRunning = append(report.LeftRunning, label(g.left))
	}
}

// finishReport completes the report.
func (s *Supervisor) finishReport(report *Report) {
	s.mu.Lock()
	s.phase = PhaseStopped
	report.Took, report.Err = time.Since(report.Began), s.fatal
	event := s.stamp(Event{Type: EventStopped, Err: s.fatal, Detail: report.summary()})
	s.mu.Unlock()
	s.emit(event)

	s.mu.Lock()
	defer s.mu.Unlock()
	report.ObserverErr = s.observerErr
}

// summary is the report in one line.
func (r *Report) summary() string {
	return fmt.Sprintf("drained in %s of %s; %d restarts, %d aborted, %d left running",
		formatDuration(r.Took), formatDuration(r.DrainTimeout), r.Restarts, len(r.Aborted), len(r.LeftRunning))
}

// String is the report for a person: the summary, a table of how everything
// ended, and what to look at.
func (r *Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "shutdown: %s\n%s\n\n", r.Reason, r.summary())
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "stage\ttook\tof\tservice\tname\tended\tafter\tremarks")
	for _, st := range r.Stages {
		stage := fmt.Sprintf("%s\t%s\t%s", st.Name, formatDuration(st.Took), formatDuration(st.Timeout))
		if len(st.Tasks) == 0 {
			fmt.Fprintf(w, "%s\t-\t-\t-\t-\t-\n", stage)
		}
		for _, e := range st.Tasks {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", stage, e.Service, e.Name, e.End, formatDuration(e.After), e.remarks())
			stage = "\t\t"
		}
	}
	w.Flush()
	r.list(&b, "aborted", r.Aborted, "still ran at the deadline; give the stage a longer budget, or check what it waits for")
	r.list(&b, "left running", r.LeftRunning, "ignored the end of its context; SIGQUIT shows where a goroutine is stuck")
	if r.Err != nil {
		fmt.Fprintf(&b, "\nfatal: %v\n", r.Err)
	}
	if r.ObserverErr != nil {
		fmt.Fprintf(&b, "\nOnEvent: %v\n", r.ObserverErr)
	}
	return b.String()
}

// WasClean reports whether every task ended as it should, and none had to be
// restarted before.
func (r *Report) WasClean() bool {
	if r.Err != nil || r.ObserverErr != nil || len(r.Aborted) > 0 || len(r.LeftRunning) > 0 || r.Restarts > 0 {
		return false
	}
	for _, st := range r.Stages {
		for _, e := range st.Tasks {
			if e.Err != nil || slices.Index(endStatesBySeverity, e.End) >= slices.Index(endStatesBySeverity, EndFailed) {
				return false
			}
		}
	}
	return true
}

// Line is the shutdown in one line, for one that was clean. What was lost with the
// node, nobody here knows.
func (r *Report) Line() string {
	count := 0
	for _, st := range r.Stages {
		for _, e := range st.Tasks {
			count += max(e.Tasks, 1)
		}
	}
	return fmt.Sprintf("stopped in %s (%s): %s, nothing aborted", formatDuration(r.Took), r.Reason, tasks(count))
}

func (r *Report) list(b *strings.Builder, title string, names []string, next string) {
	if len(names) > 0 {
		fmt.Fprintf(b, "\n%s: %s\n  (%s)\n", title, strings.Join(names, ", "), next)
	}
}

// remarks are what is out of the ordinary; "-" if nothing is.
func (t TaskReport) remarks() string {
	var notes []string
	if t.Tasks > 1 {
		notes = append(notes, tasks(t.Tasks))
	}
	if t.Restarts > 0 {
		notes = append(notes, fmt.Sprintf("%d restarts", t.Restarts))
	}
	if t.Err != nil {
		notes = append(notes, "last error: "+strings.ReplaceAll(t.Err.Error(), "\n", " "))
	}
	if notes == nil {
		return "-"
	}
	return strings.Join(notes, ", ")
}

// formatDuration rounds a duration for reading.
func formatDuration(d time.Duration) string { return d.Round(time.Millisecond).String() }
