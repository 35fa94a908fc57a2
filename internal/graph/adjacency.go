package graph

import (
	"cmp"
	"slices"
	"sort"
)

// maxRun is the maximum length of a run: short enough to be moved for an
// insertion, long enough that even a list of a million has a few thousand runs.
const maxRun = 512

// adjacency is a set of nodes in the order of their names, as a list of runs.
// No run is empty, and all of one comes before all of the next.
type adjacency struct {
	runs [][]id
	size int
}

// position is a position in an adjacency: a run, and an index in it that may be
// its length.
type position struct{ run, index int }

func (e *edgeSet) name(n id) string { return e.nodes[n].name }

// find returns the position of a name, or where it would be inserted.
func (e *edgeSet) find(r *adjacency, name string) (at position, found bool) {
	after := sort.Search(len(r.runs), func(i int) bool { return e.name(r.runs[i][0]) > name })
	at.run = max(0, after-1) // the last run that starts at the name or before it
	if len(r.runs) == 0 {
		return at, false
	}
	at.index, found = slices.BinarySearchFunc(r.runs[at.run], name, func(n id, name string) int { return cmp.Compare(e.name(n), name) })
	return at, found
}

// insert inserts a node that is not present.
func (e *edgeSet) insert(r *adjacency, n id) {
	r.size++
	if len(r.runs) == 0 {
		r.runs = [][]id{{n}}
		return
	}
	at, _ := e.find(r, e.name(n))
	if len(r.runs[at.run]) == maxRun {
		at = r.splitRun(at)
	}
	r.runs[at.run] = slices.Insert(r.runs[at.run], at.index, n)
}

// splitRun splits a run in two, and returns the new location of a position in
// it. A node after all others gets a run of its own: names often arrive in
// order, and then runs stay full.
func (a *adjacency) splitRun(at position) position {
	run := a.runs[at.run]
	if at.run == len(a.runs)-1 && at.index == len(run) {
		a.runs = append(a.runs, nil)
		return position{run: at.run + 1}
	}
	const half = maxRun / 2
	a.runs = slices.Insert(a.runs, at.run+1, slices.Clone(run[half:]))
	a.runs[at.run] = run[:half]
	if at.index > half {
		return position{run: at.run + 1, index: at.index - half}
	}
	return at
}

// remove removes the node of a name that is present.
func (e *edgeSet) remove(r *adjacency, name string) {
	at, _ := e.find(r, name)
	r.size--
	r.runs[at.run] = slices.Delete(r.runs[at.run], at.index, at.index+1)
	r.rebalance(at.run)
}

// rebalance keeps runs from becoming many and short: an empty one is removed,
// and one that has become short is merged with a short neighbour.
func (a *adjacency) rebalance(i int) {
	if len(a.runs[i]) == 0 {
		a.runs = slices.Delete(a.runs, i, i+1)
		return
	}
	a.mergeRuns(i)
	a.mergeRuns(i - 1)
}

// mergeRuns merges two adjacent runs if they are short.
func (a *adjacency) mergeRuns(i int) {
	next := i + 1
	if i < 0 || next >= len(a.runs) || len(a.runs[i])+len(a.runs[next]) > maxRun/2 {
		return
	}
	a.runs[i] = append(a.runs[i], a.runs[next]...)
	a.runs = slices.Delete(a.runs, next, next+1)
}

// page lists the names after a given one, at most limit.
func (e *edgeSet) page(r *adjacency, after string, limit int) []string {
	at, found := e.find(r, after)
	if found {
		at.index++
	}
	names := make([]string, 0, min(limit, r.size))
	for ; at.run < len(r.runs); at = (position{run: at.run + 1}) {
		for _, n := range r.runs[at.run][at.index:] {
			if len(names) == limit {
				return names
			}
			names = append(names, e.name(n))
		}
	}
	return names
}
