package flow

// Done ends an item of a class that was taken, where MaxOutstanding is set. It
// is called once for each.
func (f *Fair[T]) Done(b int, class uint64) {
	key := classKey{b, class}
	f.inv.seam.point("fair done")
	f.mu.Lock()
	if f.outstanding[key] == 0 {
		f.mu.Unlock()
		panic("flow: " + f.op(b) + ": Done without an item in hand")
	}
	if f.outstanding[key]--; f.outstanding[key] == 0 {
		delete(f.outstanding, key)
	}
	f.outstandingTotal--
	w := f.nextPopper()
	f.mu.Unlock()
	f.wake(w)
}

// canTake says whether a class may take another item: it has fewer outstanding
// than are left. Guarded by mu.
func (f *Fair[T]) canTake(c *class) bool {
	return f.maxOutstanding == 0 || f.closed || f.outstanding[c.key] < f.maxOutstanding-f.outstandingTotal
}
