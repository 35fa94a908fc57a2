package journal_test

import (
	"context"
	"fmt"
	"os"

	"micronode/internal/registry/journal"
	"micronode/internal/registry/ledger"
)

func Example() {
	folder, err := os.MkdirTemp("", "journal")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(folder) }()
	ctx := context.Background()

	j, err := journal.OpenFiles(journal.FilesSpec{Folder: folder})
	if err != nil {
		fmt.Println(err)
		return
	}
	genesis := ledger.Record{Version: 0, Header: []byte(`{"version":0}`)}
	first := ledger.Record{Version: 1, Header: []byte(`{"version":1}`)}
	head := genesis.Head()
	fmt.Println(j.Append(ctx, nil, []ledger.Record{genesis}))
	fmt.Println(j.Append(ctx, &head, []ledger.Record{first}))
	fmt.Println(j.Append(ctx, &head, []ledger.Record{first}) != nil) // the head has moved
	fmt.Println(j.Close())

	if j, err = journal.OpenFiles(journal.FilesSpec{Folder: folder}); err != nil {
		fmt.Println(err)
		return
	}
	end, err := j.Head(ctx)
	fmt.Println(end.Version, err, j.Opened().TornBytes)
	fmt.Println(j.Close())
	// Output:
	// <nil>
	// <nil>
	// true
	// <nil>
	// 1 <nil> 0
	// <nil>
}
