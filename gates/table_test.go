//go:build gates

package gates

import (
	"cmp"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
)

// gateRow is one line of the table that `make gates` ends with.
type gateRow struct{ test, gate, required, measured, noise, verdict string }

// gateTable collects the rows of all gates that ran.
var gateTable struct {
	sync.Mutex
	rows []*gateRow
}

// What a row can say.
const (
	held     = "held"
	failed   = "FAILED"
	skipped  = "SKIPPED"
	unjudged = "NOT MEASURED"
	missing  = "MISSING"
)

// report adds a row to the table that `make gates` prints at its end: what the
// gate requires, and what this run measured. The row says FAILED if the test
// has failed by the time it ends; a measurement that is retried has one row,
// that of the last attempt.
func report(t *testing.T, gate, required, measured string) {
	t.Helper()
	addRow(t, gate, required, measured, held)
}

// reportUnmeasured adds a row for a gate that this machine could not measure.
func reportUnmeasured(t *testing.T, why string) {
	t.Helper()
	t.Logf("not measured: %s", why)
	addRow(t, "any time in "+t.Name(), "a machine of one's own", why, unjudged)
}

// skipGate skips a gate that cannot be tried here, and says why in the table.
func skipGate(t *testing.T, format string, args ...any) {
	t.Helper()
	why := fmt.Sprintf(format, args...)
	addRow(t, t.Name(), "", why, skipped)
	t.Skip(why)
}

// reportGate adds the row of a gate that measures nothing: what it requires is
// the first sentence of its comment. Every gate that starts a node has one
// until it reports more.
func reportGate(t *testing.T) {
	t.Helper()
	gateTable.Lock()
	ours := func(row *gateRow) bool { return rootTest(row.test) == rootTest(t.Name()) }
	has := slices.ContainsFunc(gateTable.rows, ours)
	gateTable.Unlock()
	if !has {
		addRow(t, rootTest(t.Name()), "", "", held)
	}
}

func rootTest(name string) string {
	root, _, _ := strings.Cut(name, "/")
	return root
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
			row.verdict = failed
		}
	})
}

// recordNoise adds to the rows of a test which attempt held, and the machine's
// noise in it.
func recordNoise(t *testing.T, text string) {
	gateTable.Lock()
	defer gateTable.Unlock()
	for _, row := range gateTable.rows {
		if row.test == t.Name() && row.noise == "" {
			row.noise = text
		}
	}
}

// printTable writes the table, and returns the exit code: a gate that ran and
// has no row was not tried.
func printTable(code int) int {
	gateTable.Lock()
	defer gateTable.Unlock()
	gates := gatesOfThisRun()
	for _, name := range gates.names {
		if slices.ContainsFunc(gateTable.rows, func(row *gateRow) bool { return rootTest(row.test) == name }) {
			continue
		}
		if code == 0 {
			fmt.Fprintf(os.Stderr, "%s has no row in the table: say with report what it requires\n", name)
		}
		gateTable.rows = append(gateTable.rows, &gateRow{test: name, gate: name, verdict: missing})
		code = max(code, 1)
	}
	if len(gateTable.rows) == 0 {
		return code
	}
	specific := map[string]bool{} // tests that say more than that they held
	for _, row := range gateTable.rows {
		specific[rootTest(row.test)] = specific[rootTest(row.test)] || row.gate != rootTest(row.test) && row.verdict != failed
	}
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "gate\trequired\tmeasured\tnoise\tverdict")
	for _, row := range gateTable.rows {
		if row.gate == rootTest(row.test) && row.verdict == held && specific[row.gate] {
			continue
		}
		required := cmp.Or(row.required, gates.sentences[rootTest(row.test)])
		fmt.Fprintf(out, "%s\t%s\t%s\t%s\t%s\n", row.gate, required, row.measured, row.noise, row.verdict)
	}
	out.Flush()
	return code
}

// gateList is the gates that a run was to try, and what each requires.
type gateList struct {
	names     []string
	sentences map[string]string
}

// gatesOfThisRun reads the source: nothing else knows a test that said nothing.
func gatesOfThisRun() gateList {
	list := gateList{sentences: map[string]string{}}
	if option("test.list") != "" {
		return list
	}
	run, _, _ := strings.Cut(option("test.run"), "/")
	skip := option("test.skip")
	files, _ := filepath.Glob("*_test.go") // the pattern is right
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			panic(err) // it was compiled
		}
		for _, decl := range file.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok || fn.Recv != nil || !strings.HasPrefix(fn.Name.Name, "Test") || fn.Name.Name == "TestMain" {
				continue
			}
			sentence, _, _ := strings.Cut(strings.Join(strings.Fields(fn.Doc.Text()), " "), ". ")
			list.sentences[fn.Name.Name] = strings.TrimSuffix(sentence, ".")
			if regexp.MustCompile(run).MatchString(fn.Name.Name) && (skip == "" || !regexp.MustCompile(skip).MatchString(fn.Name.Name)) {
				list.names = append(list.names, fn.Name.Name)
			}
		}
	}
	return list
}

// option is the value of a flag of the test binary.
func option(name string) string {
	if one := flag.Lookup(name); one != nil {
		return one.Value.String()
	}
	return ""
}
