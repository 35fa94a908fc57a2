package main

import (
	"bytes"
	"fmt"
	"go/parser"
	"go/types"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"
)

const header = "The sum is wrong.\nfile: sum.go\npackage: .\nrun: TestSum\n"

// module writes a small module with one test, and one description of a mutant; it returns both folders.
func module(t *testing.T, description string) (folder, mutants string) {
	t.Helper()
	folder, mutants = t.TempDir(), t.TempDir()
	for path, text := range map[string]string{
		filepath.Join(folder, "go.mod"):       "module sum\n\ngo 1.26\n",
		filepath.Join(folder, "sum.go"):       "package sum\n\nfunc sum(a, b int) int { return a + b }\n\nfunc unused() int { return 1 }\n",
		filepath.Join(folder, "sum_test.go"):  "package sum\n\nimport \"testing\"\n\nfunc TestSum(t *testing.T) {\n\tif sum(2, 3) != 5 {\n\t\tt.Fatal(\"wrong\")\n\t}\n}\n",
		filepath.Join(mutants, "sum.txtar"):   description,
		filepath.Join(mutants, "ignored.txt"): "not a mutant",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return folder, mutants
}

// TestVerdicts runs the whole command on one mutant of each kind.
func TestVerdicts(t *testing.T) {
	for _, test := range []struct {
		name, description string
		code              int
		says              string
	}{
		{"killed", header + "-- from --\na + b\n-- to --\na - b\n", killed, "killed by TestSum"},
		{"survivor", header + "-- from --\nreturn 1\n-- to --\nreturn 2\n", alive, "survived go test -run 'TestSum' ."},
		{"crash", header + "-- from --\nreturn a + b\n-- to --\nos := []int{}; return os[a]\n", killed, "killed by TestSum"},
		{"does not compile", header + "-- from --\na + b\n-- to --\na +\n", alive, "it does not compile"},
		{"text is gone", header + "-- from --\na * b\n-- to --\na\n", alive, "occurs 0 times"},
		{"text is not unique", header + "-- from --\nfunc\n-- to --\nfunc\n", alive, "occurs 2 times"},
		{"file is gone", strings.Replace(header, "sum.go", "gone.go", 1) + "-- from --\na\n-- to --\nb\n", alive, "stale"},
		{"says nothing", "file: sum.go\n-- from --\na\n-- to --\nb\n", misuse, ""},
		{"names no test", "Broken.\nfile: sum.go\n-- from --\na\n-- to --\nb\n", misuse, ""},
		{"odd section", header + "-- form --\na\n-- to --\nb\n", misuse, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			folder, mutants := module(t, test.description)
			var out, problems bytes.Buffer
			if code := run(t.Context(), []string{"-C", folder, mutants}, &out, &problems); code != test.code {
				t.Errorf("exit %d, want %d", code, test.code)
			}
			if !strings.Contains(out.String(), test.says) {
				t.Errorf("printed %q, want %q in it", out.String(), test.says)
			}
			if test.code == misuse && problems.Len() == 0 {
				t.Error("nothing says what is wrong")
			}
			if text, err := os.ReadFile(filepath.Join(folder, "sum.go")); err != nil || !bytes.Contains(text, []byte("a + b")) {
				t.Errorf("the tree was touched: %s, %v", text, err)
			}
		})
	}
}

// TestNothingToDo must not pass for everything killed.
func TestNothingToDo(t *testing.T) {
	for _, args := range [][]string{{}, {t.TempDir()}, {filepath.Join(t.TempDir(), "gone")}} {
		var problems bytes.Buffer
		if code := run(t.Context(), args, &problems, &problems); code != misuse || problems.Len() == 0 {
			t.Errorf("%q: exit %d, said %q", args, code, problems.String())
		}
	}
}

// product is the module that the list is about.
const product = "../../.."

// list is the mutants of the product.
func list(t *testing.T) []mutant {
	t.Helper()
	all, err := find([]string{"../../mutants"})
	if err != nil || len(all) == 0 {
		t.Fatalf("%d mutants, %v", len(all), err)
	}
	return all
}

// The list stays true: every description is of text that is still there, and of tests that still are. Whether they kill it takes
// an hour; that is `make mutants`.
func TestEveryMutantApplies(t *testing.T) {
	for _, m := range list(t) {
		if _, err := m.apply(product); err != nil {
			t.Errorf("%s: %v", m.path, err)
		}
		for name := range strings.SplitSeq(m.run, "|") {
			name, _, _ = strings.Cut(name, "/")
			if !hasTest(t, filepath.Join(product, m.pkg), strings.Trim(name, "^$()")) {
				t.Errorf("%s: there is no %s in %s", m.path, name, m.pkg)
			}
		}
	}
}

// A mutant that does not compile proves nothing: the compiler finds it, and not a test.
func TestEveryMutantCompiles(t *testing.T) {
	if testing.Short() {
		t.Skip("make race reads the types of every package, with every set of tags; make mutants compiles each")
	}
	all := list(t)
	folders := map[string][]string{} // of the files, by build tags
	for _, m := range all {
		folders[m.tags] = append(folders[m.tags], "./"+filepath.Dir(m.file))
	}
	for tags, patterns := range folders {
		slices.Sort(patterns)
		loaded, err := packages.Load(&packages.Config{Mode: packages.LoadSyntax, Dir: product, BuildFlags: []string{"-tags", tags}}, slices.Compact(patterns)...)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range all {
			if m.tags == tags {
				compile(t, m, loaded)
			}
		}
	}
}

// compile checks the types of the package whose file a mutant changes.
func compile(t *testing.T, m mutant, loaded []*packages.Package) {
	t.Helper()
	file, err := filepath.Abs(filepath.Join(product, m.file))
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(loaded, func(p *packages.Package) bool { return slices.Contains(p.CompiledGoFiles, file) })
	if at < 0 {
		t.Errorf("%s: %s is in no package", m.path, m.file)
		return
	}
	p := loaded[at]
	text, err := m.apply(product)
	if err != nil {
		t.Errorf("%s: %v", m.path, err)
		return
	}
	mutated, err := parser.ParseFile(p.Fset, file, text, parser.SkipObjectResolution)
	if err != nil {
		t.Errorf("%s: %v", m.path, err)
		return
	}
	files := slices.Clone(p.Syntax)
	files[slices.Index(p.CompiledGoFiles, file)] = mutated
	if _, err := (&types.Config{Importer: imports(p.Imports)}).Check(p.PkgPath, p.Fset, files, nil); err != nil {
		t.Errorf("%s: %v", m.path, err)
	}
}

// imports are the packages that another one imports.
type imports map[string]*packages.Package

func (i imports) Import(path string) (*types.Package, error) {
	if path == "unsafe" {
		return types.Unsafe, nil
	}
	if p := i[path]; p != nil {
		return p.Types, nil
	}
	return nil, fmt.Errorf("the package does not import %s", path)
}

// hasTest reports whether the tests of a package have one whose name begins so.
func hasTest(t *testing.T, folder, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(text, []byte("\nfunc "+name)) {
			return true
		}
	}
	return false
}
