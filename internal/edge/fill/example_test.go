package fill_test

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"micronode/fault"
	"micronode/internal/edge/fill"
	"micronode/internal/flow"
	"micronode/internal/store"
	"micronode/internal/supervise"
)

func Example() {
	inv := flow.NewInventory()
	bodies := store.NewRAM(store.RAMSpec{Budget: 1 << 20})
	cache, err := fill.New(inv, fill.Spec{
		Config: fill.DefaultConfig(), Cache: fill.DefaultCacheConfig(), Breaker: fill.DefaultBreakerConfig(),
		Allow: []string{"tiles.example.org", "localhost:8443"},
		Store: bodies, Amnesia: true, Workers: 4,
		Counters: fill.Counters{Reject: func(reason string) { fmt.Println("counted:", reason) }},
	})
	if err != nil {
		fmt.Println(err)
		return
	}

	// Workers pull from the cache; the supervisor owns them.
	sup, _ := supervise.New(supervise.Options{Stages: []supervise.Stage{{Name: "workers", DrainTimeout: time.Second}}, DrainTimeout: 2 * time.Second})
	_ = sup.AddPool(supervise.Pool{N: 4, NextJob: cache.Next, Service: supervise.Service{Service: "edge", Name: "worker", Stage: "workers"}})
	go func() {
		defer sup.Shutdown("done")
		for _, host := range []string{"evil.example", "localhost:8443"} {
			_, err := cache.Get(context.Background(), fill.Request{Host: host, Path: "/a.png", Method: http.MethodGet})
			fmt.Println(fault.KindOf(err).Code(), "-", fault.DetailOf(err))
		}
	}()
	_, _ = sup.Run(context.Background())
	_ = cache.Close()
	// Output:
	// counted: not_allowed
	// RejectPolicy - the origin evil.example is not in edge.allow
	// counted: not_allowed
	// RejectPolicy - the name of the origin resolves to an address that is not public
}
