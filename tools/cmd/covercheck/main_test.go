package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	shop    = "testdata/shop"
	profile = "testdata/shop/cover.out"
)

// The profile is of two runs; the block that only the second run covers counts as covered.
func Example() {
	code := run([]string{"-profile", profile, "-C", shop, "shop/door=100", "shop/till=80"}, os.Stdout, os.Stdout)
	fmt.Println("exit code", code)
	// Output:
	// package    statements  covered  minimum  verdict
	// shop/door  2           100.0%   100.0%   ok
	// shop/till  15          40.0%    80.0%    below
	// covercheck: shop/till covers 40.0% of its statements, 80.0% are asked for
	//   test these next:
	//   testdata/shop/till/till.go:7: (*Till).Close covers 0.0% of 3 statements
	//   testdata/shop/till/till.go:20: package variables covers 0.0% of 1 statements
	//   testdata/shop/till/till.go:22: (*Till).Report covers 28.5% of 7 statements
	// exit code 1
}

// runCommand runs the command and returns its exit code and all it printed.
func runCommand(args ...string) (code int, printed string) {
	var text strings.Builder
	code = run(args, &text, &text)
	return code, text.String()
}

func TestReachedMinimum(t *testing.T) {
	code, printed := runCommand("-profile", profile, "shop/till=40", "shop/door=99.9")
	if code != reached || strings.Contains(printed, "covercheck:") {
		t.Errorf("exit code %d\n%s", code, printed)
	}
}

func TestAbsentPackageIsNamed(t *testing.T) {
	code, printed := runCommand("-profile", profile, "shop/tull=0")
	want := "covercheck: shop/tull is not in the profile: check the name, or run go test with -coverpkg=shop/tull\n"
	if code != below || !strings.Contains(printed, want) || !strings.Contains(printed, "absent") {
		t.Errorf("exit code %d\n%s", code, printed)
	}
}

func TestSourcesElsewhere(t *testing.T) {
	broken := t.TempDir()
	write(t, filepath.Join(broken, "go.mod"), "module shop\n")
	write(t, filepath.Join(broken, "till", "till.go"), "package")
	other := t.TempDir()
	write(t, filepath.Join(other, "go.mod"), "module other\n")
	for folder, want := range map[string]string{
		t.TempDir(): "no go.mod in",
		other:       "shop/till/till.go is not in module other",
		broken:      "expected",
	} {
		code, printed := runCommand("-profile", profile, "-C", folder, "shop/till=80")
		if code != below || !strings.Contains(printed, want) || !strings.Contains(printed, "give the module's folder with -C") {
			t.Errorf("exit code %d, want %q in\n%s", code, want, printed)
		}
	}
}

func TestMisuseSaysWhatToWrite(t *testing.T) {
	folder := t.TempDir()
	bad := func(name, text string) string {
		file := filepath.Join(folder, name)
		write(t, file, text)
		return file
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"shop/till=1"}, "need -profile FILE"},
		{[]string{"-profile", profile}, "at least one PACKAGE=PERCENT"},
		{[]string{"-profile", profile, "shop/till"}, `"shop/till" is not PACKAGE=PERCENT`},
		{[]string{"-profile", profile, "=4"}, "is not PACKAGE=PERCENT"},
		{[]string{"-profile", profile, "shop/till=101"}, "is not PACKAGE=PERCENT"},
		{[]string{"-profile", profile, "shop/till=NaN"}, "is not PACKAGE=PERCENT"},
		{[]string{"-profile", profile, "a=1", "a=2"}, "a is named twice"},
		{[]string{"-profile", "nowhere.out", "a=1"}, "write it with go test -coverprofile=nowhere.out"},
		{[]string{"-what"}, "usage: covercheck -profile FILE"},
		{[]string{"-profile", bad("text", "mode: set\nhello\n"), "a=1"}, `line 2: "hello" is not a line of a cover profile`},
		{[]string{"-profile", bad("number", "a/b.go:1.1,2.2 1 99999999999999999999\n"), "a=1"}, "line 1: "},
		{[]string{"-profile", bad("changed", "a/b.go:1.1,2.2 1 0\na/b.go:1.1,2.2 2 0\n"), "a=1"}, "line 2: a block has 2 statements here and 1 before"},
		{[]string{"-profile", bad("long", strings.Repeat("x", 1<<17)), "a=1"}, "too long"},
	} {
		code, printed := runCommand(c.args...)
		if code != misuse || !strings.Contains(printed, c.want) {
			t.Errorf("%q: exit code %d, want %q in\n%s", c.args, code, c.want, printed)
		}
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// A percentage just below the minimum must neither pass nor look like the minimum.
func TestNothingIsRoundedUp(t *testing.T) {
	almost := filepath.Join(t.TempDir(), "cover.out")
	write(t, almost, "mode: set\na/b.go:1.1,2.2 9196 1\na/b.go:3.1,4.2 804 0\n")
	code, printed := runCommand("-profile", almost, "a=92")
	if code != below || !strings.Contains(printed, "91.9%") {
		t.Errorf("exit code %d\n%s", code, printed)
	}
}

// However runs are put together, each block counts once, and it is covered if one run covered it.
func TestRunsMerge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lines := rapid.IntRange(1, 6).Draw(t, "blocks")
		runs := rapid.SliceOfN(rapid.SliceOfN(rapid.IntRange(0, 2), lines, lines), 1, 4).Draw(t, "runs")
		var text strings.Builder
		want := coverage{}
		coveredBy := make([]bool, lines)
		for _, run := range runs {
			text.WriteString("mode: count\n")
			for i, times := range run {
				fmt.Fprintf(&text, "a/b.go:%d.1,%d.9 %d %d\n", i+1, i+1, i+1, times)
				coveredBy[i] = coveredBy[i] || times > 0
			}
		}
		for i, covered := range coveredBy {
			want.add(block{statements: i + 1, covered: covered})
		}
		packages, err := readProfile(strings.NewReader(text.String()))
		if err != nil {
			t.Fatal(err)
		}
		if got := coverageOf(packages["a"]); got != want {
			t.Fatalf("got %+v, want %+v", got, want)
		}
	})
}
