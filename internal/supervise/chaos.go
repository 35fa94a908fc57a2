//go:build chaos

package supervise

import "math/rand/v2"

// Decimate kills every tenth of all workers of all pools, rounded up, by lot,
// and says how many: what the reliability gates do to a node. It is built with
// the tag "chaos" only. Services are left alone: they are no workers, and a
// crash loop of one is another matter.
func (s *Supervisor) Decimate() int {
	s.mu.Lock()
	var living []*task
	workers := 0
	for _, u := range s.units {
		if !u.pool {
			continue
		}
		workers += len(u.slots)
		for _, slot := range u.slots {
			if slot.place == placeRunning {
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
