package oap

import (
	"encoding/hex"
	"testing"
)

// The example of docs/oap1.md: what is here, and what is on its way.
func TestPartsOfAnObject(t *testing.T) {
	const mib, size = 1 << 20, 5<<20 + 1 // eleven parts, the last of one byte
	p := NewParts(size)
	p.Add(0, mib, size, false)          // the first two
	p.Add(2*mib, 3*mib+1, size, true)   // two whole ones, and a byte of the next
	p.Add(5*mib-1, size, size, false)   // a byte of the tenth, and the eleventh
	p.Add(mib+1, 3*mib/2+1, size, true) // no whole one
	if got := hex.EncodeToString(p); got != "03043304" {
		t.Errorf("the parts are %s", got)
	}
	for _, one := range []struct {
		from, n    int64
		here, soon bool
	}{
		{0, mib, true, true}, {mib - 1, 2, false, false}, {2 * mib, mib, false, true}, {3*mib - 1, 1, false, true},
		{3*mib - 1, 2, false, false}, {5 * mib, 1, true, true}, {0, 0, true, true},
	} {
		if here, soon := p.Has(one.from, one.n, size, false), p.Has(one.from, one.n, size, true); here != one.here || soon != one.soon {
			t.Errorf("%d bytes from %d on are here: %t, or on their way: %t", one.n, one.from, here, soon)
		}
	}
	if !AllParts(size).Has(0, size, size, false) || len(AllParts(size)) != int(PartsSize(size)) || p.Has(0, 1, 64*mib, false) || Parts(nil).Has(0, 1, size, true) {
		t.Error("the parts of an object of another size say what is here")
	}
}
