// Command retest runs go test, and runs what failed once more, by itself.
//
// A test that passes then is flaky: it is printed as FLAKY with what it said
// when it failed, kept in a file, and the run passes. Its cause is to be mended
// in the same change or in the next; the run only does not lose a day to it.
//
// Some failures are never looked at twice: a data race, a panic, a leaked
// goroutine, a package that runs out of time or does not compile, and more
// failures than a handful. A test that fails twice has failed.
//
//	retest [flags] PACKAGE... [-- FLAG OF GO TEST...]
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

func main() {
	r := runner{out: os.Stdout}
	flag.StringVar(&r.folder, "C", ".", "`folder` of the module")
	flag.IntVar(&r.most, "most", 5, "run this many failed tests again; more than these are a failure")
	flag.DurationVar(&r.slow, "slow", 20*time.Second, "print each test that takes longer as SLOW")
	flag.StringVar(&r.flaky, "flaky", "", "`file` that keeps what was flaky")
	flag.StringVar(&r.totals, "totals", "", "`file` that the numbers of tests passed, failed and skipped are appended to")
	flag.BoolVar(&r.verbose, "v", false, "print what tests print although they pass, as they run, and why tests are skipped")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "retest [flags] PACKAGE... [-- FLAG OF GO TEST...]: run go test, and what failed once more")
		flag.PrintDefaults()
	}
	flag.Parse()
	packages, flags := flag.Args(), []string(nil)
	if i := slices.Index(packages, "--"); i >= 0 {
		packages, flags = packages[:i], packages[i+1:]
	}
	if err := r.run(packages, flags); err != nil {
		fmt.Fprintln(os.Stderr, "retest:", err)
		os.Exit(1)
	}
}

// runner is one invocation. All fields are set before run.
type runner struct {
	folder, flaky, totals string
	most                  int
	slow                  time.Duration
	verbose               bool
	environment           []string // beside that of this process
	out                   io.Writer
}

func (r runner) run(packages, flags []string) error {
	// Everything, once.
	first, err := r.goTest(append(slices.Clone(flags), packages...))
	if err != nil {
		return err
	}
	failed := first.failed()
	for _, p := range first.packages {
		for _, test := range p.slow(r.slow) {
			fmt.Fprintf(r.out, "SLOW %s.%s %.0f s\n", p.name, test.name, test.seconds)
		}
	}

	// What a second look would only hide.
	fatal := first.fatal()
	switch {
	case fatal == "" && len(failed) > r.most:
		fatal = fmt.Sprintf("%d tests failed, and at most %d are run again", len(failed), r.most)
	case fatal == "" && first.exit != nil && len(failed) == 0:
		fatal = fmt.Sprintf("go test ended with %v, though no test failed", first.exit)
	}
	if fatal != "" {
		first.printFailures(r.out)
		r.addTotals(first.passed, max(1, len(failed)), first.skipped)
		return fmt.Errorf("not run again: %s", fatal)
	}

	// Each test that failed, by itself.
	flaky := 0
	for _, test := range failed {
		fmt.Fprintf(r.out, "again, by itself: %s.%s\n", test.pkg, test.name)
		// What the whole run covered is not to be replaced by what one test covers.
		alone := slices.DeleteFunc(slices.Clone(flags), func(flag string) bool { return strings.HasPrefix(flag, "-coverprofile") })
		second, err := r.goTest(append(alone, "-count=1", "-run", test.pattern(), test.pkg))
		if err != nil {
			return err
		}
		if second.exit == nil && second.fatal() == "" && second.passed > 0 {
			flaky++
			if err := r.printFlaky(test); err != nil {
				return err
			}
			continue
		}
		fmt.Fprintf(r.out, "%s.%s failed twice. First:\n%s\nThen:\n", test.pkg, test.name, test.output)
		second.printFailures(r.out)
	}
	r.addTotals(first.passed+flaky, len(failed)-flaky, first.skipped)
	if lost := len(failed) - flaky; lost > 0 {
		return fmt.Errorf("%d failed twice", lost)
	}
	return nil
}

// goTest runs go test and reads what happens.
func (r runner) goTest(arguments []string) (*report, error) {
	command := exec.Command("go", append([]string{"test", "-json"}, arguments...)...)
	command.Dir, command.Stderr, command.Env = r.folder, os.Stderr, append(os.Environ(), r.environment...)
	pipe, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("start go test: %w", err)
	}
	result, err := readReport(pipe, r.out, r.verbose)
	exit := command.Wait()
	if err != nil {
		return nil, err
	}
	result.exit = exit
	return result, nil
}

// printFlaky prints what a flaky test said when it failed, indented, so that no
// reader of the log takes it for a failure, and keeps it in the file.
func (r runner) printFlaky(test *failure) error {
	text := fmt.Sprintf("FLAKY %s.%s\n    | %s\n", test.pkg, test.name, strings.ReplaceAll(strings.TrimRight(test.output, "\n"), "\n", "\n    | "))
	fmt.Fprint(r.out, text)
	return appendTo(r.flaky, text)
}

func (r runner) addTotals(passed, failed, skipped int) {
	fmt.Fprintf(r.out, "%d passed, %d failed, %d skipped\n", passed, failed, skipped)
	if err := appendTo(r.totals, fmt.Sprintf("%d %d %d\n", passed, failed, skipped)); err != nil {
		fmt.Fprintln(r.out, "retest:", err)
	}
}

// appendTo adds a text to a file, unless the file has no name.
func appendTo(path, text string) error {
	if path == "" {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = file.WriteString(text)
	return errors.Join(err, file.Close())
}
