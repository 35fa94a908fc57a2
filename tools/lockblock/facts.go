package lockblock

import "golang.org/x/tools/go/ssa"

// maxRounds bounds how often the functions of a package are read until their summaries agree. Two or three are enough for nearly
// all packages; the bound is there so that mutual recursion cannot loop forever.
const maxRounds = 64

// summarise reads the functions of the package, callees before callers, until nothing new is learned about any of them.
func (p *program) summarise() {
	order := p.calleesFirst()
	for range maxRounds {
		changed := false
		for _, fn := range order {
			next := p.walk(fn, nil)
			if next.fingerprint() != p.summaries[fn].fingerprint() {
				*p.summaries[fn] = *next
				changed = true
			}
		}
		if !changed {
			return
		}
	}
}

// calleesFirst lists the functions so that one comes after those that it names, as far as they do not name each other.
func (p *program) calleesFirst() []*ssa.Function {
	var order []*ssa.Function
	seen := map[*ssa.Function]bool{}
	var visit func(fn *ssa.Function)
	visit = func(fn *ssa.Function) {
		if seen[fn] || p.summaries[fn] == nil {
			return
		}
		seen[fn] = true
		for _, block := range fn.Blocks {
			for _, instr := range block.Instrs {
				for _, operand := range instr.Operands(nil) {
					if named, ok := (*operand).(*ssa.Function); ok {
						visit(generic(named))
					}
				}
			}
		}
		order = append(order, fn)
	}
	for _, fn := range p.functions {
		visit(fn)
	}
	return order
}

// export publishes what the functions of this package do to the packages that import it.
func (p *program) export() {
	for _, fn := range p.functions {
		s := p.summaries[fn]
		if obj := fn.Object(); obj != nil && !s.empty() {
			p.pass.ExportObjectFact(obj, s)
		}
	}
	for holder, values := range p.stored {
		if holder.Pkg() != p.pass.Pkg {
			continue
		}
		either := &summary{}
		for _, t := range p.targetsOfAny(values, traceDepth) {
			if t.summary != nil {
				either.merge(t.bindArgs(p))
			}
		}
		if !either.empty() {
			p.pass.ExportObjectFact(holder, either)
		}
	}
}
