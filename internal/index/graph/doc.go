// Package graph is who follows whom, in memory: edges from one name to
// another, and the walk from a name to those around it.
//
// It is a room of the index. It knows nothing of requests, locks, disks or
// clocks: [Graph] is data, its methods return when they are done, and whoever
// owns it sees to it that nobody changes it while another one reads. So
// everything here can be held against a model that is a map of maps.
//
// # How it is kept
//
// A name is kept once and stands for a number from then on; edges are pairs of
// these numbers. Each node has two rows, those it follows and those who follow
// it, each in the order of their names. A row is a list of short runs: to put a
// number into the middle of a million is to move a few hundred. A page of a row
// begins after a name, and that name need not be there any more, so whoever
// reads a long row page by page misses nobody and sees nobody twice, whatever
// comes and goes meanwhile. A node with no edge left is forgotten, so that
// what is kept is bounded by the edges alone.
//
// # How it is walked
//
// [Graph.Walk] goes breadth first: all that is one step away, then all that is
// two steps away. It is bounded three times: by the number of steps, by how
// many it may find, and by how many edges it may look at. The last is what makes
// cycles and celebrities harmless: a node with a million followers costs a walk
// no more than any other, the walk only ends there and says that it is not all.
// A walk allocates what it returns; what it has seen is noted in a [Scratch]
// that is used again.
package graph
