package s3

import (
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"strings"

	"micronode/internal/flow"
	"micronode/internal/store"
)

func Example() {
	server := httptest.NewServer(newFake()) // in production: any S3-compatible server
	defer server.Close()

	ctx := context.Background()
	objects, err := Open(ctx, flow.NewInventory(), Spec{
		Service: "store", URL: "s3+" + server.URL + "/bucket/objects", AccessKey: "access", SecretKey: "secret",
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer objects.Close()

	info, created, err := objects.Put(ctx, strings.NewReader("hello, world\n"), store.PutOptions{Size: store.Unknown})
	fmt.Println(info.Size, created, err)

	handle, err := objects.Open(ctx, info.Address)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer handle.Close()
	_, _ = handle.WriteRange(os.Stdout, 7, 6)

	// Output:
	// 13 true <nil>
	// world
}
