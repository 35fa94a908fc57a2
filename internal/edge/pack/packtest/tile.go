package packtest

import (
	"bytes"
	"compress/gzip"
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

// The map of the benches: all tiles from zoom 0 to 6, 46 MB in all.
const (
	benchZoom = 6
	benchSize = 8_400
	benchSeed = 7
)

// BenchTile is one tile of that map, as it is stored: gzip of incompressible
// bytes, so that recompressing gains nothing.
func BenchTile(z uint8, x, y uint32) []byte {
	var stored bytes.Buffer
	w, _ := gzip.NewWriterLevel(&stored, gzip.NoCompression) // the level is valid
	_, _ = w.Write(TileBytes(benchSeed, z, x, y, benchSize)) // a buffer never fails
	_ = w.Close()
	return stored.Bytes()
}

// WriteBenchPMTiles writes the map as PMTiles, in leaf directories as real maps
// have them.
func WriteBenchPMTiles(path string) error {
	var tiles []PMTile
	for z := range uint8(benchZoom + 1) {
		for x := range uint32(1) << z {
			for y := range uint32(1) << z {
				tiles = append(tiles, PMTile{Z: z, X: x, Y: y, Data: BenchTile(z, x, y)})
			}
		}
	}
	return WritePMTiles(path, PMSpec{
		Tiles: tiles, MaxZoom: benchZoom, LeafSize: 1024, InternalCompression: PMGzip, TileCompression: PMGzip, Type: PMVector,
	})
}

// WriteBenchMBTiles writes the same map as MBTiles.
func WriteBenchMBTiles(path string) error {
	return MBTiles(path, MBSpec{MaxZoom: benchZoom, Tile: BenchTile, Metadata: map[string]string{"format": "pbf"}})
}
