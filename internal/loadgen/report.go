package loadgen

import (
	"fmt"
	"maps"
	"math"
	"math/bits"
	"slices"
	"strings"
	"time"

	"micronode/internal/config"
	"micronode/internal/terminal"
)

// note belongs to every result: without it the figures claim too much.
const note = "The load generator shares the processors with a local node, and each connection waits for a response before its next request: these figures are not the limits of the node."

// Report is the result of a run.
type Report struct {
	Node        string    `json:"node"`
	Version     string    `json:"version"`
	Seconds     float64   `json:"seconds"`
	Count       int       `json:"count"` // maximum number of calls of a kind
	Connections int       `json:"connections"`
	Size        int64     `json:"size"`
	MessageSize int64     `json:"message_size"`
	Measures    []Measure `json:"measures"`
	NotMeasured []Skipped `json:"not_measured"`
	Note        string    `json:"note"`
}

// Measure is the result of one kind of call.
type Measure struct {
	What    string         `json:"what"`
	Done    uint64         `json:"done"`
	Rate    float64        `json:"rate"` // completed per second
	P50     float64        `json:"p50_ms"`
	P90     float64        `json:"p90_ms"`
	P99     float64        `json:"p99_ms"`
	Max     float64        `json:"max_ms"`
	Refused map[string]int `json:"refused"` // by kind: the node was overloaded
	Errors  map[string]int `json:"errors"`  // by kind
}

// Skipped is what could not be measured.
type Skipped struct {
	What string `json:"what"`
	Why  string `json:"why"`
}

// add sums up the tallies of all workers for some calls. Calls that were never
// tried are left out.
func (r *Report) add(workers []*worker, took time.Duration, calls ...string) {
	for _, what := range calls {
		all := newTally()
		for _, w := range workers {
			if one := w.tallies[what]; one != nil {
				all.merge(one)
			}
		}
		if all.latencies.count == 0 && len(all.refused) == 0 && len(all.errors) == 0 {
			continue
		}
		r.Measures = append(r.Measures, Measure{What: what, Done: all.latencies.count, Rate: float64(all.latencies.count) / took.Seconds(),
			P50: all.latencies.quantile(0.5), P90: all.latencies.quantile(0.9), P99: all.latencies.quantile(0.99), Max: float64(all.latencies.max) / float64(time.Millisecond),
			Refused: all.refused, Errors: all.errors})
	}
}

// Lines is the report as text.
func (r *Report) Lines() []string {
	lines := []string{fmt.Sprintf("%d connections for %gs or %d calls of a kind, objects of %s, messages of %s", r.Connections, r.Seconds, r.Count, config.Size(r.Size), config.Size(r.MessageSize)), ""}
	rows := [][]string{{"what", "a second", "p50", "p90", "p99", "max", "done", "refused", "errors"}}
	for _, one := range r.Measures {
		row := []string{one.What, terminal.FormatRate(one.Rate)}
		for _, millis := range []float64{one.P50, one.P90, one.P99, one.Max} {
			if one.Done == 0 {
				row = append(row, terminal.FormatMillis(nil))
			} else {
				row = append(row, terminal.FormatMillis(&millis))
			}
		}
		rows = append(rows, append(row, fmt.Sprint(one.Done), formatCounts(one.Refused), formatCounts(one.Errors)))
	}
	lines = append(append(lines, terminal.Columns(rows)...), "")
	for _, one := range r.NotMeasured {
		lines = append(lines, fmt.Sprintf("Not measured: %s; %s.", one.What, one.Why))
	}
	return append(lines, r.Note)
}

// formatCounts lists the counts by kind.
func formatCounts(counts map[string]int) string {
	var list []string
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		list = append(list, fmt.Sprintf("%d %s", counts[kind], kind))
	}
	if list == nil {
		return "none"
	}
	return strings.Join(list, ", ")
}

// tally counts the calls of one kind.
type tally struct {
	latencies       latencyHistogram
	refused, errors map[string]int // by kind
}

func newTally() *tally { return &tally{refused: map[string]int{}, errors: map[string]int{}} }

func (t *tally) merge(other *tally) {
	t.latencies.merge(&other.latencies)
	for kind, n := range other.refused {
		t.refused[kind] += n
	}
	for kind, n := range other.errors {
		t.errors[kind] += n
	}
}

// bucketsPerOctave is the number of buckets for each doubling of a duration.
// It bounds the error of a quantile to one in 32.
const bucketsPerOctave = 16

// latencyHistogram counts durations in buckets, so that a long run takes no
// more memory than a short one.
type latencyHistogram struct {
	count   uint64
	max     time.Duration // the longest
	buckets [60*bucketsPerOctave + bucketsPerOctave]uint64
}

func (l *latencyHistogram) add(took time.Duration) {
	l.count++
	l.max = max(l.max, took)
	l.buckets[bucketOf(uint64(max(took, 0)))]++
}

func (l *latencyHistogram) merge(other *latencyHistogram) {
	l.count += other.count
	l.max = max(l.max, other.max)
	for i, n := range other.buckets {
		l.buckets[i] += n
	}
}

// quantile is the duration in milliseconds that a share of the calls did not
// exceed.
func (l *latencyHistogram) quantile(share float64) float64 {
	left := uint64(math.Ceil(share * float64(l.count)))
	for i, n := range l.buckets {
		if n >= left {
			if left == 0 {
				return 0
			}
			return bucketMidpoint(i) / float64(time.Millisecond)
		}
		left -= n
	}
	return 0
}

// bucketOf keeps the first five bits of a number, and how many follow.
func bucketOf(nanoseconds uint64) int {
	shift := max(0, bits.Len64(nanoseconds)-5)
	return shift*bucketsPerOctave + int(nanoseconds>>shift)
}

func bucketMidpoint(bucket int) float64 {
	shift := max(0, bucket/bucketsPerOctave-1)
	first := bucket - shift*bucketsPerOctave
	return (float64(first) + 0.5) * math.Ldexp(1, shift)
}
