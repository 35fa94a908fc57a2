package facet_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"micronode/internal/facet"
	"micronode/internal/flow"
	"micronode/internal/graph"
	"micronode/internal/mailbox"
	"micronode/internal/observe"
	"micronode/internal/supervise"
	"micronode/internal/testkit"
)

// A post is delivered to the followers of its author.
func Example() {
	inv := flow.NewInventory()
	supervisor, _ := supervise.New(supervise.Options{DrainTimeout: time.Second, Stages: []supervise.Stage{{Name: "state"}, {Name: "workers"}}})
	stages := facet.Stages{State: "state", Workers: "workers"}
	c := facet.DefaultConfig()
	c.Feed.Enabled, c.Graph.Enabled = true, true

	graph, _ := graph.Open(inv, c.Graph.Spec("")) // in memory
	defer graph.Close()
	limits := mailbox.DefaultConfig()
	box := mailbox.NewRAM(inv, limits.RAMSpec(false))
	defer box.Close()
	facets, err := facet.New(inv, supervisor, stages, facet.Spec{Config: c, Mailbox: box, Graph: graph, Audience: graph,
		Metrics: observe.NewMetrics(observe.Build{}), Readiness: observe.NewReadiness(inv, supervisor)})
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = facets.Add(supervisor, stages, func(facet.Event) {})
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = supervisor.Run(ctx)
	}()
	defer func() { stop(); <-ended }()

	ask := func(method, path, body string, values ...string) string {
		request := httptest.NewRequest(method, path, strings.NewReader(body))
		for i := 0; i+1 < len(values); i += 2 {
			request.SetPathValue(values[i], values[i+1])
		}
		for _, route := range facets.Routes() {
			if route.Methods[0] == method && strings.HasPrefix(path, strings.SplitAfter(route.Pattern, "/")[0]+strings.SplitAfter(route.Pattern, "/")[1]) {
				answer := httptest.NewRecorder()
				if err := route.Handler(answer, request); err != nil {
					return err.Error()
				}
				return answer.Body.String()
			}
		}
		return ""
	}
	ask(http.MethodPut, "/graph/bob/follows/ann", "", "a", "bob", "b", "ann")
	ask(http.MethodPost, "/feed/ann", `{"body":"the bridge is open again"}`, "user", "ann")
	testkit.Poll(func() bool { return strings.Contains(ask(http.MethodGet, "/feed/bob", "", "user", "bob"), "bridge") })
	fmt.Println("bob reads it")
	// Output: bob reads it
}
