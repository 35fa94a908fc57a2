package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestRetest runs the packages of testdata/shop, each of which fails in its own
// way, and sees which failures are looked at twice.
func TestRetest(t *testing.T) {
	for name, c := range map[string]struct {
		packages []string
		flags    []string
		err      string // part of the error; none: the run passes
		says     []string
		never    string // what must not be printed
	}{
		"all pass":             {packages: []string{"./fine"}, says: []string{"ok  \tshop/fine", "\n1 passed, 0 failed, 1 skipped\n"}, never: "again"},
		"the first time fails": {packages: []string{"./fine", "./flaky"}, says: []string{"\nFLAKY shop/flaky.TestFirstTimeFails\n", "    |     flaky_test.go:18: the first time always fails\n", "\n3 passed, 0 failed, 1 skipped\n"}, never: "\n--- FAIL"},
		"fails always":         {packages: []string{"./broken"}, err: "1 failed twice", says: []string{"\n--- FAIL: TestAlwaysFails", "two and two are five", "\n1 passed, 1 failed, 0 skipped\n"}, never: "FLAKY"},
		"one of each":          {packages: []string{"./broken", "./flaky"}, err: "1 failed twice", says: []string{"FLAKY shop/flaky.TestFirstTimeFails\n", "\n3 passed, 1 failed, 0 skipped\n"}},
		"panic":                {packages: []string{"./panics"}, err: "not run again: a panic in shop/panics", says: []string{"panic: out of milk"}, never: "again, by itself"},
		"data race":            {packages: []string{"./races"}, flags: []string{"-race"}, err: "not run again: a data race in shop/races", says: []string{"WARNING: DATA RACE"}, never: "again, by itself"},
		"leak":                 {packages: []string{"./leaks"}, err: "not run again: a goroutine leaked in shop/leaks", never: "again, by itself"},
		"out of time":          {packages: []string{"./slow"}, flags: []string{"-timeout=100ms"}, err: "not run again: a package ran out of time in shop/slow", never: "again, by itself"},
		"does not compile":     {packages: []string{"./garbled"}, err: "not run again: a package does not compile", says: []string{"undefined: missing"}, never: "again, by itself"},
		"too many":             {packages: []string{"./many"}, err: "not run again: 3 tests failed, and at most 2 are run again", says: []string{"--- FAIL: Test3"}, never: "again, by itself"},
		"no such package":      {packages: []string{"./nowhere"}, err: "not run again", never: "again, by itself"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name == "data race" {
				if _, err := exec.LookPath("gcc"); err != nil {
					t.Skip("the race detector needs gcc")
				}
			}
			kept := t.TempDir()
			var out bytes.Buffer
			r := runner{folder: "testdata/shop", flaky: filepath.Join(kept, "flaky"), totals: filepath.Join(kept, "totals"), most: 2, slow: time.Minute, out: &out, environment: []string{"SHOP_MARKS=" + kept}}
			err := r.run(c.packages, append([]string{"-count=1", "-vet=off"}, c.flags...))
			switch {
			case err == nil && c.err != "":
				t.Errorf("the run passed, want an error with %q", c.err)
			case err != nil && (c.err == "" || !strings.Contains(err.Error(), c.err)):
				t.Errorf("the run failed with %q, want %q", err, c.err)
			}
			for _, text := range c.says {
				if !strings.Contains("\n"+out.String(), text) {
					t.Errorf("it does not print %q", text)
				}
			}
			if c.never != "" && strings.Contains(out.String(), c.never) {
				t.Errorf("it prints %q", c.never)
			}
			flaky, _ := os.ReadFile(filepath.Join(kept, "flaky"))
			if want := strings.Contains(out.String(), "FLAKY "); want != (len(flaky) > 0) {
				t.Errorf("the file of flaky tests holds %q", flaky)
			}
			if totals, _ := os.ReadFile(filepath.Join(kept, "totals")); len(strings.Fields(string(totals))) != 3 {
				t.Errorf("the file of totals holds %q, want three numbers", totals)
			}
			if t.Failed() {
				t.Logf("it printed:\n    | %s", strings.ReplaceAll(out.String(), "\n", "\n    | "))
			}
		})
	}
}

// A profile of coverage is that of the whole run, also if a test ran again.
func TestAProfileIsOfTheWholeRun(t *testing.T) {
	t.Parallel()
	kept := t.TempDir()
	profile := filepath.Join(kept, "profile")
	r := runner{folder: "testdata/shop", flaky: filepath.Join(kept, "flaky"), totals: filepath.Join(kept, "totals"), most: 2, slow: time.Minute, out: new(bytes.Buffer), environment: []string{"SHOP_MARKS=" + kept}}
	if err := r.run([]string{"./flaky", "./fine"}, []string{"-count=1", "-vet=off", "-coverpkg=shop/fine", "-coverprofile=" + profile}); err != nil {
		t.Fatal(err)
	}
	written, err := os.ReadFile(profile)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(kept, "flaky")); err != nil || !strings.Contains(string(written), "shop/fine/fine.go:3") {
		t.Errorf("nothing was flaky (%v), or the profile is that of the test that ran again: %q", err, written)
	}
}
