package lockblock

import (
	"go/types"
	"slices"
	"strings"

	"golang.org/x/tools/go/ssa"
)

// target is one function that a call may reach.
type target struct {
	name    string // how a message names it; empty for a literal
	summary *summary
	args    []ssa.Value // the arguments by parameter, receiver first; nil when they are not known
	param   int         // set instead of a summary when it is a parameter of the calling function: one more than its index
}

// targetsOf lists the functions that a call may reach, as far as they are known.
func (p *program) targetsOf(call *ssa.CallCommon) []target { return p.targetsWithin(call, traceDepth) }

func (p *program) targetsWithin(call *ssa.CallCommon, depth int) []target {
	if call.IsInvoke() {
		return p.invoked(call)
	}
	list := p.valueTargets(call.Value, depth)
	for i := range list {
		// A bound method already has its receiver.
		list[i].args = append(slices.Clone(list[i].args), call.Args...)
	}
	return list
}

// invoked lists the methods behind an interface that this module declares: of the types that this package can see.
func (p *program) invoked(call *ssa.CallCommon) []target {
	if call.Method.Pkg() == nil || !p.config.inModule(call.Method.Pkg().Path()) {
		return nil
	}
	iface := call.Value.Type().Underlying().(*types.Interface)
	var list []target
	for _, fn := range p.implementing(call.Method, iface) {
		list = append(list, target{
			name:    nameOf(fn, p.pass.Pkg),
			summary: p.summaryOf(fn),
			args:    append([]ssa.Value{call.Value}, call.Args...),
		})
	}
	return list
}

// valueTargets lists the functions that a value may be.
func (p *program) valueTargets(v ssa.Value, depth int) []target {
	if depth <= 0 {
		return nil
	}
	switch v := v.(type) {
	case *ssa.Function:
		return []target{p.functionTarget(v, nil)}
	case *ssa.MakeClosure:
		return []target{p.functionTarget(v.Fn.(*ssa.Function), v.Bindings)}
	case *ssa.Parameter:
		return []target{{param: 1 + slices.Index(v.Parent().Params, v)}}
	case *ssa.ChangeType:
		return p.valueTargets(v.X, depth-1)
	case *ssa.Phi:
		return p.targetsOfAny(v.Edges, depth/3)
	case *ssa.UnOp:
		return p.loaded(v.X, depth-1)
	case *ssa.Call:
		return p.returned(v, depth-1)
	}
	return nil
}

func (p *program) targetsOfAny(values []ssa.Value, depth int) []target {
	var list []target
	for _, v := range values {
		list = append(list, p.valueTargets(v, depth)...)
	}
	return list
}

// functionTarget names a function, a literal, or the method behind a method value.
func (p *program) functionTarget(fn *ssa.Function, bindings []ssa.Value) target {
	fn = generic(fn)
	if s := p.summaries[fn]; s != nil && fn.Parent() != nil {
		return target{summary: s}
	}
	obj, ok := fn.Object().(*types.Func)
	if !ok {
		return target{summary: &summary{}}
	}
	obj = obj.Origin()
	t := target{name: nameOf(obj, p.pass.Pkg), summary: p.summaryOf(obj)}
	if strings.HasPrefix(fn.Synthetic, "bound method wrapper") {
		t.args = bindings
	}
	return t
}

// generic is the function that an instance was made from; any other function is itself.
func generic(fn *ssa.Function) *ssa.Function {
	if origin := fn.Origin(); origin != nil {
		return origin
	}
	return fn
}

// loaded lists the functions that were stored at an address: in a field, a package variable or a captured variable.
func (p *program) loaded(address ssa.Value, depth int) []target {
	if free, ok := address.(*ssa.FreeVar); ok {
		if bound := binding(free); bound != nil {
			return slices.DeleteFunc(p.loaded(bound, depth-1), func(t target) bool { return t.param > 0 })
		}
	}
	if alloc, ok := address.(*ssa.Alloc); ok {
		return p.targetsOfAny(storedIn(alloc), depth)
	}
	holder := holderOf(address)
	if holder == nil {
		return nil
	}
	if holder.Pkg() != p.pass.Pkg {
		return []target{{name: "the function in " + holder.Name(), summary: p.summaryOf(holder)}}
	}
	var list []target
	for _, t := range p.targetsOfAny(p.stored[holder], depth/3) {
		if t.param > 0 {
			continue // a parameter of the function that stored it
		}
		if t.name == "" {
			t.name = "the function in " + holder.Name()
		}
		list = append(list, t)
	}
	return list
}

// storedIn lists the values that are assigned to a local variable.
func storedIn(alloc *ssa.Alloc) []ssa.Value {
	var values []ssa.Value
	for _, user := range *alloc.Referrers() {
		if store, ok := user.(*ssa.Store); ok && store.Addr == alloc {
			values = append(values, store.Val)
		}
	}
	return values
}

// returned lists the functions that a call returns.
func (p *program) returned(call *ssa.Call, depth int) []target {
	var list []target
	for _, t := range p.targetsWithin(&call.Call, depth) {
		if t.summary != nil && t.summary.Result != nil {
			list = append(list, target{name: "the function returned by " + t.name, summary: t.summary.Result})
		}
	}
	return list
}

// summaryOf is what is known about a function, or about a field or variable that holds functions. It is never nil.
func (p *program) summaryOf(obj types.Object) *summary {
	if fn, ok := obj.(*types.Func); ok && fn.Pkg() == p.pass.Pkg {
		if s := p.summaries[p.ssa.FuncValue(fn)]; s != nil {
			return s
		}
	}
	s, seen := p.imported[obj]
	if !seen {
		s = p.externalSummary(obj)
		p.imported[obj] = s
	}
	return s
}

// externalSummary is the summary of something outside this package: of a mutex, of the table, or from the facts.
func (p *program) externalSummary(obj types.Object) *summary {
	if fn, ok := obj.(*types.Func); ok {
		receiver := lock{Key: "the receiver", Name: "a mutex", Param: 1}
		switch why := known(fn); {
		case why != "":
			return &summary{Effects: []effect{{Kind: blocks, Why: why}}}
		case actionOf(fn) == acquire:
			return &summary{Effects: []effect{{Kind: locks, Lock: receiver}}, Acquires: []lock{receiver}}
		case actionOf(fn) == release:
			return &summary{Releases: []lock{receiver}}
		}
	}
	s := &summary{}
	if obj.Pkg() != nil && obj.Pkg() != p.pass.Pkg && !p.config.isStandard(obj.Pkg().Path()) {
		p.pass.ImportObjectFact(obj, s)
	}
	return s
}

// interfaceMethod names a method in one interface: another may embed it and ask for more.
type interfaceMethod struct {
	method *types.Func
	iface  *types.Interface
}

// implementing lists the methods that a call through an interface may reach. Types of test files do not count: a fake that blocks
// on purpose is no fault of the code.
func (p *program) implementing(method *types.Func, iface *types.Interface) []*types.Func {
	key := interfaceMethod{method, iface}
	if list, seen := p.implementations[key]; seen {
		return list
	}
	var list []*types.Func
	for _, pkg := range p.reachable {
		for _, name := range pkg.Scope().Names() {
			declared, ok := pkg.Scope().Lookup(name).(*types.TypeName)
			if !ok || declared.IsAlias() || types.IsInterface(declared.Type()) || p.inTestFile(declared.Pos()) {
				continue
			}
			if fn := implementation(declared, method, iface); fn != nil && !slices.Contains(list, fn) {
				list = append(list, fn)
			}
		}
	}
	p.implementations[key] = list
	return list
}

// implementation finds the method of a type that stands behind the method of an interface, or nil. A generic type counts if it has
// all the names, because its instances are not known here.
func implementation(declared *types.TypeName, method *types.Func, iface *types.Interface) *types.Func {
	named := declared.Type().(*types.Named)
	pointer := types.NewPointer(named)
	if named.TypeParams().Len() == 0 && !types.Implements(pointer, iface) {
		return nil
	}
	var found *types.Func
	for i := range iface.NumMethods() {
		wanted := iface.Method(i)
		obj, _, _ := types.LookupFieldOrMethod(pointer, true, wanted.Pkg(), wanted.Name())
		fn, ok := obj.(*types.Func)
		if !ok {
			return nil
		}
		if wanted.Name() == method.Name() {
			found = fn.Origin()
		}
	}
	return found
}
