package pmtiles_test

import (
	"bytes"
	"fmt"

	"micronode/internal/edge/pack/packtest"
	"micronode/internal/edge/pack/pmtiles"
)

func Example() {
	file := packtest.PMTiles(packtest.PMSpec{
		Tiles:    []packtest.PMTile{{Z: 0, Data: []byte("the world")}, {Z: 1, X: 1, Y: 0, Data: []byte("the north east")}},
		Metadata: `{"name":"two tiles"}`,
	})

	dirs := pmtiles.NewDirectoryCache(32 << 20)
	archive, err := pmtiles.Open(bytes.NewReader(file), int64(len(file)), dirs, pmtiles.DefaultLimits())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer archive.Release()

	header := archive.Header()
	fmt.Println(header.TileType, header.TileCompression, header.MinZoom, header.MaxZoom)

	location, found, err := archive.Locate(1, 1, 0)
	fmt.Println(found, err, string(file[location.Offset:][:location.Length]))

	_, found, err = archive.Locate(1, 0, 0)
	fmt.Println(found, err)
	// Output:
	// mvt none 0 1
	// true <nil> the north east
	// false <nil>
}
