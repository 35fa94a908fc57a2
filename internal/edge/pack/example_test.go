package pack_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"micronode/fault"
	"micronode/internal/edge/pack"
	"micronode/internal/edge/pack/packtest"
	"micronode/internal/flow"
)

// A folder of packs is mounted. One is replaced while it is being read: the
// reader continues with the version that it began with, and the next one gets
// the new version. A replacement that is incomplete changes nothing.
func Example() {
	ctx := context.Background()
	folder, err := os.MkdirTemp("", "packs")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(folder) }()
	replace := func(content string, whole bool) {
		data := packtest.PMTiles(packtest.PMSpec{Tiles: []packtest.PMTile{{Data: []byte(content)}}})
		if !whole {
			data = data[:len(data)-1]
		}
		_ = os.WriteFile(filepath.Join(folder, "part"), data, 0o600)
		_ = os.Rename(filepath.Join(folder, "part"), filepath.Join(folder, "basel.pmtiles"))
	}

	replace("the old map", true)
	mounts, err := pack.New(flow.NewInventory(), pack.Spec{Paths: []string{folder}, Deep: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer mounts.Close()
	_ = mounts.Mount(ctx)

	reader, err := mounts.Open("basel")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer reader.Close()

	replace("the new map", true)
	_ = mounts.Mount(ctx) // in a node, Serve does this by itself
	old, _ := reader.Tile(ctx, 0, 0, 0)
	fmt.Printf("%s, %s\n", old.Data, old.Type)

	next, err := mounts.Open("basel.pmtiles")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer next.Close()
	tile, _ := next.Tile(ctx, 0, 0, 0)
	fmt.Printf("%s\n", tile.Data)
	_, err = next.Tile(ctx, 9, 0, 0)
	fmt.Println(errors.Is(err, fault.NotFound))

	replace("half a map", false)
	then := time.Now().Add(-time.Hour) // it is no longer being copied
	_ = os.Chtimes(filepath.Join(folder, "basel.pmtiles"), then, then)
	_ = mounts.Mount(ctx)
	for _, status := range mounts.State().Packs {
		fmt.Println(status.File, status.Condition, len(status.Version))
	}
	// Output:
	// the old map, application/vnd.mapbox-vector-tile
	// the new map
	// true
	// basel.pmtiles degraded 64
}
