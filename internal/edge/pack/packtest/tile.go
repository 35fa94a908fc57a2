package packtest

import (
	"encoding/binary"
	"math/bits"
)

// TileBytes makes the contents of one tile. They depend only on the arguments,
// so that a PMTiles and an MBTiles file of one seed hold the same tiles and a
// test knows what to expect without keeping any of them. The bytes look random:
// no codec makes them smaller.
func TileBytes(seed uint64, z uint8, x, y uint32, size int) []byte {
	state := seed ^ uint64(z)<<58 ^ uint64(x)<<29 ^ uint64(y)
	data := make([]byte, (size+7)&^7)
	for at := 0; at < len(data); at += 8 {
		binary.LittleEndian.PutUint64(data[at:], next(&state))
	}
	return data[:size:size]
}

// next is one step of SplitMix64, folded so that neighbours differ at once.
func next(state *uint64) uint64 {
	*state += 0x9e3779b97f4a7c15
	high, low := bits.Mul64(*state^*state>>31, 0xbf58476d1ce4e5b9)
	return high ^ low
}
