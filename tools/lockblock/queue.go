package lockblock

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"slices"
	"strings"

	"golang.org/x/tools/go/analysis"
)

// specs are the types of flow that register something in the inventory.
var specs = []string{"QueueSpec", "SignalSpec", "LaneSpec", "BusSpec", "PermitsSpec", "SnapshotSpec", "FairSpec", "BandSpec"}

// checkQueues reports queues without a name: buffered channels, and specs that leave the name out. Tests are exempt.
func (c *config) checkQueues(pass *analysis.Pass, j *reporter) {
	for _, file := range pass.Files {
		if j.inTestFile(file.Pos()) {
			continue
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				if !within(pass.Pkg.Path(), c.flow) {
					checkMake(pass.TypesInfo, j, n)
				}
			case *ast.CompositeLit:
				c.checkSpec(pass.TypesInfo, j, n)
			}
			return true
		})
	}
}

// checkMake reports make(chan T, n) unless n is a constant of at most one: such a channel is a signal.
func checkMake(info *types.Info, j *reporter, call *ast.CallExpr) {
	name, ok := ast.Unparen(call.Fun).(*ast.Ident)
	if !ok || len(call.Args) != 2 || info.Uses[name] != types.Universe.Lookup("make") {
		return
	}
	if _, ok := info.TypeOf(call.Args[0]).Underlying().(*types.Chan); !ok {
		return
	}
	room := info.Types[call.Args[1]].Value
	if room != nil && constant.Compare(constant.ToInt(room), token.LEQ, constant.MakeInt64(1)) {
		return
	}
	j.reportOnce(call.Pos(), "queue",
		"a channel with room for more than one value is a queue without name, policy or count: use flow.NewQueue")
}

// checkSpec reports a spec of flow whose Service or Name is missing or empty. A field that the spec does not have is not
// required.
func (c *config) checkSpec(info *types.Info, j *reporter, lit *ast.CompositeLit) {
	named, ok := types.Unalias(pointee(info.TypeOf(lit))).(*types.Named)
	if !ok || !c.inFlow(named.Obj()) || !slices.Contains(specs, named.Obj().Name()) {
		return
	}
	var missing []string
	for _, name := range []string{"Service", "Name"} {
		if value, has := fieldIn(named, lit, name); has && emptyText(info, value) {
			missing = append(missing, name)
		}
	}
	if missing == nil {
		return
	}
	j.reportOnce(lit.Pos(), "spec", fmt.Sprintf("flow.%s has no %s: the inventory lists everything by service and name, so set %s in the literal",
		named.Obj().Name(), strings.Join(missing, " and no "), strings.Join(missing, " and ")))
}

// inFlow reports whether an object is declared in flow.
func (c *config) inFlow(obj types.Object) bool {
	return obj.Pkg() != nil && obj.Pkg().Path() == c.flow
}

// fieldIn finds the value that a composite literal gives to a field, nil when it gives none, and whether the type has the field.
func fieldIn(named *types.Named, lit *ast.CompositeLit, name string) (value ast.Expr, has bool) {
	fields, ok := named.Underlying().(*types.Struct)
	if !ok {
		return nil, false
	}
	for i := range fields.NumFields() {
		if fields.Field(i).Name() != name {
			continue
		}
		for n, element := range lit.Elts {
			pair, keyed := element.(*ast.KeyValueExpr)
			if keyed && pair.Key.(*ast.Ident).Name == name {
				return pair.Value, true
			}
			if !keyed && n == i {
				return element, true
			}
		}
		return nil, true
	}
	return nil, false
}

func emptyText(info *types.Info, value ast.Expr) bool {
	if value == nil {
		return true
	}
	text := info.Types[value].Value
	return text != nil && text.Kind() == constant.String && constant.StringVal(text) == ""
}
