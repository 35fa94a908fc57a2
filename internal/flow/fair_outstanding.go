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

// Contenders is how many waiting items a consumer that ends an item of a class
// would free: those of the class itself, and one for each other class that may
// take an item and has no consumer. Classes that have their share wait for
// themselves, so a flood of one class says nothing about the others.
func (f *Fair[T]) Contenders(b int, class uint64) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.turn == nil {
		return 0
	}
	own := classKey{b, class}
	for c := f.turn; ; {
		switch {
		case c.key == own:
			n += c.waiting.n
		case f.canTake(c):
			n++
		}
		if c = c.next; c == f.turn {
			return n
		}
	}
}
