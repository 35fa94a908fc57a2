package main

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// print writes a result as a few lines: each side with its figure, the latency
// and what the server spent per request; then the verdict.
func (r Result) print(w io.Writer) {
	fmt.Fprintln(w, r.Name)
	for _, point := range r.Points {
		label := fmt.Sprintf("%s %s", groupDigits(float64(point.Size)), point.Of)
		point.Ours.print(w, label, point.Unit)
		if point.Peer != nil {
			point.Peer.print(w, label, point.Unit)
		}
	}
	r.Ours.print(w, "", r.Unit)
	if r.Peer != nil {
		r.Peer.print(w, "", r.Unit)
	}
	fmt.Fprintf(w, "  %s; others took %.0f %% of the machine, load %s\n\n", r.verdict(), r.Others*100, r.Load)
}

func (s *Series) print(w io.Writer, label, unit string) {
	line := fmt.Sprintf("  %-22s %-14s %12s %s", label, s.Name, formatFigure(s.Figure), unit)
	if label == "" {
		line = fmt.Sprintf("  %-14s %12s %s", s.Name, formatFigure(s.Figure), unit)
	}
	if len(s.P99) > 0 {
		line += fmt.Sprintf("   p50 %.2f ms  p99 %.2f ms", median(s.P50), median(s.P99))
	}
	if len(s.CPU) > 0 {
		line += fmt.Sprintf("   %s %.1f µs each", cmp.Or(s.CPUOf, "server"), median(s.CPU))
	}
	fmt.Fprintln(w, line)
}

// verdict is the ratio, its spread, and the bar.
func (r Result) verdict() string {
	var text strings.Builder
	reached := r.Ours.Figure
	if r.Peer != nil {
		reached = r.Ratio
		fmt.Fprintf(&text, "ratio %.2f (%.2f to %.2f): ", r.Ratio, r.Low, r.High)
	}
	sign := "≥"
	if r.Lower {
		sign = "≤"
	}
	switch {
	case r.Bar == 0:
		text.WriteString("for information")
	case !r.Held:
		fmt.Fprintf(&text, "BELOW the bar %s %s", sign, formatBar(r.Bar))
	default:
		fmt.Fprintf(&text, "held, bar %s %s", sign, formatBar(r.Bar))
	}
	if r.Aim != 0 {
		short := reached < r.Aim
		if r.Lower {
			short = reached > r.Aim
		}
		fmt.Fprintf(&text, ", aim %s %s %s", sign, formatBar(r.Aim), map[bool]string{true: "not reached", false: "reached"}[short])
	}
	return text.String()
}

// formatBar writes a bar as it was given.
func formatBar(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

// formatFigure writes a number with as many digits as are useful.
func formatFigure(v float64) string {
	switch {
	case math.IsNaN(v):
		return "none"
	case math.Abs(v) >= 1000:
		return groupDigits(v)
	case math.Abs(v) >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.3f", v)
}

// groupDigits writes a whole number with a comma at every third digit.
func groupDigits(v float64) string {
	digits := strconv.FormatFloat(math.Abs(math.Round(v)), 'f', 0, 64)
	for at := len(digits) - 3; at > 0; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	if math.Round(v) < 0 {
		return "-" + digits
	}
	return digits
}
