package lockblock

import (
	"fmt"
	"go/token"
	"go/types"
	"slices"

	"golang.org/x/tools/go/ssa"
)

// lock is one mutex as the rules see it: a field or a variable, never an instance. It is part of facts.
type lock struct {
	Key   string // unique over all packages
	Name  string // what a message shows
	Leaf  bool   // declared with //lockblock:leaf
	Param int    // when the lock is a parameter of the summarised function: one more than its index
}

func (l lock) same(other lock) bool { return l.Key == other.Key }

// keys lists the locks by key, sorted.
func keys(locks []lock) []string {
	list := make([]string, 0, len(locks))
	for _, l := range locks {
		list = append(list, l.Key)
	}
	slices.Sort(list)
	return list
}

// traceDepth bounds how far a value is traced back to its origin; loops in the value graph end there. Where paths meet, a third
// is left for each, so that the number of paths stays small.
const traceDepth = 24

// lockOf traces a value that is used as a mutex back to the field or variable that it comes from.
func (p *program) lockOf(v ssa.Value) lock { return p.traceLock(v, traceDepth) }

func (p *program) traceLock(v ssa.Value, depth int) lock {
	if depth <= 0 {
		return p.anonymousLock(v)
	}
	follow := func(next ssa.Value) lock { return p.traceLock(next, depth-1) }
	switch v := v.(type) {
	case *ssa.FieldAddr:
		return p.fieldLock(v.X, v.Field, depth-1)
	case *ssa.Field:
		return p.fieldLock(v.X, v.Field, depth-1)
	case *ssa.Global:
		return p.variableLock(v.Object().(*types.Var))
	case *ssa.Alloc:
		return p.localLock(v, depth-1)
	case *ssa.Parameter:
		return p.parameterLock(v)
	case *ssa.FreeVar:
		if bound := binding(v); bound != nil {
			// The parameter of an outer function is not a parameter of this one.
			l := follow(bound)
			l.Param = 0
			return l
		}
	case *ssa.UnOp:
		return follow(v.X)
	case *ssa.IndexAddr:
		return follow(v.X)
	case *ssa.Index:
		return follow(v.X)
	case *ssa.Lookup:
		return follow(v.X)
	case *ssa.Slice:
		return follow(v.X)
	case *ssa.Extract:
		return follow(v.Tuple)
	case *ssa.Next:
		return follow(v.Iter)
	case *ssa.Range:
		return follow(v.X)
	case *ssa.MakeInterface:
		return follow(v.X)
	case *ssa.ChangeInterface:
		return follow(v.X)
	case *ssa.ChangeType:
		return follow(v.X)
	case *ssa.TypeAssert:
		return follow(v.X)
	case *ssa.Phi:
		return p.phiLock(v, depth-1)
	case *ssa.Call:
		if callee := v.Call.StaticCallee(); callee != nil && callee.Object() != nil {
			fn := callee.Object().(*types.Func).Origin()
			return lock{Key: "result of " + fn.FullName(), Name: "the lock returned by " + nameOf(fn, p.pass.Pkg)}
		}
	}
	return p.anonymousLock(v)
}

// fieldLock names a lock by the type that declares its field.
func (p *program) fieldLock(holder ssa.Value, index, depth int) lock {
	t := types.Unalias(pointee(holder.Type()))
	field := fieldOf(t, index)
	named, ok := t.(*types.Named)
	if !ok {
		outer := p.traceLock(holder, depth)
		return lock{Key: outer.Key + "." + field.Name(), Name: outer.Name + "." + field.Name(), Leaf: p.isLeaf(field)}
	}
	owner := named.Origin().Obj()
	key := owner.Name() + "." + field.Name()
	if owner.Parent() != owner.Pkg().Scope() {
		key = fmt.Sprintf("%s@%d", key, owner.Pos())
	}
	return lock{Key: owner.Pkg().Path() + "." + key, Name: owner.Name() + "." + field.Name(), Leaf: p.isLeaf(field)}
}

func (p *program) variableLock(v *types.Var) lock {
	key := v.Pkg().Path() + "." + v.Name()
	if v.Parent() != v.Pkg().Scope() {
		key = fmt.Sprintf("%s@%d", key, v.Pos())
	}
	return lock{Key: key, Name: v.Name(), Leaf: p.isLeaf(v)}
}

// localLock names a lock that lives in a local variable. A variable that only holds a pointer stands for what is stored in it.
func (p *program) localLock(alloc *ssa.Alloc, depth int) lock {
	if _, pointer := pointee(alloc.Type()).Underlying().(*types.Pointer); pointer {
		values := storedIn(alloc)
		if len(values) == 1 {
			return p.traceLock(values[0], depth)
		}
	}
	if v := p.variableAt(alloc.Pos()); v != nil {
		return p.variableLock(v)
	}
	return p.anonymousLock(alloc)
}

// variableAt finds the variable that is declared at a position.
func (p *program) variableAt(pos token.Pos) *types.Var {
	scope := p.pass.Pkg.Scope().Innermost(pos)
	for ; scope != nil; scope = scope.Parent() {
		for _, name := range scope.Names() {
			if v, ok := scope.Lookup(name).(*types.Var); ok && v.Pos() == pos {
				return v
			}
		}
	}
	return nil
}

func (p *program) parameterLock(param *ssa.Parameter) lock {
	fn := param.Parent()
	return lock{
		Key:   fmt.Sprintf("%s.%s@%d", fn, param.Name(), param.Pos()),
		Name:  param.Name(),
		Param: 1 + slices.Index(fn.Params, param),
	}
}

// phiLock is the lock when all paths lead to the same one; otherwise it is one of its own.
func (p *program) phiLock(phi *ssa.Phi, depth int) lock {
	var found []lock
	for _, edge := range phi.Edges {
		l := p.traceLock(edge, depth/3)
		if !slices.ContainsFunc(found, l.same) {
			found = append(found, l)
		}
	}
	if len(found) == 1 {
		return found[0]
	}
	return p.anonymousLock(phi)
}

// anonymousLock is a lock that could not be traced to a declaration.
func (p *program) anonymousLock(v ssa.Value) lock {
	name := "a mutex"
	if v.Pos().IsValid() {
		name = fmt.Sprintf("the mutex of line %d", p.pass.Fset.PositionFor(v.Pos(), false).Line)
	}
	return lock{Key: fmt.Sprintf("%s@%d:%s", v.Parent(), v.Pos(), v.Name()), Name: name}
}

// binding is the value of the enclosing function that a free variable of a literal stands for. A literal that is never reached has none.
func binding(free *ssa.FreeVar) ssa.Value {
	fn := free.Parent()
	for _, user := range *fn.Referrers() {
		if closure, ok := user.(*ssa.MakeClosure); ok && closure.Fn == fn {
			return closure.Bindings[slices.Index(fn.FreeVars, free)]
		}
	}
	return nil
}

// lockAction is what a call does to a mutex.
type lockAction int

const (
	noAction lockAction = iota
	acquire
	tryAcquire
	release
)

// lockCall recognises a call of a method of a mutex and finds the lock that it acts on.
func (p *program) lockCall(call *ssa.CallCommon) (lockAction, lock) {
	fn, recv := methodOf(call)
	if fn == nil {
		return noAction, lock{}
	}
	action := actionOf(fn)
	if action == noAction {
		return noAction, lock{}
	}
	return action, p.lockOf(recv)
}

// actionOf returns what a method does if it belongs to a mutex, or to
// sync.Locker.
func actionOf(fn *types.Func) lockAction {
	if !isLockMethod(fn) {
		return noAction
	}
	switch fn.Name() {
	case "Lock", "RLock":
		return acquire
	case "TryLock", "TryRLock":
		return tryAcquire
	case "Unlock", "RUnlock":
		return release
	}
	return noAction
}

// methodOf finds the method that a call names and the receiver it is called on. A method value that is called carries its receiver.
func methodOf(call *ssa.CallCommon) (*types.Func, ssa.Value) {
	if call.IsInvoke() {
		return call.Method, call.Value
	}
	callee := call.StaticCallee()
	if callee == nil || callee.Object() == nil || callee.Object().(*types.Func).Signature().Recv() == nil {
		return nil, nil
	}
	fn := callee.Object().(*types.Func).Origin()
	if closure, ok := call.Value.(*ssa.MakeClosure); ok && len(closure.Bindings) == 1 {
		return fn, closure.Bindings[0]
	}
	return fn, call.Args[0]
}

// isLockMethod reports whether a method belongs to a type that this analysis follows as a lock.
func isLockMethod(fn *types.Func) bool {
	recv := fn.Signature().Recv()
	if recv == nil || fn.Pkg() == nil {
		return false
	}
	named, ok := types.Unalias(pointee(recv.Type())).(*types.Named)
	if !ok || fn.Pkg().Path() != "sync" {
		return false
	}
	name := named.Obj().Name()
	return name == "Mutex" || name == "RWMutex" || name == "Locker"
}
