package rank_test

import (
	"fmt"
	"time"

	"micronode/internal/index/rank"
	"micronode/internal/index/record"
)

func ExampleOrder() {
	now := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	providers := []record.Provider{
		{ID: "far", Overlay: []string{"192.0.2.1:9000"}, Region: "us-east", Seen: now.Add(-time.Minute), Source: record.DHT},
		{ID: "near", Overlay: []string{"192.0.2.2:9000"}, Region: "eu-west", Seen: now.Add(-time.Hour), Source: record.DHT},
		{ID: "broken", HTTP: []string{"https://192.0.2.3:443"}, Region: "eu-west", Seen: now, Source: record.Delegated},
		{ID: "near", HTTP: []string{"https://192.0.2.2:443"}, Seen: now, Source: record.Peer}, // the same node again
	}
	known := map[string]rank.History{
		"near":   {Latency: 9 * time.Millisecond, Successes: 8, Breaker: "closed", Connected: true},
		"far":    {Latency: 140 * time.Millisecond, Successes: 3, Breaker: "closed"},
		"broken": {Failures: 5, Breaker: "open"},
	}
	for _, r := range rank.Order(providers, rank.Facts{
		WantedRegion: "eu-west",
		Now:          now,
		History:      func(p record.Provider) rank.History { return known[p.ID] },
	}) {
		fmt.Println(r.Provider.ID, r.Score, r.Class, r.Latency, r.Provider.Overlay, r.Provider.HTTP)
	}
	// Output:
	// near 0.942 best near [192.0.2.2:9000] [https://192.0.2.2:443]
	// far 0.572 good far [192.0.2.1:9000] []
	// broken 0.289 fair unknown [] [https://192.0.2.3:443]
}
