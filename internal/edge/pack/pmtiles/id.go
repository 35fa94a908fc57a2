package pmtiles

import (
	"math/bits"

	"micronode/fault"
)

// maxZoom is the deepest zoom of which every tile has an id.
const maxZoom = 31

// endOfIDs is one more than the id of the last tile of zoom 31.
const endOfIDs = uint64(1<<64-1) / 3

// ID is the number of a tile in the order of the archive. Zooms follow each
// other, and within a zoom the tiles are along a Hilbert curve, so that tiles
// that are close on the map mostly have numbers that are close, too.
func ID(z uint8, x, y uint32) (uint64, error) {
	if z > maxZoom || x>>z != 0 || y>>z != 0 {
		return 0, &fault.Error{Op: opPrefix + "id", Kind: fault.Malformed,
			Detail: "no such tile: x and y go from 0 to 2^z-1, and z from 0 to 31",
			Next:   "Ask for a tile within its zoom."}
	}
	return firstID(z) + hilbertDistance(z, x, y), nil
}

// firstID is the number of tiles of all zooms before z: 1 + 4 + 16 and so on.
func firstID(z uint8) uint64 {
	return (uint64(1)<<(2*z) - 1) / 3
}

// hilbertDistance is the distance of a tile along the curve of its zoom.
//
// The curve goes through the four quarters of a square in the shape of a U and
// then does the same within each quarter, turned so that the ends meet. Every
// turn that is needed can be made of two: to swap the axes, and to flip both.
// So it is enough to remember whether an odd number of each was made.
//
// Which way it turns is as good as random, and a processor would mispredict
// every other time; so both turns are bits, and there are no branches.
func hilbertDistance(z uint8, x, y uint32) uint64 {
	var distance uint64
	var flip, swap uint32
	for level := int(z) - 1; level >= 0; level-- {
		right, lower := swapped(x>>level&1^flip, y>>level&1^flip, swap)
		distance = distance<<2 | uint64(3*right^lower)
		upper := lower ^ 1
		flip ^= right & upper
		swap ^= upper
	}
	return distance
}

// swapped swaps two bits if the third is set.
func swapped(a, b, swap uint32) (uint32, uint32) {
	change := (a ^ b) & swap
	return a ^ change, b ^ change
}

// ZXY is the tile that has an id.
func ZXY(id uint64) (z uint8, x, y uint32, err error) {
	if id >= endOfIDs {
		return 0, 0, 0, fault.New(opPrefix+"zxy", fault.Malformed, "%d is past the last tile of zoom %d", id, maxZoom)
	}
	z = zoomOf(id)
	x, y = hilbertPoint(z, id-firstID(z))
	return z, x, y, nil
}

// zoomOf finds the zoom of an id below endOfIDs. Ids of zoom z begin at
// (4^z-1)/3, so 3*id+1 is at least 4^z, and its length in bits tells z.
func zoomOf(id uint64) uint8 {
	return uint8(bits.Len64(3*id+1)-1) / 2
}

// hilbertPoint is the inverse of hilbertDistance.
func hilbertPoint(z uint8, distance uint64) (x, y uint32) {
	var flip, swap uint32
	for level := int(z) - 1; level >= 0; level-- {
		quarter := uint32(distance>>(2*level)) & 3
		right := quarter >> 1
		lower := (quarter ^ right) & 1
		first, second := swapped(right, lower, swap)
		x |= (first ^ flip) << level
		y |= (second ^ flip) << level
		upper := lower ^ 1
		flip ^= right & upper
		swap ^= upper
	}
	return x, y
}
