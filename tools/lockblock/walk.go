package lockblock

import (
	"cmp"
	"go/token"
	"go/types"
	"slices"

	"golang.org/x/tools/go/ssa"
)

// walker follows one function through its blocks.
type walker struct {
	*program
	summary  *summary
	returns  int       // how many returns were seen
	reporter *reporter // nil while summarising: then nothing is reported
}

// walk reads a function to its fixed point and returns its summary. With a reporter it also reports what is wrong.
func (p *program) walk(fn *ssa.Function, j *reporter) *summary {
	entry := p.entryStates(fn)
	w := &walker{program: p, summary: &summary{}, reporter: j}
	for _, block := range fn.Blocks {
		if at := entry[block]; at != nil {
			w.block(block, at.clone())
		}
	}
	return w.summary
}

// entryStates finds the state at the start of every block that can be reached.
func (p *program) entryStates(fn *ssa.Function) map[*ssa.BasicBlock]*state {
	entry := map[*ssa.BasicBlock]*state{}
	if len(fn.Blocks) == 0 {
		return entry
	}
	entry[fn.Blocks[0]] = newState()
	pending := []*ssa.BasicBlock{fn.Blocks[0]}
	for len(pending) > 0 {
		block := pending[0]
		pending = pending[1:]
		w := &walker{program: p, summary: &summary{}}
		end := entry[block].clone()
		w.block(block, end)
		for i, next := range block.Succs {
			way := p.branch(block, i, end)
			if entry[next] == nil {
				entry[next] = way
			} else if !entry[next].join(way) {
				continue
			}
			pending = append(pending, next)
		}
	}
	return entry
}

// branch is the state on one way out of a block. After a TryLock the lock is held where it returned true.
func (p *program) branch(block *ssa.BasicBlock, successor int, end *state) *state {
	way := end.clone()
	test, ok := block.Instrs[len(block.Instrs)-1].(*ssa.If)
	if !ok {
		return way
	}
	condition, yes := test.Cond, successor == 0
	for {
		not, ok := condition.(*ssa.UnOp)
		if !ok || not.Op != token.NOT {
			break
		}
		condition, yes = not.X, !yes
	}
	if call, ok := condition.(*ssa.Call); ok && yes {
		if action, l := p.lockCall(&call.Call); action == tryAcquire {
			way.take(l, call.Pos())
		}
	}
	return way
}

// block runs the instructions of a block on a state.
func (w *walker) block(block *ssa.BasicBlock, s *state) {
	for _, instr := range block.Instrs {
		if why := waitOf(instr); why != "" {
			w.addEffect(s, effect{Kind: blocks, Why: why, pos: instr.Pos()})
		}
		switch instr := instr.(type) {
		case *ssa.Call:
			w.call(s, &instr.Call, instr.Pos())
		case *ssa.Defer:
			s.deferred[instr] = true
		case *ssa.RunDefers:
			w.runDeferred(s)
		case *ssa.Return:
			w.noteReturn(s, instr)
		}
	}
}

// runDeferred runs the deferred calls, the last one first.
func (w *walker) runDeferred(s *state) {
	var list []*ssa.Defer
	for d := range s.deferred {
		list = append(list, d)
	}
	slices.SortFunc(list, func(a, b *ssa.Defer) int { return cmp.Compare(b.Pos(), a.Pos()) })
	for _, d := range list {
		w.call(s, &d.Call, d.Pos())
	}
	clear(s.deferred)
}

// noteReturn records what a return leaves to the caller: only what every return leaves can be relied on.
func (w *walker) noteReturn(s *state, ret *ssa.Return) {
	held, released := s.heldLocks(), s.releasedLocks()
	acquires, releases := subtract(held, released), subtract(released, held)
	if w.returns > 0 {
		acquires, releases = intersect(w.summary.Acquires, acquires), intersect(w.summary.Releases, releases)
	}
	w.returns++
	w.summary.Acquires, w.summary.Releases = acquires, releases
	if len(ret.Results) == 1 {
		w.noteReturnedFunc(ret.Results[0])
	}
}

// noteReturnedFunc records the function that a return returns.
func (w *walker) noteReturnedFunc(v ssa.Value) {
	if _, ok := v.Type().Underlying().(*types.Signature); !ok {
		return
	}
	for _, t := range w.valueTargets(v, traceDepth) {
		if t.summary.empty() {
			continue
		}
		if w.summary.Result == nil {
			w.summary.Result = &summary{}
		}
		w.summary.Result.merge(t.bindArgs(w.program))
	}
}
