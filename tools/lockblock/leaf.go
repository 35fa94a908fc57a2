package lockblock

import (
	"fmt"
	"go/ast"
	"go/types"
)

// leaf is a fact about the field or variable of a mutex that is declared with //lockblock:leaf.
type leaf struct{}

// AFact marks leaf as a fact.
func (*leaf) AFact() {}

func (*leaf) String() string { return "leaf" }

// isLeaf reports whether a lock is declared a leaf, here or in the package that it comes from.
func (p *program) isLeaf(v *types.Var) bool {
	declared, known := p.leaves[v.Origin()]
	if !known && v.Pkg() != p.pass.Pkg {
		declared = p.pass.ImportObjectFact(v.Origin(), &leaf{})
		p.leaves[v.Origin()] = declared
	}
	return declared
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
			p.leaves[v] = true
			p.pass.ExportObjectFact(v, &leaf{})
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

// nestingProblem says what is wrong with taking the inner lock while the outer one is held, and what to do. Empty: nothing. Since
// only leaves are taken under another lock, and nothing under a leaf, no two locks are ever taken in both orders.
func nestingProblem(outer, inner lock) string {
	switch {
	case outer.same(inner):
		return fmt.Sprintf("%s is already held, and a lock of the same field is never taken twice: unlock first, or call a variant that expects the lock to be held", inner.Name)
	case outer.Leaf:
		return fmt.Sprintf("%s is declared a leaf, so nothing is locked under it: unlock it first", outer.Name)
	case inner.Leaf:
		return ""
	}
	return fmt.Sprintf("%s is no leaf, and only leaves are locked under another lock: unlock %s first, or declare %s //lockblock:leaf if nothing is locked under it",
		inner.Name, outer.Name, inner.Name)
}
