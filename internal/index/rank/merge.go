package rank

import (
	"cmp"
	"slices"

	"micronode/internal/index/record"
)

// MaxAddrs is how many addresses of each sort one provider keeps.
const MaxAddrs = 16

// merge makes one provider of all that is said about a node, in the order of
// their IDs.
func merge(providers []record.Provider) []record.Provider {
	sorted := make([]*record.Provider, len(providers))
	for i := range providers {
		sorted[i] = &providers[i]
	}
	slices.SortFunc(sorted, before)
	merged := make([]record.Provider, 0, len(providers))
	for i, p := range sorted {
		if i == 0 || !same(sorted[i-1], p) {
			merged = append(merged, record.Provider{ID: p.ID, Source: p.Source})
		}
		add(&merged[len(merged)-1], p)
	}
	return merged
}

// same tells whether two providers are one node. Without an ID nobody can tell,
// unless they are the same in every address.
func same(a, b *record.Provider) bool {
	if a.ID != "" || b.ID != "" {
		return a.ID == b.ID
	}
	return compareAddrs(a, b) == 0
}

// before is the order in which they are heard. It is total but for providers
// that are equal in everything, so that nothing depends on who came in first.
func before(a, b *record.Provider) int {
	if c := cmp.Compare(a.ID, b.ID); c != 0 {
		return c
	}
	if a.ID == "" {
		if c := compareAddrs(a, b); c != 0 {
			return c
		}
	}
	return cmp.Or(
		cmp.Compare(trust(a.Source), trust(b.Source)),
		b.Seen.Compare(a.Seen),
		cmp.Compare(a.Source, b.Source),
		cmp.Compare(a.Region, b.Region),
		compareAddrs(a, b),
	)
}

func compareAddrs(a, b *record.Provider) int {
	return cmp.Or(slices.Compare(a.Overlay, b.Overlay), slices.Compare(a.HTTP, b.HTTP), slices.Compare(a.Other, b.Other))
}

// trust is how far from the truth a source is.
func trust(s record.Source) int {
	order := [...]record.Source{record.Local, record.Registry, record.Peer, record.DHT, record.Delegated, record.Cache}
	if at := slices.Index(order[:], s); at >= 0 {
		return at
	}
	return len(order)
}

// add takes over what one more says about a node. No list is shared with what
// was given.
func add(to, p *record.Provider) {
	to.Overlay, to.HTTP, to.Other = join(to.Overlay, p.Overlay), join(to.HTTP, p.HTTP), join(to.Other, p.Other)
	to.Region = cmp.Or(to.Region, p.Region)
	if p.Seen.After(to.Seen) {
		to.Seen = p.Seen
	}
}

// join appends what is not there yet, as long as there is room.
func join(to, more []string) []string {
	for _, text := range more {
		if len(to) == MaxAddrs {
			break
		}
		if !slices.Contains(to, text) {
			to = append(to, text)
		}
	}
	return to
}
