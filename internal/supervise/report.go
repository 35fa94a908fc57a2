package supervise

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// How says how a service, a pool or a group ended. That of a pool is the worst
// of its workers', in the order of this list.
type How string

const (
	HowFinished How = "finished"     // returned nil before the drain
	HowDrained  How = "drained"      // returned by itself after it was asked to
	HowCanceled How = "canceled"     // returned when its context ended
	HowBackoff  How = "in backoff"   // was waiting for a restart
	HowNever    How = "not started"  // the shutdown came first
	HowFailed   How = "failed"       // failed while it was drained
	HowDown     How = "down"         // had been given up
	HowAborted  How = "aborted"      // still ran at the deadline, then returned
	HowLeft     How = "left running" // did not return at all
)

var worst = []How{HowFinished, HowDrained, HowCanceled, HowBackoff, HowNever, HowFailed, HowDown, HowAborted, HowLeft}

// Report is the story of a shutdown.
type Report struct {
	Reason string
	Err    error // of the service whose failure was fatal, if one was

	Began time.Time
	Took  time.Duration
	Total time.Duration // what it was allowed to take

	Stages      []StageReport // in the order of the drain
	Aborted     []string      // still ran at their deadline
	LeftRunning []string      // those among them that ignored the abort
	Restarts    uint64        // of all services, since the start

	Observer error // the first panic of OnEvent, if there was one
}

// StageReport is the story of one stage.
type StageReport struct {
	Name   string
	Took   time.Duration
	Budget time.Duration // what there was of it in the end
	Tasks  []Ending
}

// Ending is how one service, pool or group ended.
type Ending struct {
	Service, Name string
	How           How
	Tasks         int           // workers of the pool, or tasks that the group had when asked
	After         time.Duration // from the stage's first moment; zero if it had ended before
	Restarts      uint64
	Err           error // the last error, that of the drain hook before all others
}

// account writes the stage's page of the report.
func (s *Supervisor) account(st *stage, from, deadline time.Time, report *Report) Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	page := StageReport{Name: st.Name, Took: time.Since(from), Budget: deadline.Sub(from)}
	for _, u := range st.units {
		page.Tasks = append(page.Tasks, u.ending(from))
		report.Restarts += u.total.Restarts
		u.name(report)
	}
	for _, g := range st.groups {
		if g.atDrain > 0 {
			page.Tasks = append(page.Tasks, g.ending(from))
			g.name(report)
		}
	}
	report.Stages = append(report.Stages, page)
	return s.stamp(Event{Type: EventStageDrained, Stage: st.Name,
		Detail: fmt.Sprintf("%s of %s", short(page.Took), short(page.Budget))})
}

// ending is the unit's line. Called with mu held.
func (u *unit) ending(from time.Time) Ending {
	e := Ending{Service: u.spec.Service, Name: u.spec.Name, How: HowNever, Tasks: len(u.slots),
		Restarts: u.total.Restarts, Err: u.lastErr}
	if u.started {
		e.How = slices.MaxFunc(u.slots, func(a, b *slot) int {
			return slices.Index(worst, a.how) - slices.Index(worst, b.how)
		}).how
	}
	switch {
	case e.How == HowLeft || u.running > 0:
		e.After = time.Since(from)
	case u.draining:
		e.After = u.since.Sub(from)
	}
	if u.hookErr != nil {
		e.Err = u.hookErr
	}
	return e
}

// name adds what was aborted or left to the report's lists. Called with mu held.
func (u *unit) name(report *Report) {
	for _, slot := range u.slots {
		if slot.task != nil && slot.task.aborted {
			report.Aborted = append(report.Aborted, slot.label())
		}
		if slot.how == HowLeft {
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

// ending is the group's line. Called with mu held.
func (g *Group) ending(from time.Time) Ending {
	e := Ending{Service: g.spec.Service, Name: g.spec.Kind, Tasks: g.atDrain, After: g.since.Sub(from)}
	switch {
	case g.left > 0:
		e.How, e.After = HowLeft, time.Since(from)
	case g.aborted > 0:
		e.How = HowAborted
	case g.spec.Finish:
		e.How = HowDrained
	default:
		e.How = HowCanceled
	}
	return e
}

// name is as that of a unit.
func (g *Group) name(report *Report) {
	label := func(n int) string { return fmt.Sprintf("%s.%s (%s)", g.spec.Service, g.spec.Kind, tasks(n)) }
	if g.aborted > 0 {
		report.Aborted = append(report.Aborted, label(g.aborted))
	}
	if g.left > 0 {
		report.LeftRunning = append(report.LeftRunning, label(g.left))
	}
}

// conclude writes the last page.
func (s *Supervisor) conclude(report *Report) {
	s.mu.Lock()
	s.phase = PhaseStopped
	report.Took, report.Err = time.Since(report.Began), s.fatal
	news := s.stamp(Event{Type: EventStopped, Err: s.fatal, Detail: report.summary()})
	s.mu.Unlock()
	s.emit(news)

	s.mu.Lock()
	defer s.mu.Unlock()
	report.Observer = s.observer
}

// summary is the report in one line.
func (r *Report) summary() string {
	return fmt.Sprintf("drained in %s of %s; %d restarts, %d aborted, %d left running",
		short(r.Took), short(r.Total), r.Restarts, len(r.Aborted), len(r.LeftRunning))
}

// String is the report for a person: the summary, a table of how everything
// ended, and what to look at.
func (r *Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "shutdown: %s\n%s\n\n", r.Reason, r.summary())
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "stage\ttook\tof\tservice\tname\tended\tafter\tremarks")
	for _, st := range r.Stages {
		stage := fmt.Sprintf("%s\t%s\t%s", st.Name, short(st.Took), short(st.Budget))
		if len(st.Tasks) == 0 {
			fmt.Fprintf(w, "%s\t-\t-\t-\t-\t-\n", stage)
		}
		for _, e := range st.Tasks {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", stage, e.Service, e.Name, e.How, short(e.After), e.remarks())
			stage = "\t\t"
		}
	}
	w.Flush()
	r.list(&b, "aborted", r.Aborted, "still ran at the deadline; give the stage a longer budget, or look at what it waits for")
	r.list(&b, "left running", r.LeftRunning, "ignored the end of its context; SIGQUIT shows where a goroutine is stuck")
	if r.Err != nil {
		fmt.Fprintf(&b, "\nfatal: %v\n", r.Err)
	}
	if r.Observer != nil {
		fmt.Fprintf(&b, "\nOnEvent: %v\n", r.Observer)
	}
	return b.String()
}

func (r *Report) list(b *strings.Builder, title string, names []string, next string) {
	if len(names) > 0 {
		fmt.Fprintf(b, "\n%s: %s\n  (%s)\n", title, strings.Join(names, ", "), next)
	}
}

// remarks are what is out of the ordinary; "-" if nothing is.
func (e Ending) remarks() string {
	var notes []string
	if e.Tasks > 1 {
		notes = append(notes, tasks(e.Tasks))
	}
	if e.Restarts > 0 {
		notes = append(notes, fmt.Sprintf("%d restarts", e.Restarts))
	}
	if e.Err != nil {
		notes = append(notes, "last error: "+strings.ReplaceAll(e.Err.Error(), "\n", " "))
	}
	if notes == nil {
		return "-"
	}
	return strings.Join(notes, ", ")
}

// short is a duration that a person can take in.
func short(d time.Duration) string { return d.Round(time.Millisecond).String() }
