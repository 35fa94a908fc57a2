package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"
)

// event is a line of go test -json.
type event struct {
	Action, Package, ImportPath, Test, Output string
	Elapsed                                   float64
}

// report is what one run of go test said.
type report struct {
	packages                []*packageReport // in the order in which they ended
	passed, skipped         int              // top-level tests
	builds                  strings.Builder  // what did not compile
	exit                    error            // of go test itself
	running                 map[string]*packageReport
	buildFailed, incomplete bool
}

type packageReport struct {
	name   string
	tests  map[string]*testReport
	output strings.Builder // of no test: TestMain, time-outs, the verdict
	failed bool
}

type testReport struct {
	name, action string
	seconds      float64
	output       strings.Builder
}

// failure is a top-level test that failed.
type failure struct {
	pkg, name string
	subtests  []string // of the first level, those that failed
	output    string
}

// readReport reads the events of a run, and prints the verdict of each package
// when it ends.
func readReport(in io.Reader, out io.Writer, verbose bool) (*report, error) {
	r := &report{running: map[string]*packageReport{}}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			fmt.Fprintln(out, lines.Text()) // the go command itself speaks plainly where it cannot begin
			r.builds.WriteString(lines.Text() + "\n")
			continue
		}
		r.add(e, out, verbose)
	}
	for _, p := range r.running { // the go command died before these ended
		r.incomplete = true
		r.packages = append(r.packages, p)
	}
	return r, lines.Err()
}

func (r *report) add(e event, out io.Writer, verbose bool) {
	switch e.Action {
	case "build-output":
		r.builds.WriteString(e.Output)
		return
	case "build-fail":
		r.buildFailed = true
		return
	}
	p := r.running[e.Package]
	if p == nil {
		p = &packageReport{name: e.Package, tests: map[string]*testReport{}}
		r.running[e.Package] = p
	}
	if e.Test == "" {
		p.add(e, out, verbose)
		if e.Action == "pass" || e.Action == "fail" || e.Action == "skip" {
			delete(r.running, e.Package)
			r.packages = append(r.packages, p)
		}
		return
	}
	test := p.tests[e.Test]
	if test == nil {
		test = &testReport{name: e.Test}
		p.tests[e.Test] = test
	}
	top := !strings.Contains(e.Test, "/")
	switch e.Action {
	case "output":
		if verbose {
			fmt.Fprint(out, e.Output)
		}
		test.output.WriteString(e.Output)
		return
	case "pass":
		if top {
			r.passed++
		}
		test.output.Reset() // what passed need not be remembered, and a run prints a lot
	case "skip":
		if top {
			r.skipped++
		}
	case "fail":
		if top {
			fmt.Fprintf(out, "failed: %s.%s\n", e.Package, e.Test)
		}
	default:
		return
	}
	test.action, test.seconds = e.Action, e.Elapsed
}

// add is an event of the package itself.
func (p *packageReport) add(e event, out io.Writer, verbose bool) {
	switch e.Action {
	case "output":
		p.output.WriteString(e.Output)
		switch {
		case verbose, strings.HasPrefix(e.Output, "ok "), strings.HasPrefix(e.Output, "FAIL\t"):
			fmt.Fprint(out, e.Output)
		}
	case "fail":
		p.failed = true
	}
}

// failed are the tests that failed, by package and name.
func (r *report) failed() (all []*failure) {
	for _, p := range r.packages {
		for name, test := range p.tests {
			if test.action != "fail" || strings.Contains(name, "/") {
				continue
			}
			f := &failure{pkg: p.name, name: name}
			text := test.output.String()
			for _, sub := range p.sorted() {
				rest, ok := strings.CutPrefix(sub.name, name+"/")
				if !ok || sub.action != "fail" {
					continue
				}
				if !strings.Contains(rest, "/") {
					f.subtests = append(f.subtests, rest)
				}
				text += sub.output.String()
			}
			f.output = text
			all = append(all, f)
		}
	}
	slices.SortFunc(all, func(a, b *failure) int { return strings.Compare(a.pkg+"."+a.name, b.pkg+"."+b.name) })
	return all
}

func (p *packageReport) sorted() (all []*testReport) {
	for _, test := range p.tests {
		all = append(all, test)
	}
	slices.SortFunc(all, func(a, b *testReport) int { return strings.Compare(a.name, b.name) })
	return all
}

// slow are the top-level tests that took longer than the limit.
func (p *packageReport) slow(limit time.Duration) (all []*testReport) {
	for _, test := range p.sorted() {
		if !strings.Contains(test.name, "/") && test.seconds > limit.Seconds() {
			all = append(all, test)
		}
	}
	return all
}

// pattern runs the test again, of its subtests only those that failed.
func (f *failure) pattern() string {
	pattern := "^" + regexp.QuoteMeta(f.name) + "$"
	if len(f.subtests) == 0 {
		return pattern
	}
	quoted := make([]string, len(f.subtests))
	for i, sub := range f.subtests {
		quoted[i] = regexp.QuoteMeta(sub)
	}
	return pattern + "/^(" + strings.Join(quoted, "|") + ")$"
}

// signs are what a run prints that is a failure at once, even if the same test
// would pass the next time.
var signs = []struct {
	line *regexp.Regexp
	what string
}{
	{regexp.MustCompile(`(?m)^WARNING: DATA RACE$`), "a data race"},
	{regexp.MustCompile(`(?m)race detected during execution of test`), "a data race"},
	{regexp.MustCompile(`(?m)^panic: test timed out after`), "a package ran out of time"},
	{regexp.MustCompile(`(?m)^(panic|fatal error): `), "a panic"},
	{regexp.MustCompile(`(?m)found unexpected goroutines`), "a goroutine leaked"},
	{regexp.MustCompile(`(?m)^SIG[A-Z]+: `), "a crash"},
}

// fatal says why nothing of this run is to be run again, if that is so.
func (r *report) fatal() string {
	if r.buildFailed {
		return "a package does not compile"
	}
	if r.incomplete {
		return "go test ended before its packages did"
	}
	for _, p := range r.packages {
		if !p.failed {
			continue
		}
		text, failed := p.output.String(), 0
		for _, test := range p.tests {
			if test.action == "fail" {
				failed++
			}
			if test.action != "pass" && test.action != "skip" {
				text += "\n" + test.output.String()
			}
		}
		for _, sign := range signs {
			if sign.line.MatchString(text) {
				return sign.what + " in " + p.name
			}
		}
		for _, test := range p.tests {
			if test.action == "" {
				return p.name + " ended in the middle of " + test.name
			}
		}
		if failed == 0 {
			return p.name + " failed, though no test in it did"
		}
	}
	return ""
}

// printFailures prints everything that is known about what failed.
func (r *report) printFailures(out io.Writer) {
	fmt.Fprint(out, r.builds.String())
	for _, p := range r.packages {
		if !p.failed && r.running[p.name] == nil {
			continue
		}
		for _, test := range p.sorted() {
			if test.action != "pass" && test.action != "skip" {
				fmt.Fprint(out, test.output.String())
			}
		}
		fmt.Fprint(out, p.output.String())
	}
}
