package pmtiles

import (
	"testing"

	"pgregory.net/rapid"

	"micronode/fault"
	"micronode/internal/edge/pack/packtest"
)

// The first tiles of the curve, and the last ones of all, by hand from the
// definition.
func TestKnownIDs(t *testing.T) {
	for id, c := range map[uint64]struct {
		z    uint8
		x, y uint32
	}{
		0: {0, 0, 0}, 1: {1, 0, 0}, 2: {1, 0, 1}, 3: {1, 1, 1}, 4: {1, 1, 0},
		5: {2, 0, 0}, 6: {2, 1, 0}, 7: {2, 1, 1}, 8: {2, 0, 1}, 20: {2, 3, 0},
		endOfIDs - 1: {31, 1<<31 - 1, 0},
	} {
		if got, err := ID(c.z, c.x, c.y); got != id || err != nil {
			t.Errorf("ID(%v) = %d, %v, want %d", c, got, err, id)
		}
		if z, x, y, err := ZXY(id); z != c.z || x != c.x || y != c.y || err != nil {
			t.Errorf("ZXY(%d) = %d/%d/%d, %v, want %v", id, z, x, y, err, c)
		}
	}
}

// packtest draws the curve; ID computes a position on it.
func TestIDsFollowTheCurveAsDrawn(t *testing.T) {
	for i, tile := range (packtest.PMSpec{MaxZoom: 7, MinSize: 1}).Contents() {
		if id, err := ID(tile.Z, tile.X, tile.Y); id != uint64(i) || err != nil {
			t.Fatalf("%d/%d/%d is number %d of the curve; ID says %d, %v", tile.Z, tile.X, tile.Y, i, id, err)
		}
	}
}

func TestIDAndZXYAreInverse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		z := rapid.Uint8Range(0, maxZoom).Draw(t, "z")
		x := rapid.Uint32Range(0, 1<<z-1).Draw(t, "x")
		y := rapid.Uint32Range(0, 1<<z-1).Draw(t, "y")
		id, err := ID(z, x, y)
		if err != nil {
			t.Fatal(err)
		}
		if id != packtest.PMID(z, x, y) {
			t.Fatalf("ID %d, by the textbook %d", id, packtest.PMID(z, x, y))
		}
		gz, gx, gy, err := ZXY(id)
		if gz != z || gx != x || gy != y || err != nil {
			t.Fatalf("back: %d/%d/%d, %v", gz, gx, gy, err)
		}
	})
}

// Consecutive ids within a zoom are tiles that share a side.
func TestNeighboursOnTheCurveAreNeighboursOnTheMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := rapid.Uint64Range(0, endOfIDs-2).Draw(t, "id")
		z, x, y, err := ZXY(id)
		if err != nil {
			t.Fatal(err)
		}
		nz, nx, ny, err := ZXY(id + 1)
		if err != nil {
			t.Fatal(err)
		}
		if nz != z {
			if nz != z+1 || nx != 0 || ny != 0 || x != 1<<z-1 || y != 0 {
				t.Fatalf("%d/%d/%d is followed by %d/%d/%d", z, x, y, nz, nx, ny)
			}
			return
		}
		if distance := abs(int64(nx)-int64(x)) + abs(int64(ny)-int64(y)); distance != 1 {
			t.Fatalf("%d/%d/%d is followed by %d/%d/%d", z, x, y, nz, nx, ny)
		}
	})
}

func abs(v int64) int64 { return max(v, -v) }

func TestIDsThatAreNone(t *testing.T) {
	for _, id := range []uint64{endOfIDs, endOfIDs + 1, 1<<64 - 1} {
		_, _, _, err := ZXY(id)
		wantFault(t, err, fault.Malformed, "past the last tile")
	}
	_, err := ID(3, 8, 0)
	wantFault(t, err, fault.Malformed, "no such tile")
}
