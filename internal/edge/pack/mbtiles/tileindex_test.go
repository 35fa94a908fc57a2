package mbtiles

import "testing"

func TestKeysAreDistinctAndInOrder(t *testing.T) {
	last := uint64(0)
	for z := uint8(1); z <= 6; z++ {
		for x := range uint32(1) << z {
			for row := range uint32(1) << z {
				if k := tileKey(z, x, row); k != last+1 {
					t.Fatalf("%d/%d/%d: %d after %d", z, x, row, k, last)
				} else {
					last = k
				}
			}
		}
	}
	if first, top := tileKey(maxZoom, 0, 0), tileKey(maxZoom, 1<<maxZoom-1, 1<<maxZoom-1); top-first != 1<<60-1 {
		t.Errorf("the keys of the last zoom wrap: %d to %d", first, top)
	}
}
