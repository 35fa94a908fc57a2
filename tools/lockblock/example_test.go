package lockblock_test

import (
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/tools/go/analysis"

	"micronode/tools/lockblock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The analyzer reads one package and says what is wrong with it.
func Example() {
	fmt.Println(runAnalyzer(`package shop

import "sync"

type Till struct {
	mu    sync.Mutex
	sales chan int
	total int
}

func (t *Till) Count() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.total += <-t.sales
}
`))
	// Output:
	// line 14: receives from a channel while holding Till.mu (locked on line 12): no lock is held across a wait, so take what you need under the lock, unlock, then do this
}

// runAnalyzer runs the analyzer on one file of the module, without facts of other packages. Under go vet all this is done for you.
func runAnalyzer(source string) string {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "shop.go", source, parser.ParseComments)
	if err != nil {
		return err.Error()
	}
	info := &types.Info{
		Types:        map[ast.Expr]types.TypeAndValue{},
		Defs:         map[*ast.Ident]types.Object{},
		Uses:         map[*ast.Ident]types.Object{},
		Implicits:    map[ast.Node]types.Object{},
		Instances:    map[*ast.Ident]types.Instance{},
		Scopes:       map[ast.Node]*types.Scope{},
		Selections:   map[*ast.SelectorExpr]*types.Selection{},
		FileVersions: map[*ast.File]string{},
	}
	config := types.Config{Importer: importer.ForCompiler(fset, "source", nil)}
	pkg, err := config.Check("micronode/shop", fset, []*ast.File{file}, info)
	if err != nil {
		return err.Error()
	}
	var said []string
	_, err = lockblock.Analyzer.Run(&analysis.Pass{
		Analyzer:         lockblock.Analyzer,
		Fset:             fset,
		Files:            []*ast.File{file},
		Pkg:              pkg,
		TypesInfo:        info,
		ReadFile:         func(string) ([]byte, error) { return []byte(source), nil },
		ImportObjectFact: func(types.Object, analysis.Fact) bool { return false },
		ExportObjectFact: func(types.Object, analysis.Fact) {},
		Report: func(d analysis.Diagnostic) {
			said = append(said, fmt.Sprintf("line %d: %s", fset.Position(d.Pos).Line, d.Message))
		},
	})
	if err != nil {
		return err.Error()
	}
	return strings.Join(said, "\n")
}
