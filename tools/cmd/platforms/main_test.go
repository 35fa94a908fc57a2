package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// module writes a module that compiles on Linux with 64 bits, and nowhere else.
func module(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":        "module sample\n\ngo 1.26\n",
		"main.go":       "package main\n\nimport \"sample/wait\"\n\nfunc main() { wait.For(seconds) }\n\nconst seconds = 1 << 32\n",
		"wait/wait.go":  "package wait\n\nimport \"sample/poll\"\n\nfunc For(n int) { poll.Poll(n) }\n",
		"poll/linux.go": "//go:build linux\n\npackage poll\n\nimport \"syscall\"\n\nfunc Poll(int) { _, _ = syscall.EpollCreate(1) }\n",
		"poll/other.go": "//go:build darwin\n\npackage poll\n\nimport \"syscall\"\n\nfunc Poll(int) { _, _ = syscall.EpollCreate(1) }\n",
		"extra/tag.go":  "//go:build extra\n\npackage extra\n\nvar broken string = 1\n",
		"extra/base.go": "package extra\n",
	} {
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

func problemsOn(t *testing.T, name, tags string, patterns ...string) []string {
	t.Helper()
	target, err := parsePlatform(name)
	if err != nil {
		t.Fatal(err)
	}
	problems, err := target.check(newSources(), request{folder: module(t), tags: tags}, &dependencies{systems: map[string]map[string]bool{}}, patterns)
	if err != nil {
		t.Fatal(err)
	}
	return problems
}

func TestWhatDoesNotCompileIsFound(t *testing.T) {
	for name, c := range map[string]struct {
		platform, tags string
		patterns       []string
		want           string // the beginning of the only problem; none if empty
	}{
		"all is well":           {"linux/amd64", "", []string{"."}, ""},
		"a number of 32 bits":   {"linux/arm", "", []string{"."}, "main.go:5:24: cannot use seconds"},
		"a call of another":     {"darwin/arm64", "", []string{"."}, "poll/other.go:7:33: undefined: syscall.EpollCreate"},
		"behind a tag":          {"linux/amd64", "extra", []string{"./extra"}, "extra/tag.go:5:21: cannot use 1"},
		"behind a tag not set":  {"linux/amd64", "", []string{"./extra"}, ""},
		"a package that is not": {"linux/amd64", "", []string{"./absent"}, "-: stat "},
	} {
		problems := problemsOn(t, c.platform, c.tags, c.patterns...)
		if c.want == "" && len(problems) > 0 || c.want != "" && (len(problems) != 1 || !strings.HasPrefix(problems[0], c.want)) {
			t.Errorf("%s: got %q, want %q", name, problems, c.want)
		}
	}
}

// A package without a file for a platform breaks its importer, and says where.
func TestAPackageWithoutFiles(t *testing.T) {
	problems := problemsOn(t, "windows/amd64", "", ".")
	if !slices.ContainsFunc(problems, func(p string) bool { return strings.Contains(p, "sample/poll") }) {
		t.Errorf("nothing says that sample/poll has no files: %q", problems)
	}
}

func TestArguments(t *testing.T) {
	for name, arguments := range map[string][]string{
		"no packages":     {"linux/amd64", "--"},
		"no platforms":    {"--", "."},
		"no separator":    {"linux/amd64", "."},
		"no processor":    {"linux", "--", "."},
		"what nobody has": {"linux/vax", "--", "."},
	} {
		if run(request{folder: module(t)}, &dependencies{}, arguments) == nil {
			t.Errorf("%s: %q is accepted", name, arguments)
		}
	}
	if err := run(request{folder: module(t)}, &dependencies{}, []string{"linux/amd64", "linux/arm64", "--", "."}); err != nil {
		t.Error("what compiles is refused:", err)
	}
	if err := run(request{folder: module(t)}, &dependencies{}, []string{"linux/amd64", "linux/arm", "--", "."}); err == nil || !strings.Contains(err.Error(), "1 of 2") {
		t.Errorf("of two platforms one is broken: %v", err)
	}
}

// What a program takes from other modules is in the list, by system, and a change of it is an error until the list has it too.
func TestDependencies(t *testing.T) {
	folder := t.TempDir()
	one := func() *dependencies {
		d := &dependencies{file: "list.txt", systems: map[string]map[string]bool{}}
		d.add("linux", "example.org/both")
		d.add("darwin", "example.org/both")
		d.add("linux", "example.org/linux")
		return d
	}
	if err := one().compare(folder); err == nil {
		t.Error("without a list there is nothing to compare with")
	}
	d := one()
	d.update = true
	if err := d.compare(folder); err != nil {
		t.Fatal(err)
	}
	if text := string(d.text()); !strings.HasSuffix(text, "\nexample.org/both\nexample.org/linux  linux\n") {
		t.Errorf("the list is %s", text)
	}
	if err := one().compare(folder); err != nil {
		t.Error("nothing has changed:", err)
	}
	d = one()
	d.add("darwin", "example.org/new")
	if err := d.compare(folder); err == nil || !strings.Contains(err.Error(), "make generate") {
		t.Errorf("a package came in: %v", err)
	}
	if err := (&dependencies{}).compare(folder); err != nil {
		t.Error("nobody asks:", err)
	}
}
