package mbtiles_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"micronode/fault"
	"micronode/internal/edge/pack/mbtiles"
	"micronode/internal/edge/pack/packtest"
)

func Example() {
	folder, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(folder)
	path := filepath.Join(folder, "basel.mbtiles")
	if err := packtest.MBTiles(path, packtest.MBSpec{MaxZoom: 2, Size: 100}); err != nil {
		fmt.Println(err)
		return
	}

	archive, err := mbtiles.Open(path, mbtiles.Options{})
	if err != nil {
		fmt.Println(err, fault.NextOf(err))
		return
	}
	defer archive.Close()

	info := archive.Info()
	fmt.Println(info.Format, info.MinZoom, info.MaxZoom)

	data, found, err := archive.Tile(context.Background(), 2, 3, 1)
	fmt.Println(len(data), found, err)
	data, found, err = archive.Tile(context.Background(), 9, 0, 0)
	fmt.Println(len(data), found, err)
	// Output:
	// pbf 0 2
	// 100 true <nil>
	// 0 false <nil>
}
