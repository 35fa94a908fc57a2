package lockblock

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"

	"golang.org/x/tools/go/ssa"
)

// lockOrder is the position of a lock in the order of locks. It is a fact about the field or variable that declares the lock.
type lockOrder struct {
	Ranked bool
	Rank   int
	Leaf   bool
}

// AFact marks lockOrder as a fact.
func (*lockOrder) AFact() {}

func (o *lockOrder) String() string {
	switch {
	case o.Leaf:
		return "leaf"
	case o.Ranked:
		return fmt.Sprintf("rank %d", o.Rank)
	}
	return "no rank"
}

// orderOf returns what is declared about a lock, here or in the package that it comes from.
func (p *program) orderOf(v *types.Var) lockOrder {
	o, known := p.orders[v.Origin()]
	if !known && v.Pkg() != p.pass.Pkg {
		p.pass.ImportObjectFact(v.Origin(), &o)
		p.orders[v.Origin()] = o
	}
	return o
}

// declare records the order of a lock and exports it to the packages that import this one.
func (p *program) declare(v *types.Var, o lockOrder) {
	p.orders[v] = o
	if v.Pkg() == p.pass.Pkg {
		p.pass.ExportObjectFact(v, &o)
	}
}

// readLeaves finds the mutexes that are declared with //lockblock:leaf.
func (p *program) readLeaves(j *reporter) {
	for _, file := range p.pass.Files {
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.Field:
				p.readLeaf(j, n.Names, n.Type, j.leafIn(n.Comment, n.Doc))
			case *ast.ValueSpec:
				p.readLeaf(j, n.Names, n.Type, j.leafIn(n.Comment, n.Doc))
			case *ast.GenDecl:
				// The comment above an ungrouped var belongs to the declaration.
				if spec, ok := n.Specs[0].(*ast.ValueSpec); ok && !n.Lparen.IsValid() {
					p.readLeaf(j, spec.Names, spec.Type, j.leafIn(n.Doc))
				}
			}
			return true
		})
	}
}

func (p *program) readLeaf(j *reporter, names []*ast.Ident, declared ast.Expr, d *directive) {
	if d == nil {
		return
	}
	if len(names) == 0 { // an embedded field is named by its type
		names = []*ast.Ident{embeddedName(declared)}
	}
	for _, name := range names {
		v, ok := p.pass.TypesInfo.Defs[name].(*types.Var)
		if !ok || !isPlainMutex(v.Type()) {
			continue
		}
		d.used = true
		if d.reason != "" {
			p.declare(v, lockOrder{Leaf: true})
		}
	}
}

func embeddedName(t ast.Expr) *ast.Ident {
	switch t := t.(type) {
	case *ast.StarExpr:
		return embeddedName(t.X)
	case *ast.SelectorExpr:
		return t.Sel
	case *ast.Ident:
		return t
	}
	return nil
}

// isPlainMutex reports whether a type is a mutex of the standard library, or a pointer to one.
func isPlainMutex(t types.Type) bool {
	named, ok := types.Unalias(pointee(t)).(*types.Named)
	if !ok || named.Obj().Pkg() == nil || named.Obj().Pkg().Path() != "sync" {
		return false
	}
	return named.Obj().Name() == "Mutex" || named.Obj().Name() == "RWMutex"
}

// readRanks finds what flow.NewMutex makes, with which rank, and which fields and variables hold it.
func (p *program) readRanks(j *reporter) {
	p.readSpecs(j)
	for _, fn := range p.functions {
		for _, block := range fn.Blocks {
			for _, instr := range block.Instrs {
				if store, ok := instr.(*ssa.Store); ok && p.isNamedMutex(pointee(store.Val.Type())) {
					p.readRank(j, store)
				}
			}
		}
	}
}

// readRank records the rank of the field or variable that a store puts a named lock into.
func (p *program) readRank(j *reporter, store *ssa.Store) {
	made, rank := p.rankOf(store.Val, traceDepth)
	holder := holderOf(elementHolder(store.Addr))
	if made == nil || holder == nil {
		return
	}
	v := holder.(*types.Var)
	if before, known := p.orders[v]; known && before != rank {
		j.reportOnce(made.Pos(), "rank", fmt.Sprintf("%s has %s here and %s elsewhere: one lock has one rank, so make them equal or use two fields",
			v.Name(), &rank, &before))
		return
	}
	p.declare(v, rank)
}

// elementHolder steps from an element of a slice, array or map to what holds it.
func elementHolder(address ssa.Value) ssa.Value {
	for {
		switch a := address.(type) {
		case *ssa.IndexAddr:
			address = a.X
		case *ssa.UnOp:
			address = a.X
		default:
			return address
		}
	}
}

// rankOf follows a value back to the call of flow.NewMutex that made it, also through a function of this package that returns it.
func (p *program) rankOf(v ssa.Value, depth int) (*ssa.Call, lockOrder) {
	if depth <= 0 {
		return nil, lockOrder{}
	}
	switch v := v.(type) {
	case *ssa.UnOp:
		return p.rankOf(v.X, depth-1)
	case *ssa.Phi:
		return p.rankOf(v.Edges[0], depth-1)
	case *ssa.Call:
		callee := v.Call.StaticCallee()
		if callee == nil {
			return nil, lockOrder{}
		}
		if p.isNewMutex(callee) {
			return v, p.ranks[v.Pos()]
		}
		for _, block := range callee.Blocks {
			if ret, ok := block.Instrs[len(block.Instrs)-1].(*ssa.Return); ok && len(ret.Results) == 1 {
				return p.rankOf(ret.Results[0], depth-1)
			}
		}
	}
	return nil, lockOrder{}
}

func (p *program) isNewMutex(fn *ssa.Function) bool {
	obj := fn.Object()
	return obj != nil && obj.Name() == "NewMutex" && p.config.inFlow(obj)
}

// readSpecs reads the rank in the spec of every call of flow.NewMutex. A rank that is not a constant cannot be enforced, and an
// omitted one is zero.
func (p *program) readSpecs(j *reporter) {
	inits := initialValues(p.pass.Files, p.pass.TypesInfo)
	for _, file := range p.pass.Files {
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			spec, isSpec := p.specIn(call)
			if !isSpec {
				return true
			}
			rank, ok := p.constantRank(spec, inits)
			if ok {
				p.ranks[call.Lparen] = rank
			} else if !j.inTestFile(call.Pos()) {
				j.reportOnce(call.Pos(), "rank", "the rank of this lock is not a constant above zero: write flow.LockSpec{..., Rank: n} with such an n in the call of flow.NewMutex")
			}
			return true
		})
	}
}

// specIn finds the spec in a call of flow.NewMutex: it is the last argument.
func (p *program) specIn(call *ast.CallExpr) (ast.Expr, bool) {
	var name *ast.Ident
	switch fun := ast.Unparen(call.Fun).(type) {
	case *ast.Ident:
		name = fun
	case *ast.SelectorExpr:
		name = fun.Sel
	default:
		return nil, false
	}
	fn, ok := p.pass.TypesInfo.Uses[name].(*types.Func)
	if !ok || fn.Name() != "NewMutex" || !p.config.inFlow(fn) {
		return nil, false
	}
	return ast.Unparen(call.Args[len(call.Args)-1]), true
}

// constantRank reads Rank from a LockSpec literal, also from one that a variable was made with.
func (p *program) constantRank(spec ast.Expr, inits map[types.Object]ast.Expr) (lockOrder, bool) {
	if name, ok := spec.(*ast.Ident); ok {
		spec = inits[p.pass.TypesInfo.Uses[name]]
	}
	lit, isLit := spec.(*ast.CompositeLit)
	if !isLit {
		return lockOrder{}, false
	}
	named, isNamed := types.Unalias(p.pass.TypesInfo.TypeOf(lit)).(*types.Named)
	if !isNamed {
		return lockOrder{}, false
	}
	value, _ := fieldIn(named, lit, "Rank")
	if value == nil || p.pass.TypesInfo.Types[value].Value == nil {
		return lockOrder{}, false
	}
	n, _ := constant.Int64Val(constant.ToInt(p.pass.TypesInfo.Types[value].Value))
	return lockOrder{Ranked: true, Rank: int(n)}, n > 0
}

// initialValues maps each variable to the expression that it is declared with.
func initialValues(files []*ast.File, info *types.Info) map[types.Object]ast.Expr {
	inits := map[types.Object]ast.Expr{}
	for _, file := range files {
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.ValueSpec:
				for i, name := range n.Names {
					if len(n.Values) == len(n.Names) {
						inits[info.Defs[name]] = ast.Unparen(n.Values[i])
					}
				}
			case *ast.AssignStmt:
				for i, left := range n.Lhs {
					name, ok := left.(*ast.Ident)
					if ok && n.Tok == token.DEFINE && len(n.Rhs) == len(n.Lhs) {
						inits[info.Defs[name]] = ast.Unparen(n.Rhs[i])
					}
				}
			}
			return true
		})
	}
	return inits
}

// nestingProblem says what is wrong with taking the inner lock while the outer one is held, and what to do. Empty: nothing.
func nestingProblem(outer, inner lock) string {
	switch {
	case outer.same(inner):
		return fmt.Sprintf("%s is already held, and a lock of the same field is never taken twice: unlock first, or call a variant that expects the lock to be held", inner.Name)
	case outer.Order.Leaf:
		return fmt.Sprintf("%s is declared a leaf, so nothing is locked under it: unlock it first", outer.Name)
	case inner.Order.Leaf:
		return ""
	case outer.Order.Ranked && inner.Order.Ranked && inner.Order.Rank > outer.Order.Rank:
		return ""
	case outer.Order.Ranked && inner.Order.Ranked:
		return fmt.Sprintf("rank %d is taken under rank %d, and locks nest by increasing rank only: take %s first, or unlock %s before",
			inner.Order.Rank, outer.Order.Rank, inner.Name, outer.Name)
	}
	without := inner.Name
	if inner.Order.Ranked {
		without = outer.Name
	}
	return fmt.Sprintf("%s has no known rank, and only ranked locks nest: unlock %s first, or make both with flow.NewMutex, or declare %s //lockblock:leaf if nothing is locked under it",
		without, outer.Name, inner.Name)
}
