package graph_test

import (
	"context"
	"fmt"

	"micronode/internal/flow"
	"micronode/internal/graph"
)

func Example() {
	ctx := context.Background()
	g, _ := graph.Open(flow.NewInventory(), graph.Spec{MaxEdges: 1000, MaxFollows: 100, WalkEdges: 100}) // in memory
	defer g.Close()
	for _, edge := range [][2]string{{"ann", "bob"}, {"bob", "cem"}, {"cem", "ann"}, {"dot", "bob"}} { // a circle, and dot
		_, _ = g.Follow(ctx, edge[0], edge[1])
	}

	found, truncated, _ := g.Neighbours(ctx, "ann", 3, 10, graph.Follows)
	fmt.Println(found, truncated)
	fmt.Println(g.Followers(ctx, "bob", "", 10))
	// Output:
	// [{bob 1} {cem 2}] false
	// [ann dot] <nil>
}
