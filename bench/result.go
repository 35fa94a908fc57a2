package main

import (
	"encoding/json"
	"os"

	"micronode/bench/testbed"
)

// Run is what -out writes.
type Run struct {
	Machine testbed.Machine `json:"machine"`
	Quick   bool            `json:"quick"` // shorter turns: good for a look, not for a verdict
	Results []Result        `json:"results"`
}

// Result is the result of a row or an axis.
type Result struct {
	Name   string  `json:"name"`
	Unit   string  `json:"unit"`
	Lower  bool    `json:"lower_is_better"`
	Bar    float64 `json:"bar"` // 0: for information
	Aim    float64 `json:"aim"`
	Ours   *Series `json:"ours"`
	Peer   *Series `json:"peer,omitempty"`
	Points []Point `json:"points,omitempty"` // of an axis

	Ratio  float64 `json:"ratio,omitempty"` // of the figures
	Low    float64 `json:"ratio_low,omitempty"`
	High   float64 `json:"ratio_high,omitempty"`
	Held   bool    `json:"held"`
	Load   string  `json:"load"`   // averages when it was done
	Others float64 `json:"others"` // share of the machine that other processes used meanwhile
}

// Point is one size of an axis.
type Point struct {
	Size int     `json:"size"`
	Of   string  `json:"of"`
	Unit string  `json:"unit"`
	Ours *Series `json:"ours"`
	Peer *Series `json:"peer,omitempty"`
}

// Series is the results of the turns of one side, in their order.
type Series struct {
	Name   string    `json:"name"`
	Figure float64   `json:"figure"` // what stands for all turns: their median; of an axis, the slope through the medians
	Values []float64 `json:"values"`
	P50    []float64 `json:"p50_ms,omitempty"`
	P99    []float64 `json:"p99_ms,omitempty"`
	CPU    []float64 `json:"cpu_us,omitempty"` // per response
	CPUOf  string    `json:"cpu_of,omitempty"` // whose time that is; empty: the server's
}

func (s *Series) add(sample Sample) {
	s.Values = append(s.Values, sample.Value)
	s.Figure = median(s.Values)
	if sample.P99 > 0 {
		s.P50 = append(s.P50, sample.P50.Seconds()*1e3)
		s.P99 = append(s.P99, sample.P99.Seconds()*1e3)
	}
	if sample.CPU > 0 {
		s.CPU = append(s.CPU, sample.CPU.Seconds()*1e6)
	}
}

// withVerdict compares the result with its bar.
func (r Result) withVerdict() Result {
	figure := r.Ours.Figure
	if r.Peer != nil {
		r.Ratio = figure / r.Peer.Figure
		r.Low, r.High = spread(r.Ours.Values, r.Peer.Values)
		figure = r.Ratio
	}
	switch {
	case r.Bar == 0:
		r.Held = true
	case r.Lower:
		r.Held = figure <= r.Bar
	default:
		r.Held = figure >= r.Bar
	}
	return r
}

func belowBar(results []Result) (names []string) {
	for _, result := range results {
		if !result.Held {
			names = append(names, result.Name)
		}
	}
	return names
}

func (r Run) write(path string) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(data, '\n'), 0o644)
}
