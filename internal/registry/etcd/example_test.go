package etcd

import (
	"context"
	"fmt"

	"micronode/internal/registry/ledger"
)

func Example() {
	cluster := newFake()           // in production: an etcd cluster, and
	log := cluster.open(nil)       // Open(ctx, Spec{URL: "etcd+https://one:2379,two:2379,three:2379/team/log"})
	neighbour := cluster.open(nil) // the same from another node
	defer log.Close()
	defer neighbour.Close()

	ctx := context.Background()
	genesis := ledger.Record{Version: 0, Header: []byte(`{"version":0}`)}
	fmt.Println(log.Append(ctx, nil, []ledger.Record{genesis}))

	// Both nodes append after the first version. One of them gets
	// ChainMismatch, and nothing of its batch is written.
	head := genesis.Head()
	fmt.Println(log.Append(ctx, &head, []ledger.Record{{Version: 1, Header: []byte(`{"version":1,"who":"here"}`)}}))
	err := neighbour.Append(ctx, &head, []ledger.Record{{Version: 1, Header: []byte(`{"version":1,"who":"there"}`)}})
	fmt.Println(err != nil)

	record, _ := neighbour.Read(ctx, 1)
	fmt.Printf("%s\n", record.Header)

	// Output:
	// <nil>
	// <nil>
	// true
	// {"version":1,"who":"here"}
}
