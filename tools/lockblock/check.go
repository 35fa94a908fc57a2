package lockblock

import (
	"fmt"
	"strings"
)

// check reads every function once more and reports what is wrong.
func (p *program) check(j *reporter) {
	for _, fn := range p.functions {
		p.walk(fn, j)
	}
}

// checkEffect reports what is wrong with an effect under the locks that are held here.
func (w *walker) checkEffect(s *state, e effect) {
	var under []string
	for _, h := range s.holdings() {
		if len(subtract([]lock{h.lock}, e.Without)) == 0 {
			continue
		}
		where := w.reporter.lineText(h.pos, e.pos)
		w.checkNesting(h.lock, fmt.Sprintf("%s is held (locked %s)", h.lock.Name, where), e)
		under = append(under, fmt.Sprintf("%s (locked %s)", h.lock.Name, where))
	}
	for _, l := range e.Under {
		w.checkNesting(l, fmt.Sprintf("%s is held by the function that calls it", l.Name), e)
		under = append(under, l.Name+" (held by the function that calls this)")
	}
	if e.Kind == blocks && under != nil {
		w.reporter.reportOnce(e.pos, "blocks", fmt.Sprintf(
			"%s while holding %s: no lock is held across a wait, so take what you need under the lock, unlock, then do this",
			e.describe(), strings.Join(under, " and ")))
	}
}

func (w *walker) checkNesting(outer lock, held string, e effect) {
	if e.Kind != locks {
		return
	}
	if problem := nestingProblem(outer, e.Lock); problem != "" {
		w.reporter.reportOnce(e.pos, "locks "+outer.Key+" "+e.Lock.Key, fmt.Sprintf("%s while %s: %s", e.describe(), held, problem))
	}
}
