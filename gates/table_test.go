//go:build gates

package gates

import (
	"fmt"
	"os"
	"sync"
	"testing"
	"text/tabwriter"
)

// gateRow is one line of the table that `make gates` ends with.
type gateRow struct{ test, gate, required, measured, verdict string }

// gateTable collects the rows of all gates that ran.
var gateTable struct {
	sync.Mutex
	rows []*gateRow
}

// report adds a row to the table that `make gates` prints at its end: what the
// gate requires, and what this run measured. The row says FAILED if the test
// has failed by the time it ends; a measurement that is retried has one row,
// that of the last try.
func report(t *testing.T, gate, required, measured string) {
	t.Helper()
	addRow(t, gate, required, measured, "held")
}

// reportUnmeasured adds a row for a gate that this machine could not measure.
func reportUnmeasured(t *testing.T, why string) {
	t.Helper()
	t.Logf("not measured: %s", why)
	addRow(t, "any time in "+t.Name(), "a machine of one's own", why, "NOT MEASURED")
}

func addRow(t *testing.T, gate, required, measured, verdict string) {
	gateTable.Lock()
	defer gateTable.Unlock()
	for _, row := range gateTable.rows {
		if row.test == t.Name() && row.gate == gate {
			row.required, row.measured, row.verdict = required, measured, verdict
			return
		}
	}
	row := &gateRow{test: t.Name(), gate: gate, required: required, measured: measured, verdict: verdict}
	gateTable.rows = append(gateTable.rows, row)
	t.Cleanup(func() {
		gateTable.Lock()
		defer gateTable.Unlock()
		if t.Failed() {
			row.verdict = "FAILED"
		}
	})
}

// printTable writes the table, if any gate has reported.
func printTable() {
	gateTable.Lock()
	defer gateTable.Unlock()
	if len(gateTable.rows) == 0 {
		return
	}
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "gate\trequired\tmeasured\tverdict")
	for _, row := range gateTable.rows {
		fmt.Fprintf(out, "%s\t%s\t%s\t%s\n", row.gate, row.required, row.measured, row.verdict)
	}
	out.Flush()
}
