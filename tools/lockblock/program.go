package lockblock

import (
	"go/ast"
	"go/token"
	"go/types"
	"strings"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/ssa"
)

// program is one package in SSA form, with what is known about its functions, its locks and the function values that it stores.
type program struct {
	// Set at construction.
	config    *config
	pass      *analysis.Pass
	ssa       *ssa.Program
	functions []*ssa.Function              // in source order, literals after the function that holds them
	stored    map[types.Object][]ssa.Value // what is assigned to fields and package variables of function type
	reachable []*types.Package             // this package and those of the module that it imports, however far

	// Filled by readLeaves, and from the facts of other packages when one of their locks is first met.
	leaves map[*types.Var]bool

	// Filled by summarise, then only read.
	summaries map[*ssa.Function]*summary

	// Caches of the facts of other packages.
	imported        map[types.Object]*summary
	implementations map[interfaceMethod][]*types.Func
}

func newProgram(h *config, pass *analysis.Pass) *program {
	p := &program{
		config:          h,
		pass:            pass,
		ssa:             ssa.NewProgram(pass.Fset, 0),
		stored:          map[types.Object][]ssa.Value{},
		leaves:          map[*types.Var]bool{},
		summaries:       map[*ssa.Function]*summary{},
		imported:        map[types.Object]*summary{},
		implementations: map[interfaceMethod][]*types.Func{},
	}
	p.ssa.SetNoReturn(neverReturns)
	for _, imported := range pass.Pkg.Imports() {
		p.ssa.CreatePackage(imported, nil, nil, true)
	}
	built := p.ssa.CreatePackage(pass.Pkg, pass.Files, pass.TypesInfo, false)
	built.Build()
	p.collect(built)
	p.collectReachable(pass.Pkg, map[*types.Package]bool{})
	return p
}

// collect lists the functions with a body in source: declared ones, then the literals of package variables.
func (p *program) collect(built *ssa.Package) {
	for _, file := range p.pass.Files {
		for _, decl := range file.Decls {
			if decl, ok := decl.(*ast.FuncDecl); ok {
				p.add(p.ssa.FuncValue(p.pass.TypesInfo.Defs[decl.Name].(*types.Func)))
			}
		}
	}
	p.add(built.Func("init"))
}

func (p *program) add(fn *ssa.Function) {
	p.functions = append(p.functions, fn)
	p.summaries[fn] = &summary{}
	for _, block := range fn.Blocks {
		for _, instr := range block.Instrs {
			if store, ok := instr.(*ssa.Store); ok {
				p.noteStore(store)
			}
		}
	}
	for _, literal := range fn.AnonFuncs {
		p.add(literal)
	}
}

// noteStore records a function value that is assigned to a field or a package variable, so that a call through it can be
// followed. What a test puts there is no fault of the code.
func (p *program) noteStore(store *ssa.Store) {
	if _, ok := store.Val.Type().Underlying().(*types.Signature); !ok || p.inTestFile(store.Pos()) {
		return
	}
	if holder := holderOf(store.Addr); holder != nil {
		p.stored[holder] = append(p.stored[holder], store.Val)
	}
}

// holderOf is the field or package variable behind an address, or nil.
func holderOf(address ssa.Value) types.Object {
	switch address := address.(type) {
	case *ssa.FieldAddr:
		return fieldOf(address.X.Type(), address.Field)
	case *ssa.Global:
		return address.Object()
	}
	return nil
}

// fieldOf is the field of the struct, or of the struct that a pointer points to, in its generic form.
func fieldOf(t types.Type, index int) *types.Var {
	return pointee(t).Underlying().(*types.Struct).Field(index).Origin()
}

// pointee is what a pointer points to; any other type is itself.
func pointee(t types.Type) types.Type {
	if pointer, ok := t.Underlying().(*types.Pointer); ok {
		return pointer.Elem()
	}
	return t
}

// collectReachable lists the packages of the module that this one can know about.
func (p *program) collectReachable(pkg *types.Package, seen map[*types.Package]bool) {
	if seen[pkg] || !p.config.inModule(pkg.Path()) {
		return
	}
	seen[pkg] = true
	p.reachable = append(p.reachable, pkg)
	for _, imported := range pkg.Imports() {
		p.collectReachable(imported, seen)
	}
}

// inTestFile reports whether a position is in a test file.
func (p *program) inTestFile(pos token.Pos) bool {
	return strings.HasSuffix(p.pass.Fset.PositionFor(pos, false).Filename, "_test.go")
}

// neverReturns names the functions of the standard library after which nothing runs, so that no path leads past them.
func neverReturns(fn *types.Func) bool {
	switch fn.FullName() {
	case "os.Exit", "runtime.Goexit", "log.Fatal", "log.Fatalf", "log.Fatalln", "log.Panic", "log.Panicf", "log.Panicln":
		return true
	}
	return fn.Pkg() != nil && fn.Pkg().Path() == "testing" &&
		(strings.HasPrefix(fn.Name(), "Fatal") || strings.HasPrefix(fn.Name(), "Skip") || fn.Name() == "FailNow")
}

// nameOf is how a message names a function: without its package when it is read in that package.
func nameOf(fn *types.Func, in *types.Package) string {
	qualify := func(pkg *types.Package) string {
		if pkg == in {
			return ""
		}
		return pkg.Name() + "."
	}
	if fn.Pkg() == nil {
		return fn.Name() // (error).Error
	}
	recv := fn.Signature().Recv()
	if recv == nil {
		return qualify(fn.Pkg()) + fn.Name()
	}
	named, ok := types.Unalias(pointee(recv.Type())).(*types.Named)
	if !ok {
		return fn.Name()
	}
	owner := qualify(fn.Pkg()) + named.Obj().Name()
	if _, pointer := types.Unalias(recv.Type()).(*types.Pointer); pointer {
		owner = "*" + owner
	}
	return "(" + owner + ")." + fn.Name()
}
