package explore

import (
	"fmt"
	"strconv"
	"strings"

	"micronode/internal/flow"
)

// Options bound an exploration.
type Options struct {
	// Preemptions is how often a run may switch away from a thread that could
	// have continued. Two find nearly every bug; three are slow and sure.
	Preemptions int

	// MaxRuns stops an exploration that turned out larger than expected. Zero
	// means no limit. A stopped exploration is not complete, and says so.
	MaxRuns int
}

// Result is what an exploration found.
type Result struct {
	Runs     int
	Complete bool // every interleaving within the bound was run
	Failure  *Failure
}

// Failure is a run that went wrong.
type Failure struct {
	Err      error
	Schedule string   // for Replay
	Trace    []string // the steps in words, in order
}

// Error shows the failure, its steps and how to see it again.
func (f *Failure) Error() string {
	return fmt.Sprintf("%v\nschedule %s\n  %s", f.Err, f.Schedule, strings.Join(f.Trace, "\n  "))
}

// Run explores a model: setup is called once for each interleaving, on a new
// World, to add the threads and checks. It must do the same each time.
func Run(options Options, setup func(*World)) Result {
	path := &decisions{}
	result := Result{}
	for {
		_, err := run(options.Preemptions, path, setup)
		result.Runs++
		if err != nil {
			result.Failure = replay(options.Preemptions, path.taken(), setup)
			return result
		}
		if !path.advance() {
			result.Complete = true
			return result
		}
		if result.Runs == options.MaxRuns {
			return result
		}
	}
}

// Replay runs the one schedule that a failure printed, and returns the failure
// again, or nil if the model no longer fails on it.
func Replay(options Options, schedule string, setup func(*World)) (*Failure, error) {
	var taken []int
	for word := range strings.FieldsFuncSeq(schedule, func(r rune) bool { return r == '.' }) {
		choice, err := strconv.Atoi(word)
		if err != nil || choice < 0 {
			return nil, fmt.Errorf("explore: %q in the schedule is not a choice; paste the schedule as it was printed", word)
		}
		taken = append(taken, choice)
	}
	return replay(options.Preemptions, taken, setup), nil
}

// replay runs a schedule with tracing on.
func replay(bound int, taken []int, setup func(*World)) *Failure {
	path := &decisions{tracing: true}
	for _, choice := range taken {
		path.stack = append(path.stack, decision{choice: choice})
	}
	trace, err := run(bound, path, setup)
	if err == nil {
		return nil
	}
	return &Failure{Err: err, Schedule: path.String(), Trace: trace}
}

// run is one run of the model along the path.
func run(bound int, path *decisions, setup func(*World)) (trace []string, failure error) {
	path.depth = 0
	w := &World{decisions: path, bound: bound, woken: map[*flow.Waiter]bool{}, done: make(chan struct{})}
	w.inventory = flow.NewInventoryOn(w)
	setup(w)
	if w.left > 0 {
		first := w.pick(nil)
		w.running = first
		first.baton <- struct{}{}
		<-w.done
	}
	w.running = nil
	if w.failure == nil {
		w.finalChecks()
	}
	return w.trace, w.failure
}

// finalChecks runs what After collected; a Check in there ends it by panicking.
func (w *World) finalChecks() {
	defer func() {
		if reason := recover(); reason != nil && reason != errOver {
			panic(reason)
		}
	}()
	for _, check := range w.after {
		check()
	}
}

// decisions is the path through the tree of interleavings: what was decided
// where there was a choice, and among how many.
type decisions struct {
	stack   []decision
	depth   int
	tracing bool
}

type decision struct{ choice, of int }

// next decides among n, as the path says; beyond its end it takes the first.
func (d *decisions) next(n int) int {
	if n == 1 {
		return 0
	}
	if d.depth == len(d.stack) {
		d.stack = append(d.stack, decision{})
	}
	at := &d.stack[d.depth]
	at.of = n
	at.choice = min(at.choice, n-1)
	d.depth++
	return at.choice
}

// advance moves to the next path, depth first; false when there is none.
func (d *decisions) advance() bool {
	for last := len(d.stack) - 1; last >= 0; last-- {
		if d.stack[last].choice+1 < d.stack[last].of {
			d.stack[last].choice++
			d.stack = d.stack[:last+1]
			return true
		}
	}
	return false
}

func (d *decisions) taken() []int {
	taken := make([]int, len(d.stack))
	for i, at := range d.stack {
		taken[i] = at.choice
	}
	return taken
}

func (d *decisions) String() string {
	words := make([]string, d.depth)
	for i := range words {
		words[i] = strconv.Itoa(d.stack[i].choice)
	}
	return strings.Join(words, ".")
}
