package gossip

// The tables here are open: a flat array, a power of two long, in which an entry
// stands at the place that its fingerprint names or at the next free one behind
// it. They need no hash of their own, because a fingerprint is one, under a key
// that nobody knows: no choice of letters makes them crowd at one place.

const smallestTable = 16

// table is a set of fingerprints. Its zero value is empty.
type table struct {
	slots []fingerprint // zero where there is none
	count int
}

func (t *table) has(f fingerprint) bool {
	return t.count > 0 && t.slots[t.place(f)] == f
}

// place is where a fingerprint is, or where it would go.
func (t *table) place(f fingerprint) uint64 {
	mask := uint64(len(t.slots) - 1)
	i := f.a & mask
	for t.slots[i] != f && t.slots[i] != (fingerprint{}) {
		i = (i + 1) & mask
	}
	return i
}

// glance looks at where a fingerprint would stand if all were free.
func (t *table) glance(f fingerprint) uint64 {
	if len(t.slots) == 0 {
		return 0
	}
	return t.slots[f.a&uint64(len(t.slots)-1)].a
}

// insert adds a fingerprint that is not there.
func (t *table) insert(f fingerprint) {
	if 4*(t.count+1) > 3*len(t.slots) {
		t.grow()
	}
	t.slots[t.place(f)] = f
	t.count++
}

// expect makes room for so many in an empty table.
func (t *table) expect(n int) {
	size := smallestTable
	for 3*size < 4*n {
		size *= 2
	}
	t.slots = make([]fingerprint, size)
}

func (t *table) grow() {
	old := t.slots
	t.slots = make([]fingerprint, max(smallestTable, 2*len(old)))
	for _, f := range old {
		if f != (fingerprint{}) {
			t.slots[t.place(f)] = f
		}
	}
}

// places finds the number of a letter by its fingerprint. An entry is half of
// the fingerprint's second half and the lower half of the number; whether it is
// the letter that is meant, the letter itself says. So an entry is eight bytes,
// and to add or remove one means to look at no letter.
type places struct {
	slots []place // zero where there is none
	count int
}

type place uint64

// placeKey is the part of a fingerprint that stands in a place. Its lowest bit is
// set, so that no place is zero.
func placeKey(f fingerprint) uint32 { return uint32(f.b) | 1 }

func newPlace(key uint32, number uint64) place {
	return place(uint64(key)<<32 | uint64(uint32(number)))
}

func (p place) key() uint32    { return uint32(p >> 32) }
func (p place) number() uint32 { return uint32(p) }

// home is where a place with this key would stand if all were free.
func (t *places) home(key uint32) int { return int(key>>1) & (len(t.slots) - 1) }

func (t *places) after(i int) int { return (i + 1) & (len(t.slots) - 1) }

func (t *places) insert(p place) {
	if 2*(t.count+1) > len(t.slots) {
		t.grow()
	}
	t.put(p)
	t.count++
}

func (t *places) put(p place) {
	i := t.home(p.key())
	for t.slots[i] != 0 {
		i = t.after(i)
	}
	t.slots[i] = p
}

func (t *places) grow() {
	old := t.slots
	t.slots = make([]place, max(smallestTable, 2*len(old)))
	for _, p := range old {
		if p != 0 {
			t.put(p)
		}
	}
}

// remove takes out a place that is there. Those behind it that could stand in
// the gap move up, so that nobody who looks for them stops at it.
func (t *places) remove(p place) {
	gap := t.home(p.key())
	for t.slots[gap] != p {
		gap = t.after(gap)
	}
	mask := len(t.slots) - 1
	for i := t.after(gap); t.slots[i] != 0; i = t.after(i) {
		if fromHome := (i - t.home(t.slots[i].key())) & mask; fromHome >= (i-gap)&mask {
			t.slots[gap], gap = t.slots[i], i
		}
	}
	t.slots[gap] = 0
	t.count--
}
