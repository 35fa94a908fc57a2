package flow

// Done ends an item of a class that was taken, where MaxOutstanding is set. It
// is called once for each.
func (f *Fair[T]) Done(b int, class uint64) { f.DoneBy(b, class, 0) }

// DoneBy is Done for an item of a member, where Members is set.
func (f *Fair[T]) DoneBy(b int, class, member uint64) {
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
	if f.members {
		by := memberKey{key, member}
		if f.byMember[by]--; f.byMember[by] == 0 {
			delete(f.byMember, by)
		}
	}
	f.outstandingTotal--
	w := f.nextPopper()
	f.mu.Unlock()
	f.wake(w)
}

// canTake says whether a class may take another item. Guarded by mu.
func (f *Fair[T]) canTake(c *class) bool { return f.ready(c) != 0 }

// ready is the item of a class that is taken next; zero if the class may take
// none, because it has no fewer outstanding than are left. Of its members, the
// one with the fewest outstanding comes first, if it has fewer than are left of
// what the class may have in all; so one that has none always may. Guarded by mu.
func (f *Fair[T]) ready(c *class) int32 {
	if f.maxOutstanding == 0 || f.closed {
		return c.waiting.first
	}
	own := f.outstanding[c.key]
	if !f.mayHaveMore(own) {
		return 0
	}
	if !f.members {
		return c.waiting.first
	}
	others := f.outstandingTotal - own
	left := (f.maxOutstanding-others+1)/2 - own
	next, fewest := int32(0), 0
	for at := c.waiting.first; at != 0 && (next == 0 || fewest > 0); at = f.slab.slots[at].next {
		member := f.slab.slots[at].item.Member
		n := f.byMember[memberKey{c.key, member}]
		if (n < left || member == 0) && (next == 0 || n < fewest) {
			next, fewest = at, n
		}
	}
	return next
}

// mayHaveMore says whether a class with so many outstanding items may have
// another one, whatever waits. Guarded by mu.
func (f *Fair[T]) mayHaveMore(own int) bool {
	return own < f.maxOutstanding-f.outstandingTotal && (f.perClass == 0 || own < f.perClass)
}

// Reassign gives the first waiting item of a class that fits to another member,
// if that one has fewer items waiting and outstanding. It reports whether it
// did. It is for work that several members want: none of them should wait for
// the turn of the one that wants most. What note stores is there before the item
// can be taken; it is called under the lock of the queue and locks nothing.
func (f *Fair[T]) Reassign(b int, class uint64, fits func(T) bool, member uint64, note func(T)) bool {
	f.mu.Lock()
	at, c := f.seek(classKey{b, class}, fits)
	if at == 0 {
		f.mu.Unlock()
		return false
	}
	count, item := f.countByMember(c), &f.slab.slots[at].item
	has := func(m uint64) int { return count[m] + f.byMember[memberKey{c.key, m}] }
	given := has(member) < has(item.Member)
	var w *waiting[struct{}] // a consumer, if the item may be taken now
	if given {
		item.Member = member
		note(item.Item)
		w = f.nextPopper()
	}
	f.mu.Unlock()
	f.wake(w)
	return given
}

// countByMember counts the items of a class that wait. Guarded by mu.
func (f *Fair[T]) countByMember(c *class) map[uint64]int {
	count := map[uint64]int{}
	for at := c.waiting.first; at != 0; at = f.slab.slots[at].next {
		count[f.slab.slots[at].item.Member]++
	}
	return count
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
