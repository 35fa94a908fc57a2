package flow

// makeRoom returns the class that loses items for a new item that does not fit,
// and how many; zero if the new item is to be refused. Guarded by mu.
func (f *Fair[T]) makeRoom(b int, p *FairItem[T], mayOwn bool, limit int) (*class, int) {
	in := &f.bands[b]
	if b == Urgent || p.Cost > limit {
		return nil, 0
	}
	own := f.classOf(classKey{b, p.Class}) // something waits, so there is a slab
	items, bytes := 1, p.Cost              // what its class would hold
	if own != nil {
		items, bytes = items+own.waiting.n, bytes+own.bytes
	}
	if rich := f.richer(in, b, p.Cost, items, bytes, limit); rich != nil {
		if n := f.toll(in, rich, p.Cost, bytes, limit); n > 0 {
			return rich, n
		}
	}
	if mayOwn && own != nil && f.members {
		if waiting := f.countByMember(own); waiting[richestMember(waiting)] > waiting[p.Member]+1 {
			return own, 1
		}
	}
	if mayOwn && own != nil && in.spec.Policy == DropOldest {
		return own, f.toll(in, own, p.Cost, 0, limit)
	}
	return nil, 0
}

// richer finds the class that holds most of what is short, or nil if none holds
// more of it than the class of the new item would: in items if no slot is left,
// in bytes if there are too few, in both if both are short. Guarded by mu.
func (f *Fair[T]) richer(in *band, b, cost, items, bytes, limit int) *class {
	full, short := in.items == in.spec.Cap, in.bytes+cost > limit
	if full && items > in.items-items || short && bytes >= in.bytes-(bytes-cost) {
		return nil // it has half of the band, so no class has more; a flood ends here
	}
	var most, largest *class // in items, in bytes
	for c := f.turn; ; {
		if c.key.band == b {
			if c.waiting.n > items {
				most, items = c, c.waiting.n
			}
			if c.bytes > bytes {
				largest, bytes = c, c.bytes
			}
		}
		if c = c.next; c == f.turn {
			break
		}
	}
	if full && most == nil {
		return nil
	}
	if short {
		return largest
	}
	return most
}

// toll is how many items a class has to lose to make room for a new item of
// this cost. It is zero if the class cannot lose that many, because it loses
// none once it holds no more than keeps bytes. Guarded by mu.
func (f *Fair[T]) toll(in *band, c *class, cost, keeps, limit int) (n int) {
	need := in.bytes + cost - limit
	if need <= 0 {
		return 1 // only a slot is missing
	}
	for at, rest := f.victimSlot(c), c.bytes; need > 0; n++ {
		if at == 0 || rest <= keeps {
			return 0
		}
		one := &f.slab.slots[at]
		need -= one.item.Cost
		rest -= one.item.Cost
		at = one.prev
		if in.spec.Policy == DropOldest {
			at = one.next
		}
	}
	return n
}

// victimSlot is the slot at which a class loses items: its last, or with
// DropOldest its first; with members, the last of the member that has the most.
// Guarded by mu.
func (f *Fair[T]) victimSlot(c *class) int32 {
	if f.members {
		member, at := richestMember(f.countByMember(c)), c.waiting.last
		for f.slab.slots[at].item.Member != member {
			at = f.slab.slots[at].prev
		}
		return at
	}
	if f.bands[c.key.band].spec.Policy == DropOldest {
		return c.waiting.first
	}
	return c.waiting.last
}

// richestMember is the member that has the most items waiting.
func richestMember(waiting map[uint64]int) (member uint64) {
	most := 0
	for one, n := range waiting {
		if n > most || n == most && one < member {
			member, most = one, n
		}
	}
	return member
}
