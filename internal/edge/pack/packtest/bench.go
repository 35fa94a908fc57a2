package packtest

import (
	"bytes"
	"compress/gzip"
)

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
