package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestTheLinkerSeesWhatIsCalled: as soon as one function that can be reached
// looks a method up by a name that is not a constant, as templates do, the
// linker keeps every exported method of every type: 12 MB of the program.
func TestTheLinkerSeesWhatIsCalled(t *testing.T) {
	for _, root := range []string{"b3", "client", "cmd", "fault", "internal", "third_party"} {
		err := filepath.WalkDir(filepath.Join("../..", root), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			for _, where := range hiddenCalls(t, path) {
				t.Errorf("%s: the linker cannot see which methods are called, and keeps them all: write it out (docs/adr/0081-what-is-never-called.md)", where)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}

	// The list is what the packages of others are, in the program as it is
	// released.
	list, err := os.ReadFile("../../docs/_generated/dependencies.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(list)) {
		if name, _, _ := strings.Cut(strings.TrimSpace(line), " "); slices.Contains([]string{"github.com/modern-go/reflect2", "golang.org/x/net/trace"}, name) {
			t.Errorf("%s calls methods by names that the linker cannot see: docs/adr/0081-what-is-never-called.md", name)
		}
	}
}

// hiddenCalls finds imports of templates, and look-ups of methods by number or
// by a name that is not a constant. Tests of this package and others may have
// them.
func hiddenCalls(t *testing.T, path string) (found []string) {
	t.Helper()
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	reflects := false
	for _, one := range file.Imports {
		switch one.Path.Value {
		case `"text/template"`, `"html/template"`:
			found = append(found, files.Position(one.Pos()).String()+": it imports "+one.Path.Value)
		case `"reflect"`:
			reflects = true
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || !reflects || len(call.Args) != 1 {
			return true
		}
		method, ok := call.Fun.(*ast.SelectorExpr)
		if !ok || method.Sel.Name != "MethodByName" && method.Sel.Name != "Method" {
			return true
		}
		if constant, ok := call.Args[0].(*ast.BasicLit); !ok || constant.Kind != token.STRING {
			found = append(found, files.Position(call.Pos()).String()+": "+method.Sel.Name+" is called with a value")
		}
		return true
	})
	return found
}
