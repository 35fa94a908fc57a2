package pack

// table is what Open reads. It is immutable once it is stored.
type table struct {
	entries map[string]*entry // by file name and by stem
	state   State
	closed  bool
}

// entry is a pack, or the reason why there is none.
type entry struct {
	version *version // nil if none is served
	err     error    // set if there is no version
}

// newTable makes the table of some mounts. A stem that two files have is
// refused, and the state of both says so: which of the two is meant must not
// depend on the order in which they were copied.
func newTable(mounts []*mount, others []Status, watch error) *table {
	t := &table{entries: make(map[string]*entry, 2*len(mounts))}
	owner := make(map[string]string, 2*len(mounts)) // name or stem -> file
	for _, m := range mounts {
		owner[m.file] = m.file
		t.entries[m.file] = m.entry()
	}
	clash := map[string]error{} // by file
	for _, m := range mounts {
		other, taken := owner[m.stem]
		if !taken {
			owner[m.stem] = m.file
			t.entries[m.stem] = t.entries[m.file]
			continue
		}
		clash[m.file] = ambiguous(m.stem, m.file, other)
		if other == m.stem {
			continue // the other file is named exactly, so there is no doubt
		}
		if clash[other] == nil {
			clash[other] = ambiguous(m.stem, other, m.file)
		}
		t.entries[m.stem] = &entry{err: notReady(clash[m.file])}
	}
	t.state = State{Watch: watch, Packs: others}
	for _, m := range mounts {
		t.state.Packs = append(t.state.Packs, m.status(clash[m.file]))
	}
	return t
}
