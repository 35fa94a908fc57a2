package lockblock

import (
	"fmt"
	"strings"
)

// judge reads every function once more and says what is wrong.
func (p *program) judge(j *journal) {
	for _, fn := range p.functions {
		p.walk(fn, j)
	}
}

// judgeEffect says what is wrong with an effect under the locks that are held here.
func (w *walker) judgeEffect(s *state, e effect) {
	var under []string
	for _, h := range s.holdings() {
		if len(subtract([]lock{h.lock}, e.Without)) == 0 {
			continue
		}
		where := w.journal.where(h.pos, e.pos)
		w.judgeNesting(h.lock, fmt.Sprintf("%s is held (locked %s)", h.lock.Name, where), e)
		under = append(under, fmt.Sprintf("%s (locked %s)", h.lock.Name, where))
	}
	for _, l := range e.Under {
		w.judgeNesting(l, fmt.Sprintf("%s is held by the function that calls it", l.Name), e)
		under = append(under, l.Name+" (held by the function that calls this)")
	}
	if e.Kind == blocks && under != nil {
		w.journal.sayOnce(e.pos, "blocks", fmt.Sprintf(
			"%s while holding %s: no lock is held across a wait, so take what you need under the lock, unlock, then do this",
			e.chain(), strings.Join(under, " and ")))
	}
}

func (w *walker) judgeNesting(outer lock, held string, e effect) {
	if e.Kind != locks {
		return
	}
	if fault := quarrel(outer, e.Lock); fault != "" {
		w.journal.sayOnce(e.pos, "locks "+outer.Key+" "+e.Lock.Key, fmt.Sprintf("%s while %s: %s", e.chain(), held, fault))
	}
}
