package flow

// Withdraw removes the first item of a class that fits, if it still waits. It
// reports false if none fits: most often because a consumer has already taken
// it.
func (f *Fair[T]) Withdraw(b int, class uint64, fits func(T) bool) bool {
	f.mustHave(b)
	f.inv.seam.point("fair withdraw")
	f.mu.Lock()
	at, c := f.seek(classKey{b, class}, fits)
	if at == 0 {
		f.mu.Unlock()
		return false
	}
	var gone T
	f.remove(c, at, &gone)
	f.bands[b].withdrawn++
	f.releaseSlab()
	chain := f.pushers.dequeueAll(true)
	f.mu.Unlock()
	wakeAll(f.inv.seam, chain)
	return true
}

// seek finds the first item of a class that fits; zero if none does. Guarded by
// mu.
func (f *Fair[T]) seek(key classKey, fits func(T) bool) (int32, *class) {
	if f.slab == nil || key.band == Urgent {
		return 0, nil
	}
	c := f.classOf(key)
	if c == nil {
		return 0, nil
	}
	for at := c.waiting.first; at != 0; at = f.slab.slots[at].next {
		if fits(f.slab.slots[at].item.Item) {
			return at, c
		}
	}
	return 0, nil
}
