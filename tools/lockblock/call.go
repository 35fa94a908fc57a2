package lockblock

import (
	"go/token"
	"go/types"
	"slices"

	"golang.org/x/tools/go/ssa"
)

// call runs a call on a state.
func (w *walker) call(s *state, call *ssa.CallCommon, pos token.Pos) {
	if action, l := w.lockCall(call); action != noAction {
		w.lockAction(s, action, l, pos)
		return
	}
	if why, isKnown := w.knownWaitOf(call); isKnown {
		if why != "" {
			w.addEffect(s, effect{Kind: blocks, Why: why, pos: pos})
		}
		return
	}
	targets := w.targetsOf(call)
	for _, t := range targets {
		w.applyTarget(s, t, pos)
	}
	if len(targets) == 1 && targets[0].summary != nil {
		w.applyLocks(s, targets[0], pos)
	}
	if name := w.unknownCallee(call, targets); name != "" {
		w.addEffect(s, effect{Kind: blocks, Why: mayWait, Via: []string{name}, pos: pos})
	}
	w.callBacks(s, call, pos)
}

func (w *walker) lockAction(s *state, action lockAction, l lock, pos token.Pos) {
	if !w.config.inModule(w.pass.Pkg.Path()) {
		return // the locks of other modules count as leaves
	}
	switch action {
	case acquire:
		w.addEffect(s, effect{Kind: locks, Lock: l, pos: pos})
		s.take(l, pos)
	case tryAcquire: // held on one branch only
		w.addEffect(s, effect{Kind: locks, Lock: l, pos: pos})
	case release:
		s.drop(l)
	}
}

// applyLocks applies what a function leaves held or released.
func (w *walker) applyLocks(s *state, t target, pos token.Pos) {
	for _, l := range t.summary.Releases {
		s.drop(w.substitute(l, t))
	}
	for _, l := range t.summary.Acquires {
		s.take(w.substitute(l, t), pos)
	}
}

// substitute replaces a parameter of the called function by the lock that the caller passed.
func (p *program) substitute(l lock, t target) lock {
	if l.Param > 0 && l.Param <= len(t.args) {
		return p.lockOf(t.args[l.Param-1])
	}
	l.Param = 0
	return l
}

func (p *program) substituteAll(list []lock, t target) []lock {
	var out []lock
	for _, l := range list {
		out = append(out, p.substitute(l, t))
	}
	return out
}

// bindArgs is the summary of a target with its known arguments put in, for a function value that is passed on.
func (t target) bindArgs(p *program) *summary {
	if t.args == nil {
		return t.summary
	}
	out := &summary{
		Acquires: p.substituteAll(t.summary.Acquires, t),
		Releases: p.substituteAll(t.summary.Releases, t),
	}
	for _, e := range t.summary.Effects {
		out.add(t.atCaller(p, e))
	}
	return out
}

// atCaller is an effect of a target as its caller sees it. What a literal does is reported where it does it.
func (t target) atCaller(p *program, e effect) effect {
	e.Lock = p.substitute(e.Lock, t)
	e.Under = p.substituteAll(e.Under, t)
	e.Without = p.substituteAll(e.Without, t)
	if t.name != "" {
		e.Via = append([]string{t.name}, e.Via...)
		e.pos = token.NoPos
	}
	return e
}

// applyTarget adds the effects of one function that a call may reach.
func (w *walker) applyTarget(s *state, t target, pos token.Pos) {
	if t.param > 0 {
		w.addEffect(s, effect{Kind: calls, Param: t.param, pos: pos})
		return
	}
	for _, e := range t.summary.Effects {
		seen := t.atCaller(w.program, e)
		if !seen.pos.IsValid() {
			seen.pos = pos
		}
		if e.Kind == calls {
			w.followCallback(s, t, seen)
		} else {
			w.addEffect(s, seen)
		}
	}
}

// followCallback follows a call that a function makes of its argument into the argument that it was given.
func (w *walker) followCallback(s *state, t target, called effect) {
	if called.Param > len(t.args) {
		return
	}
	arg := t.args[called.Param-1]
	inner := w.valueTargets(arg, traceDepth)
	for _, f := range inner {
		if f.param > 0 {
			w.addEffect(s, effect{Kind: calls, Param: f.param, Under: called.Under, Without: called.Without, pos: called.pos})
			continue
		}
		for _, e := range f.summary.Effects {
			seen := f.atCaller(w.program, e)
			seen.Under = union(called.Under, seen.Under)
			seen.Without = union(called.Without, seen.Without)
			if !seen.pos.IsValid() { // not a literal, so what is seen is the call that leads there
				seen.pos = called.pos
				seen.Via = append(slices.Clone(called.Via), seen.Via...)
			}
			if e.Kind != calls {
				w.addEffect(s, seen)
			}
		}
	}
	if sig, ok := arg.Type().Underlying().(*types.Signature); ok && len(inner) == 0 && w.mayWaitByRule(sig) {
		w.addEffect(s, effect{
			Kind: blocks, Why: mayWait, Via: append(slices.Clone(called.Via), functionValue),
			Under: called.Under, Without: called.Without, pos: called.pos,
		})
	}
}

const (
	mayWait       = "takes a context, so it may wait"
	functionValue = "a function value"
)

// mayWaitByRule reports whether, by the rule of this module, a function that cannot be seen may wait. It is not applied to other
// modules.
func (w *walker) mayWaitByRule(sig *types.Signature) bool {
	return w.config.inModule(w.pass.Pkg.Path()) && takesContext(sig)
}

// unknownCallee names what a call reaches if it cannot be seen and may wait: an interface method of this module, or a function value.
func (w *walker) unknownCallee(call *ssa.CallCommon, targets []target) string {
	switch {
	case !w.mayWaitByRule(call.Signature()):
		return ""
	case call.IsInvoke() && w.config.inModule(call.Method.Pkg().Path()):
		return nameOf(call.Method, w.pass.Pkg)
	case !call.IsInvoke() && call.StaticCallee() == nil && len(targets) == 0:
		return functionValue
	}
	return ""
}

// callBacks runs the arguments that are known to be called: those of some functions of the standard library, and the body of a
// loop over an iterator, which is an argument that the compiler makes.
func (w *walker) callBacks(s *state, call *ssa.CallCommon, pos token.Pos) {
	fn := namedCallee(call)
	all := fn != nil && callsBack(fn)
	for _, arg := range call.Args {
		if !all && !isLoopBody(arg) {
			continue
		}
		if _, ok := arg.Type().Underlying().(*types.Signature); ok {
			for _, t := range w.valueTargets(arg, traceDepth) {
				w.applyTarget(s, t, pos)
			}
		}
	}
}

func isLoopBody(v ssa.Value) bool {
	closure, ok := v.(*ssa.MakeClosure)
	return ok && closure.Fn.(*ssa.Function).Synthetic == "range-over-func yield"
}

// addEffect adds an effect to the summary, as the caller will see it, and reports what is wrong with it here.
func (w *walker) addEffect(s *state, e effect) {
	if w.reporter != nil {
		w.checkEffect(s, e)
	}
	held := s.heldLocks()
	if e.Kind == calls {
		e.Under = union(subtract(held, e.Without), e.Under)
	} else {
		e.Under = nil // it was judged here
	}
	e.Without = union(s.releasedLocks(), subtract(e.Without, held))
	w.summary.add(e)
}
