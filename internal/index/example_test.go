package index_test

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"strings"
	"time"

	"micronode/internal/flow"
	"micronode/internal/index"
	"micronode/internal/observe"
	"micronode/internal/store"
	"micronode/internal/supervise"
)

// A node without peers finds what it has itself, and says what to do about the
// rest.
func Example() {
	ctx := context.Background()
	inventory, metrics := flow.NewInventory(), observe.NewMetrics(observe.Build{})
	supervisor, _ := supervise.New(supervise.Options{DrainTimeout: time.Second, Stages: []supervise.Stage{{Name: "state"}, {Name: "workers"}}})
	objects := store.NewRAM(store.RAMSpec{Budget: 1 << 20, MaxObject: 1 << 16})
	stages := index.Stages{State: "state", Workers: "workers"}
	x, err := index.New(ctx, inventory, supervisor, stages, index.Spec{
		Config: index.DefaultConfig(), Key: ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)), Skew: time.Minute, Store: objects,
		Self:    func() index.Provider { return index.Provider{Overlay: []string{"127.0.0.1:9500"}} },
		Metrics: metrics, Readiness: observe.NewReadiness(inventory, supervisor),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = x.Add(supervisor, stages, func(index.Event) {})
	running, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { _, _ = supervisor.Run(running); close(done) }()

	info, _, _ := objects.Put(ctx, strings.NewReader("hello"), store.PutOptions{Size: 5})
	x.ObjectAdded(info.Address)
	id, _ := index.ParseID(info.Address.String())
	found, _ := x.Resolve(ctx, id, index.Options{})
	fmt.Println(found.Source, len(found.Providers), found.Providers[0].Provider.Overlay)

	id, _ = index.ParseID("name:docs")
	_, err = x.Resolve(ctx, id, index.Options{})
	fmt.Println(err)

	stop()
	<-done
	_ = x.Close()
	_ = objects.Close()
	// Output:
	// local 1 [127.0.0.1:9500]
	// index.resolve: neither the registry nor this node has the name "docs"
}
