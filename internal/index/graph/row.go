package graph

import (
	"cmp"
	"slices"
	"sort"
)

// longest is how long a run may be: short enough to be moved for an insertion,
// long enough that even a row of a million is a list of a few thousand.
const longest = 512

// row is a set of nodes in the order of their names, as a list of runs. No run
// is empty, and all of one comes before all of the next.
type row struct {
	runs [][]id
	size int
}

// place is a position in a row: a run, and an index in it that may be its
// length.
type place struct{ run, index int }

func (g *Graph) name(n id) string { return g.nodes[n].name }

// find is where a name is, or where it would be put in.
func (g *Graph) find(r *row, name string) (at place, found bool) {
	after := sort.Search(len(r.runs), func(i int) bool { return g.name(r.runs[i][0]) > name })
	at.run = max(0, after-1) // the last run that begins at the name or before it
	if len(r.runs) == 0 {
		return at, false
	}
	at.index, found = slices.BinarySearchFunc(r.runs[at.run], name, func(n id, name string) int { return cmp.Compare(g.name(n), name) })
	return at, found
}

// insert puts a node into a row in which it is not.
func (g *Graph) insert(r *row, n id) {
	r.size++
	if len(r.runs) == 0 {
		r.runs = [][]id{{n}}
		return
	}
	at, _ := g.find(r, g.name(n))
	if len(r.runs[at.run]) == longest {
		at = r.split(at)
	}
	r.runs[at.run] = slices.Insert(r.runs[at.run], at.index, n)
}

// split makes two runs of one, and says where a place in it is now. One who
// comes after all the others gets a run of its own: names often come in order,
// and then runs are left full.
func (r *row) split(at place) place {
	run := r.runs[at.run]
	if at.run == len(r.runs)-1 && at.index == len(run) {
		r.runs = append(r.runs, nil)
		return place{run: at.run + 1}
	}
	const half = longest / 2
	r.runs = slices.Insert(r.runs, at.run+1, slices.Clone(run[half:]))
	r.runs[at.run] = run[:half]
	if at.index > half {
		return place{run: at.run + 1, index: at.index - half}
	}
	return at
}

// remove takes the node of a name out of a row in which it is.
func (g *Graph) remove(r *row, name string) {
	at, _ := g.find(r, name)
	r.size--
	r.runs[at.run] = slices.Delete(r.runs[at.run], at.index, at.index+1)
	r.tidy(at.run)
}

// tidy keeps runs from becoming many and short: one that is empty goes, and one
// that has become short is joined with a neighbour that is short, too.
func (r *row) tidy(i int) {
	if len(r.runs[i]) == 0 {
		r.runs = slices.Delete(r.runs, i, i+1)
		return
	}
	r.join(i)
	r.join(i - 1)
}

// join makes one run of two that are next to each other, if they are short.
func (r *row) join(i int) {
	next := i + 1
	if i < 0 || next >= len(r.runs) || len(r.runs[i])+len(r.runs[next]) > longest/2 {
		return
	}
	r.runs[i] = append(r.runs[i], r.runs[next]...)
	r.runs = slices.Delete(r.runs, next, next+1)
}

// page lists the names of a row after one, at most limit.
func (g *Graph) page(r *row, after string, limit int) []string {
	at, found := g.find(r, after)
	if found {
		at.index++
	}
	names := make([]string, 0, min(limit, r.size))
	for ; at.run < len(r.runs); at = (place{run: at.run + 1}) {
		for _, n := range r.runs[at.run][at.index:] {
			if len(names) == limit {
				return names
			}
			names = append(names, g.name(n))
		}
	}
	return names
}
