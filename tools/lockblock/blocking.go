package lockblock

import (
	"go/token"
	"go/types"
	"strings"

	"golang.org/x/tools/go/ssa"
)

// waitOf returns what an instruction itself waits for, or nothing. Calls are handled elsewhere.
func waitOf(instr ssa.Instruction) string {
	switch instr := instr.(type) {
	case *ssa.Send:
		return "sends on a channel"
	case *ssa.UnOp:
		if instr.Op == token.ARROW {
			return "receives from a channel"
		}
	case *ssa.Select:
		if instr.Blocking {
			return "waits in a select without a default"
		}
	}
	return ""
}

// knownWaitOf reports whether a call is of a function in the table, and what it waits for. Reading from and writing to memory is
// no wait.
func (p *program) knownWaitOf(call *ssa.CallCommon) (why string, isKnown bool) {
	fn := namedCallee(call)
	if fn == nil {
		return "", false
	}
	why = known(fn)
	if why == "" || why == stream && p.inMemory(call) {
		return "", why != ""
	}
	return why + " (" + nameOf(fn, p.pass.Pkg) + ")", true
}

// namedCallee is the declared function or method that a call names, if it names one.
func namedCallee(call *ssa.CallCommon) *types.Func {
	if call.IsInvoke() {
		return call.Method
	}
	if callee := call.StaticCallee(); callee != nil {
		if fn, ok := callee.Object().(*types.Func); ok {
			return fn.Origin()
		}
	}
	return nil
}

// inMemory reports whether every stream that a call touches is seen to be in memory.
func (p *program) inMemory(call *ssa.CallCommon) bool {
	values := call.Args
	if call.IsInvoke() {
		values = append([]ssa.Value{call.Value}, values...)
	}
	found := false
	for _, v := range values {
		if !isStream(v.Type()) {
			continue
		}
		if !p.valueInMemory(v, traceDepth) {
			return false
		}
		found = true
	}
	return found
}

// isStream reports whether a type reads or writes: an interface or a type of the standard library with such a method.
func isStream(t types.Type) bool {
	for _, name := range []string{"Read", "Write", "Encode", "Decode", "Scan", "ReadByte", "ReadAt"} {
		if obj, _, _ := types.LookupFieldOrMethod(t, true, nil, name); obj != nil {
			if _, ok := obj.(*types.Func); ok {
				return true
			}
		}
	}
	return false
}

// valueInMemory reports whether a stream ends in memory as far as the function itself shows.
func (p *program) valueInMemory(v ssa.Value, depth int) bool {
	if depth <= 0 {
		return false
	}
	if named, ok := types.Unalias(pointee(v.Type())).(*types.Named); ok && memoryTypes[typeName(named)] {
		return true
	}
	switch v := v.(type) {
	case *ssa.MakeInterface:
		return p.valueInMemory(v.X, depth-1) || p.neverWaits(v.X.Type())
	case *ssa.ChangeInterface:
		return p.valueInMemory(v.X, depth-1)
	case *ssa.Extract:
		return p.valueInMemory(v.Tuple, depth-1)
	case *ssa.UnOp:
		global, ok := v.X.(*ssa.Global)
		return ok && global.String() == "io.Discard"
	case *ssa.Phi:
		for _, edge := range v.Edges {
			if !p.valueInMemory(edge, depth/3) {
				return false
			}
		}
		return true
	case *ssa.Call:
		// A wrapper such as bufio.NewWriter or json.NewEncoder is in memory if what it wraps is.
		fn := namedCallee(&v.Call)
		return fn != nil && fn.Pkg() != nil && p.config.isStandard(fn.Pkg().Path()) && strings.HasPrefix(fn.Name(), "New") &&
			!v.Call.IsInvoke() && p.inMemory(&v.Call)
	}
	return false
}

// memoryTypes read from and write to memory only.
var memoryTypes = map[string]bool{
	"bytes.Buffer": true, "bytes.Reader": true, "strings.Builder": true, "strings.Reader": true,
	"hash.Hash": true, "hash.Hash32": true, "hash.Hash64": true, "hash.XOF": true,
	"net/http/httptest.ResponseRecorder": true,
}

func typeName(named *types.Named) string {
	if named.Obj().Pkg() == nil {
		return named.Obj().Name() // error
	}
	return named.Obj().Pkg().Path() + "." + named.Obj().Name()
}

// neverWaits reports whether a type outside the standard library has a Read or Write whose summary does not wait, such as a hasher.
func (p *program) neverWaits(t types.Type) bool {
	named, ok := types.Unalias(pointee(t)).(*types.Named)
	if !ok || named.Obj().Pkg() == nil || p.config.isStandard(named.Obj().Pkg().Path()) {
		return false
	}
	for _, name := range []string{"Read", "Write"} {
		obj, _, _ := types.LookupFieldOrMethod(t, true, named.Obj().Pkg(), name)
		if fn, ok := obj.(*types.Func); ok && p.waits(fn) {
			return false
		}
	}
	return true
}

// waits reports whether a declared function is known to wait.
func (p *program) waits(fn *types.Func) bool {
	if known(fn) != "" {
		return true
	}
	for _, e := range p.summaryOf(fn).Effects {
		if e.Kind == blocks {
			return true
		}
	}
	return false
}

// takesContext reports whether the first parameter of a function is a context. In this module, such a function may wait.
func takesContext(sig *types.Signature) bool {
	if sig.Params().Len() == 0 {
		return false
	}
	named, ok := types.Unalias(sig.Params().At(0).Type()).(*types.Named)
	return ok && typeName(named) == "context.Context"
}
