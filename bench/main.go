// Command bench measures micronode beside what its users would take instead.
//
// Absolute figures wander with the machine and its mood, so each row measures
// both sides in one run, turn by turn, and judges the ratio of the medians. A
// row is one small file: what is done, by whom, and the bar it must reach.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
)

// Row is one comparison.
type Row struct {
	Name   string
	Unit   string
	Lower  bool    // lower is better: a cost, not a rate
	Bar    float64 // the ratio ours/peer that must be reached
	Ours   Side
	Peer   Side
	Rounds int // turns for each side
}

// Side is one of the two, and how to measure it once.
type Side struct {
	Name    string
	Measure func() (float64, error)
}

// Result is what a row gave; it is what -out writes.
type Result struct {
	Name  string    `json:"name"`
	Unit  string    `json:"unit"`
	Lower bool      `json:"lower_is_better"`
	Bar   float64   `json:"bar"`
	Ours  []float64 `json:"ours"`
	Peer  []float64 `json:"peer"`
	Ratio float64   `json:"ratio"`
	Held  bool      `json:"held"`
}

func rows() []Row { return slices.Concat(flowRows()) }

func main() {
	check := flag.Bool("check", false, "exit 1 if a row is below its bar")
	out := flag.String("out", "", "write the results as JSON to this file")
	only := flag.String("only", "", "run only rows whose name contains this")
	flag.Parse()
	if err := run(*check, *out, *only); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(check bool, out, only string) error {
	var results []Result
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "work\tours\tpeer\tratio\tbar\t")
	for _, row := range rows() {
		if !strings.Contains(row.Name, only) {
			continue
		}
		result, err := row.run()
		if err != nil {
			return fmt.Errorf("%s: %w", row.Name, err)
		}
		results = append(results, result)
		fmt.Fprintln(table, result.line(row))
	}
	table.Flush()
	if out != "" {
		if err := write(out, results); err != nil {
			return err
		}
	}
	if below := failing(results); check && len(below) > 0 {
		return fmt.Errorf("below the bar: %s", strings.Join(below, ", "))
	}
	return nil
}

// run measures both sides in turns, so that a change of the machine's mood
// reaches both.
func (r Row) run() (Result, error) {
	result := Result{Name: r.Name, Unit: r.Unit, Lower: r.Lower, Bar: r.Bar}
	for range r.Rounds {
		ours, err := r.Ours.Measure()
		if err != nil {
			return result, fmt.Errorf("%s: %w", r.Ours.Name, err)
		}
		peer, err := r.Peer.Measure()
		if err != nil {
			return result, fmt.Errorf("%s: %w", r.Peer.Name, err)
		}
		result.Ours, result.Peer = append(result.Ours, ours), append(result.Peer, peer)
	}
	result.Ratio = median(result.Ours) / median(result.Peer)
	result.Held = result.Ratio >= r.Bar
	if r.Lower {
		result.Held = result.Ratio <= r.Bar
	}
	return result, nil
}

func (res Result) line(row Row) string {
	bar, verdict := fmt.Sprintf("≥ %.2f", res.Bar), "held"
	if res.Lower {
		bar = fmt.Sprintf("≤ %.2f", res.Bar)
	}
	if !res.Held {
		verdict = "BELOW"
	}
	return fmt.Sprintf("%s\t%s %.1f %s\t%s %.1f %s\t%.2f\t%s\t%s", res.Name,
		row.Ours.Name, median(res.Ours), res.Unit, row.Peer.Name, median(res.Peer), res.Unit, res.Ratio, bar, verdict)
}

func failing(results []Result) (names []string) {
	for _, result := range results {
		if !result.Held {
			names = append(names, result.Name)
		}
	}
	return names
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

func write(path string, results []Result) error {
	data, err := json.MarshalIndent(results, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(data, '\n'), 0o644)
}
