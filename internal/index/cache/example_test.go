package cache_test

import (
	"fmt"
	"time"

	"micronode/internal/index/cache"
	"micronode/internal/index/record"
)

func Example() {
	c := cache.New(cache.Spec{Entries: 100_000, Bytes: 64 << 20, TTL: 10 * time.Second, NegativeTTL: 2 * time.Second, StaleTTL: 5 * time.Minute})
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	c.Put("name:docs@peer", cache.Entry{
		Answer: record.Answer{Providers: []record.Provider{{ID: "peer", Overlay: []string{"192.0.2.1:9000"}}}},
		Source: record.DHT,
		At:     now,
	})

	for _, later := range []time.Duration{time.Second, time.Minute, time.Hour} {
		e, fresh, ok := c.Get("name:docs@peer", now.Add(later))
		fmt.Println(later, ok, fresh, len(e.Answer.Providers))
	}
	fmt.Println(c.Purge(now.Add(time.Hour)), c.Len(), c.Bytes())
	// Output:
	// 1s true true 1
	// 1m0s true false 1
	// 1h0m0s false false 0
	// 1 0 0
}
