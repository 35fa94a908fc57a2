package client_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"micronode/client"
)

// A folder is put and named at one node, and fetched by its name at another.
func ExampleClient_PutFolder() {
	node := client.NewFakeNode()
	client.NewFakeIndex(node)
	url, stop := start(node)
	defer stop()
	ctx := context.Background()
	c, err := client.New(client.Options{URL: url})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	home, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(home)
	site := filepath.Join(home, "site")
	_ = os.Mkdir(site, 0o755)
	_ = os.WriteFile(filepath.Join(site, "index.html"), []byte("<h1>hello</h1>"), 0o644)

	folder, err := c.PutFolder(ctx, site, client.FolderOptions{})
	fmt.Println(len(folder.Manifest.Entries), "file put,", err)
	_, err = c.SetName(ctx, "docs", folder.Address)
	fmt.Println("named,", err)

	found, err := c.Resolve(ctx, "name:docs", client.ResolveOptions{})
	fmt.Println("found,", err)
	manifest, err := c.Manifest(ctx, found.Manifest)
	fmt.Println(manifest.Entries[0].Path, manifest.Entries[0].Size, manifest.Entries[0].Type, err)
	got, err := c.GetFolder(ctx, manifest, filepath.Join(home, "copy"), client.FolderOptions{})
	fmt.Println(got.Files, "file fetched,", err)
	// Output:
	// 1 file put, <nil>
	// named, <nil>
	// found, <nil>
	// index.html 14 text/html; charset=utf-8 <nil>
	// 1 file fetched, <nil>
}
