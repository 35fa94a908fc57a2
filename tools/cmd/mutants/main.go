package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// The exit codes: alive is the answer "no", misuse is no answer.
const (
	killed = 0
	alive  = 1
	misuse = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run is the whole command.
func run(ctx context.Context, args []string, out, problems io.Writer) int {
	flags := flag.NewFlagSet("mutants", flag.ContinueOnError)
	flags.SetOutput(problems)
	folder := flags.String("C", ".", "the `folder` of the module that is mutated")
	limit := flags.Duration("limit", 5*time.Minute, "how long the tests of one mutant may take; one that hangs them is killed too")
	if flags.Parse(args) != nil || flags.NArg() == 0 {
		fmt.Fprintln(problems, "usage: mutants [-C FOLDER] FOLDER-OR-FILE…")
		return misuse
	}
	all, err := find(flags.Args())
	if err != nil {
		fmt.Fprintln(problems, "mutants:", err)
		return misuse
	}
	if len(all) == 0 {
		fmt.Fprintln(problems, "mutants: there is no .txtar in", strings.Join(flags.Args(), ", "))
		return misuse
	}
	survivors := 0
	for _, m := range all {
		verdict, err := m.test(ctx, *folder, *limit)
		if err != nil {
			survivors++
			fmt.Fprintf(out, "FAIL  %s: %v\n      %s\n", m.path, err, m.about)
			continue
		}
		fmt.Fprintf(out, "ok    %s: %s\n", m.path, verdict)
	}
	if survivors > 0 {
		fmt.Fprintf(out, "%d of %d mutants are alive or stale\n", survivors, len(all))
		return alive
	}
	fmt.Fprintf(out, "all %d mutants were killed\n", len(all))
	return killed
}

// failedTest finds the first test that noticed.
var failedTest = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)

// test runs the tests on the mutated code and returns which one killed it.
func (m *mutant) test(ctx context.Context, folder string, limit time.Duration) (string, error) {
	scratch, err := os.MkdirTemp("", "mutant-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(scratch)
	overlay, err := m.overlay(folder, scratch)
	if err != nil {
		return "", err
	}
	command := exec.CommandContext(ctx, "go", "test", "-count=1", "-overlay", overlay, "-tags", m.tags,
		"-timeout", limit.String(), "-run", m.run, m.pkg)
	command.Dir = folder
	text, err := command.CombinedOutput()
	var exit *exec.ExitError
	switch output := string(text); {
	case err == nil:
		return "", fmt.Errorf("survived go test -run '%s' %s", m.run, m.pkg)
	case !errors.As(err, &exit):
		return "", err
	case strings.Contains(output, "[build failed]") || strings.Contains(output, "[setup failed]"):
		return "", fmt.Errorf("%w: it does not compile:\n%s", errStale, output)
	case strings.Contains(output, "panic: test timed out"):
		return "killed by the time-out", nil
	default:
		if found := failedTest.FindStringSubmatch(output); found != nil {
			return "killed by " + found[1], nil
		}
		return "killed by a crash", nil
	}
}

// overlay writes the mutated file and the list that go test reads, and returns the list's path.
func (m *mutant) overlay(folder, scratch string) (string, error) {
	text, err := m.apply(folder)
	if err != nil {
		return "", err
	}
	original, err := filepath.Abs(filepath.Join(folder, m.file))
	if err != nil {
		return "", err
	}
	mutated := filepath.Join(scratch, filepath.Base(m.file))
	list, err := json.Marshal(map[string]map[string]string{"Replace": {original: mutated}})
	if err != nil {
		return "", err
	}
	path := filepath.Join(scratch, "overlay.json")
	return path, errors.Join(os.WriteFile(mutated, text, 0o600), os.WriteFile(path, list, 0o600))
}
