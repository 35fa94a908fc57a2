// Package graph keeps who follows whom, and finds the nodes around a node.
//
// The graph is in memory. With a path, every change is in a log on disk before
// it is acknowledged, and the log is replayed when the graph is opened. A change
// waits for the disk in a bounded lane; a read waits for nothing. Package facet
// serves the graph to clients. Another process of the same node reads it by
// routes of its own, through [Remote].
//
// # Representation
//
// A name is stored once and represented by a number; edges are pairs of these
// numbers. Each node has two adjacency lists, the nodes it follows and its
// followers, each in the order of their names. An adjacency list is a list of
// short runs: an insertion into the middle of a million moves a few hundred. A
// page starts after a name, and that name need not exist any more, so reading a
// long list page by page misses no permanent entry and returns none twice,
// whatever changes meanwhile. A node without edges is released, so that memory
// is bounded by the edges alone.
//
// The edges know nothing of requests, locks, disks or clocks: they are data,
// and [Graph] ensures that they do not change while they are read. So they can
// be tested against a model that is a map of maps.
//
// # Walks
//
// [Graph.Neighbours] goes breadth first: all nodes that are one hop away, then
// all that are two hops away. It has three limits: the number of hops, of nodes
// found, and of edges visited. The last makes cycles and very popular nodes
// harmless: at a node with a million followers the walk stops and reports that
// it is truncated. A walk allocates only its result; visited nodes are marked
// in working memory that is reused.
package graph
