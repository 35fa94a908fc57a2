package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node is a module whose packages import each other as ours do.
func node() []goPackage {
	var all []goPackage
	for name, imports := range map[string][]string{
		"node/fault":             nil,
		"node/internal/store":    {"node/fault", "fmt"},
		"node/internal/house":    nil,
		"node/internal/edge":     {"node/internal/store"},
		"node/internal/edge/row": {"node/fault"},
		"node/cmd/node":          {"node/internal/edge"},
	} {
		p := goPackage{ImportPath: name, Imports: imports}
		p.Module.Path = "node"
		all = append(all, p)
	}
	all = append(all, goPackage{ImportPath: "node/gates", Module: struct{ Path string }{"node"}, XTestImports: []string{"node/internal/store"}})
	return all
}

func TestWhatIsChecked(t *testing.T) {
	for name, c := range map[string]struct{ files, lint, test []string }{
		"nothing":        {nil, nil, nil},
		"a leaf":         {[]string{"cmd/node/main.go"}, []string{"node/cmd/node"}, []string{"node/cmd/node"}},
		"with importers": {[]string{"internal/store/a.go", "internal/store/b.go"}, []string{"node/internal/store"}, []string{"node/gates", "node/internal/edge", "node/internal/store"}},
		"test data":      {[]string{"internal/edge/row/testdata/deep/x.golden"}, []string{"node/internal/edge/row"}, []string{"node/internal/edge/row"}},
		"a document":     {[]string{"docs/adr/0001.md", "README.md"}, []string{"node/internal/house"}, []string{"node/internal/house"}},
	} {
		changed := packagesOf(c.files, node())
		if !slices.Equal(changed, c.lint) {
			t.Errorf("%s: lints %q, want %q", name, changed, c.lint)
		}
		if tested := withImporters(changed, node()); !slices.Equal(tested, c.test) {
			t.Errorf("%s: tests %q, want %q", name, tested, c.test)
		}
	}
	if all := packagesOf([]string{"go.sum"}, node()); len(all) != len(node()) {
		t.Errorf("after a change of the dependencies it lints only %q", all)
	}
}

// A change is found whether it is committed, staged, not staged or new; what
// main has is none.
func TestChangedFiles(t *testing.T) {
	folder := t.TempDir()
	run := func(arguments ...string) {
		t.Helper()
		command := exec.Command("git", append([]string{"-c", "user.name=t", "-c", "user.email=t@t"}, arguments...)...)
		command.Dir = folder
		if out, err := command.CombinedOutput(); err != nil {
			t.Fatalf("git %q: %v\n%s", arguments, err, out)
		}
	}
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if files, err := changedFiles(folder); err == nil {
		t.Errorf("without git it says that %q changed", files)
	}
	run("init", "-q", "-b", "main")
	for _, name := range []string{"old", "committed", "staged", "edited"} {
		write(name, "main")
	}
	run("add", ".")
	run("commit", "-qm", "main")
	if files, err := changedFiles(folder); err != nil || len(files) != 0 {
		t.Errorf("on main, %q changed (%v), want nothing", files, err)
	}
	run("checkout", "-qb", "work")
	write("committed", "work")
	run("commit", "-qam", "work")
	write("staged", "work")
	run("add", ".")
	write("edited", "work")
	write("new", "work")
	files, err := changedFiles(folder)
	slices.Sort(files)
	if want := []string{"committed", "edited", "new", "staged"}; err != nil || !slices.Equal(files, want) {
		t.Errorf("%q changed (%v), want %q", files, err, want)
	}
}

func TestFormat(t *testing.T) {
	folder := t.TempDir()
	for name, text := range map[string]string{"good.go": "package a\n", "bad.go": "package   a\n"} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := checkFormat(folder, []string{"good.go", "gone.go", "README.md"}); err != nil {
		t.Error(err)
	}
	if checkFormat(folder, []string{"bad.go"}) == nil {
		t.Error("a file that is not formatted passes")
	}
}

func TestSummary(t *testing.T) {
	if got := summary(nil) + ", " + summary([]string{"a", "b"}) + ", " + summary(make([]string, 9)); got != "nothing, a b, 9 packages" {
		t.Error(got)
	}
}
