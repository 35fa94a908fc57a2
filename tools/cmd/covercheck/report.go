package main

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"
)

// result is a package with its minimum. No blocks: the package is not in the profile.
type result struct {
	minimum
	blocks []block
}

func (r result) reached() bool {
	return len(r.blocks) > 0 && coverageOf(r.blocks).percent() >= r.percent
}

// formatPercent writes a percentage, cut and not rounded: 91.97 must not look like the 92 that it is not.
func formatPercent(percent float64) string { return fmt.Sprintf("%.1f%%", math.Floor(percent*10)/10) }

func printTable(out io.Writer, results []result) {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "package\tstatements\tcovered\tminimum\tverdict")
	for _, r := range results {
		statements, covered, verdict := "-", "-", "absent"
		if t := coverageOf(r.blocks); len(r.blocks) > 0 {
			statements, covered, verdict = strconv.Itoa(t.all), formatPercent(t.percent()), "below"
		}
		if r.reached() {
			verdict = "ok"
		}
		fmt.Fprintln(table, strings.Join([]string{r.pkg, statements, covered, formatPercent(r.percent), verdict}, "\t"))
	}
	table.Flush()
}

// maxListed is how many functions are shown of a package that falls short.
const maxListed = 5

// explain prints why one package fails and what to do next.
func explain(out io.Writer, r result, folder string) {
	if len(r.blocks) == 0 {
		fmt.Fprintf(out, "covercheck: %s is not in the profile: check the name, or run go test with -coverpkg=%s\n", r.pkg, r.pkg)
		return
	}
	fmt.Fprintf(out, "covercheck: %s covers %s of its statements, %s are asked for\n", r.pkg, formatPercent(coverageOf(r.blocks).percent()), formatPercent(r.percent))
	functions, err := leastCovered(folder, r.blocks)
	if err != nil {
		fmt.Fprintf(out, "  its functions cannot be listed: %v; give the module's folder with -C\n", err)
		return
	}
	fmt.Fprintln(out, "  test these next:")
	for _, f := range functions[:min(maxListed, len(functions))] {
		fmt.Fprintf(out, "  %s:%d: %s covers %s of %d statements\n", f.file, f.line, f.name, formatPercent(f.percent()), f.all)
	}
}
