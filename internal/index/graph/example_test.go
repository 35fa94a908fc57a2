package graph_test

import (
	"fmt"

	"micronode/internal/index/graph"
)

func Example() {
	g := graph.New(graph.Limits{Edges: 1000, Follows: 100})
	g.Follow("ann", "bob")
	g.Follow("bob", "cem")
	g.Follow("cem", "ann") // a circle
	g.Follow("dot", "bob")

	found, truncated, _ := g.Walk(new(graph.Scratch),
		graph.Walk{From: "ann", Direction: graph.Follows, Hops: 3, Most: 10, Edges: 100}, func() error { return nil })
	fmt.Println(found, truncated)
	fmt.Println(g.Followers("bob", "", 10))
	// Output:
	// [{bob 1} {cem 2}] false
	// [ann dot]
}
