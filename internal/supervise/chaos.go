//go:build chaos

package supervise

import "math/rand/v2"

// KillTenth kills a tenth of all workers of all pools, rounded up, chosen at
// random, and returns how many: what the reliability gates do to a node. It is
// built with the tag "chaos" only. It does not kill services: they are no
// workers, and a crash loop of one is another matter.
func (s *Supervisor) KillTenth() int {
	s.mu.Lock()
	var living []*task
	workers := 0
	for _, u := range s.units {
		if !u.pool {
			continue
		}
		workers += len(u.slots)
		for _, slot := range u.slots {
			if slot.state == slotRunning {
				living = append(living, slot.task)
			}
		}
	}
	s.mu.Unlock()
	rand.Shuffle(len(living), func(i, j int) { living[i], living[j] = living[j], living[i] })
	living = living[:min(len(living), (workers+9)/10)]
	for _, t := range living {
		t.cancel(ErrKilled)
	}
	return len(living)
}
