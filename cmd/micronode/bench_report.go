package main

import (
	"fmt"
	"maps"
	"math"
	"math/bits"
	"slices"
	"strings"
	"time"

	"micronode/internal/config"
)

// benchNote belongs to every result: without it the figures say too much.
const benchNote = "The program that made the load shares this machine's processors with a local node, and each connection waited for an answer before it asked again: these are not the limits of the node."

// benchReport is what was measured.
type benchReport struct {
	Node        string         `json:"node"`
	Version     string         `json:"version"`
	Seconds     float64        `json:"seconds"`
	Count       int            `json:"count"` // calls of a kind at most
	Connections int            `json:"connections"`
	Size        int64          `json:"size"`
	MessageSize int64          `json:"message_size"`
	Measures    []benchMeasure `json:"measures"`
	NotMeasured []benchAbsence `json:"not_measured"`
	Note        string         `json:"note"`
}

// benchMeasure is how one kind of call went.
type benchMeasure struct {
	What    string         `json:"what"`
	Done    uint64         `json:"done"`
	Rate    float64        `json:"rate"` // done in a second
	P50     float64        `json:"p50_ms"`
	P90     float64        `json:"p90_ms"`
	P99     float64        `json:"p99_ms"`
	Max     float64        `json:"max_ms"`
	Refused map[string]int `json:"refused"` // by kind: the node had enough to do
	Errors  map[string]int `json:"errors"`  // by kind
}

type benchAbsence struct {
	What string `json:"what"`
	Why  string `json:"why"`
}

// add sums up what all workers counted of some calls. What nobody tried is left
// out.
func (r *benchReport) add(workers []*benchWorker, took time.Duration, calls ...string) {
	for _, what := range calls {
		all := newTally()
		for _, w := range workers {
			if one := w.tallies[what]; one != nil {
				all.merge(one)
			}
		}
		if all.times.n == 0 && len(all.refused) == 0 && len(all.errors) == 0 {
			continue
		}
		r.Measures = append(r.Measures, benchMeasure{What: what, Done: all.times.n, Rate: float64(all.times.n) / took.Seconds(),
			P50: all.times.quantile(0.5), P90: all.times.quantile(0.9), P99: all.times.quantile(0.99), Max: float64(all.times.most) / float64(time.Millisecond),
			Refused: all.refused, Errors: all.errors})
	}
}

// print shows the report to a person.
func (r *benchReport) print(c *console) {
	c.print("%d connections for %gs or %d calls of a kind, objects of %s, messages of %s\n\n", r.Connections, r.Seconds, r.Count, config.Size(r.Size), config.Size(r.MessageSize))
	rows := [][]string{{"what", "a second", "p50", "p90", "p99", "max", "done", "refused", "errors"}}
	for _, one := range r.Measures {
		row := []string{one.What, rateOf(one.Rate)}
		for _, took := range []float64{one.P50, one.P90, one.P99, one.Max} {
			if one.Done == 0 {
				row = append(row, timeOf(nil))
			} else {
				row = append(row, timeOf(&took))
			}
		}
		rows = append(rows, append(row, fmt.Sprint(one.Done), countsOf(one.Refused), countsOf(one.Errors)))
	}
	for _, line := range columns(rows) {
		c.print("%s\n", line)
	}
	c.print("\n")
	for _, one := range r.NotMeasured {
		c.print("Not measured: %s; %s.\n", one.What, one.Why)
	}
	c.print("%s\n", r.Note)
}

// countsOf is how many there were of which kind.
func countsOf(counts map[string]int) string {
	var list []string
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		list = append(list, fmt.Sprintf("%d %s", counts[kind], kind))
	}
	if list == nil {
		return "none"
	}
	return strings.Join(list, ", ")
}

// tally is how the calls of one kind went.
type tally struct {
	times           times
	refused, errors map[string]int // by kind
}

func newTally() *tally { return &tally{refused: map[string]int{}, errors: map[string]int{}} }

func (t *tally) merge(other *tally) {
	t.times.merge(&other.times)
	for kind, n := range other.refused {
		t.refused[kind] += n
	}
	for kind, n := range other.errors {
		t.errors[kind] += n
	}
}

// fineness is into how many steps each doubling of a time is divided. It bounds
// the error of a quantile to one in 32.
const fineness = 16

// times counts durations in buckets, so that a long run takes no more memory
// than a short one.
type times struct {
	n       uint64
	most    time.Duration // the longest
	buckets [60*fineness + fineness]uint64
}

func (t *times) add(took time.Duration) {
	t.n++
	t.most = max(t.most, took)
	t.buckets[bucketOf(uint64(max(took, 0)))]++
}

func (t *times) merge(other *times) {
	t.n += other.n
	t.most = max(t.most, other.most)
	for i, n := range other.buckets {
		t.buckets[i] += n
	}
}

// quantile is the time in milliseconds that a share of all took at most.
func (t *times) quantile(share float64) float64 {
	left := uint64(math.Ceil(share * float64(t.n)))
	for i, n := range t.buckets {
		if n >= left {
			if left == 0 {
				return 0
			}
			return middleOf(i) / float64(time.Millisecond)
		}
		left -= n
	}
	return 0
}

// bucketOf keeps the first five bits of a number, and how many follow.
func bucketOf(nanoseconds uint64) int {
	shift := max(0, bits.Len64(nanoseconds)-5)
	return shift*fineness + int(nanoseconds>>shift)
}

func middleOf(bucket int) float64 {
	shift := max(0, bucket/fineness-1)
	first := bucket - shift*fineness
	return (float64(first) + 0.5) * math.Ldexp(1, shift)
}
