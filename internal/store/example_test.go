package store_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"micronode/fault"
	"micronode/internal/store"
)

// A body goes in, its address comes out, and under that address the same bytes
// can be read. An open handle keeps the object, even when it is deleted.
func Example() {
	ctx := context.Background()
	objects := store.NewRAM(store.RAMSpec{Budget: 1 << 20})
	defer objects.Close()

	info, created, err := objects.Put(ctx, strings.NewReader("hello\n"), store.PutOptions{Size: store.Unknown})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(info.Address, info.Size, created)

	h, err := objects.Open(ctx, info.Address)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer h.Close()
	_ = objects.Delete(ctx, info.Address)
	_, err = h.WriteTo(os.Stdout)
	fmt.Println(err)

	_, err = objects.Open(ctx, info.Address)
	fmt.Println(errors.Is(err, fault.NotFound))

	_, _, err = objects.Put(ctx, nil, store.PutOptions{Size: 1 << 30})
	fmt.Println(err)
	// Output:
	// b3:8e4c7c1b99dbfd50e7a95185fead5ee1448fa904a2fdd778eaf5f2dbfd629a99 6 true
	// hello
	// <nil>
	// true
	// store.put: 1073741824 bytes; the whole store has 1048576
}

// A store on disk keeps its objects when it is opened again, and their class.
func ExampleOpenDisk() {
	ctx := context.Background()
	folder, err := os.MkdirTemp("", "objects")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(folder)
	spec := store.DiskSpec{Folder: folder, Budget: 1 << 30, Sync: true}

	objects, err := store.OpenDisk(spec)
	if err != nil {
		fmt.Println(err)
		return
	}
	info, _, err := objects.Put(ctx, strings.NewReader("hello\n"), store.PutOptions{Size: store.Unknown, Class: store.Cached})
	fmt.Println(info.Size, info.Class, err)
	_ = objects.Pin(ctx, info.Address)
	_ = objects.Close()

	objects, err = store.OpenDisk(spec)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer objects.Close()
	info, err = objects.Stat(ctx, info.Address)
	fmt.Println(info.Size, info.Class, err)

	_, err = store.OpenDisk(spec)
	fmt.Println(errors.Is(err, fault.Conflict))
	// Output:
	// 6 cached <nil>
	// 6 pinned <nil>
	// true
}
