package observe_test

import (
	"fmt"
	"net/http/httptest"
	"strings"

	"micronode/internal/flow"
	"micronode/internal/observe"
)

// A node of one queue and one dependency, as an operator sees it.
func Example() {
	build := observe.Build{Service: "micronode", Version: "1.2.3", Features: []string{}}
	inventory := flow.NewInventory()
	work := flow.NewQueue[string](inventory, flow.QueueSpec{Service: "node", Name: "work", Cap: 1})

	ready := observe.NewReadiness(inventory, nil) // a node passes its supervisor
	disk := ready.Dependency("store", "disk", observe.ForWrites)
	sources := observe.Sources{Inventory: inventory, Readiness: ready}
	metrics := observe.NewMetrics(build)
	metrics.Attach(sources)
	admin := &observe.Admin{Sources: sources, Metrics: metrics, Build: build}

	work.TryPush("one")
	work.TryPush("one too many")
	disk.Down("the disk is full", "Remove objects, or give the store another folder.")

	for _, path := range []string{"/readyz", "/readyz?for=read"} {
		answer := httptest.NewRecorder()
		admin.ServeHTTP(answer, httptest.NewRequest("GET", path, nil))
		fmt.Println(path, answer.Code)
		fmt.Print(answer.Body)
	}
	scrape := httptest.NewRecorder()
	admin.ServeHTTP(scrape, httptest.NewRequest("GET", "/metrics", nil))
	for line := range strings.Lines(scrape.Body.String()) {
		if strings.Contains(line, `"work"`) {
			fmt.Print(line)
		}
	}
	// Output:
	// /readyz 503
	// {"ready":true,"write_ready":false,"degraded":false,"missing":["store/disk"],"reasons":[{"dep":"store/disk","reason":"the disk is full","next":"Remove objects, or give the store another folder."}],"retry_after":1}
	// /readyz?for=read 200
	// {"ready":true,"write_ready":false,"degraded":false,"missing":["store/disk"],"reasons":[{"dep":"store/disk","reason":"the disk is full","next":"Remove objects, or give the store another folder."}],"retry_after":1}
	// busy_rejections_total{endpoint="work",service="node"} 1
	// queue_capacity{queue="work",service="node"} 1
	// queue_depth{queue="work",service="node"} 1
	// queue_dropped_total{queue="work",service="node"} 0
}
