package rank

import (
	"cmp"
	"slices"

	"micronode/internal/index/record"
)

// MaxAddrs is how many addresses of each kind one provider keeps.
const MaxAddrs = 16

// merge merges the providers of each node into one, in the order of their IDs.
func merge(providers []record.Provider) []record.Provider {
	sorted := make([]*record.Provider, len(providers))
	for i := range providers {
		sorted[i] = &providers[i]
	}
	slices.SortFunc(sorted, compareForMerge)
	merged := make([]record.Provider, 0, len(providers))
	for i, p := range sorted {
		if i == 0 || !isSameNode(sorted[i-1], p) {
			merged = append(merged, record.Provider{ID: p.ID, Source: p.Source})
		}
		mergeInto(&merged[len(merged)-1], p)
	}
	return merged
}

// isSameNode reports whether two providers are one node. Without an ID, they
// are only if all addresses are equal.
func isSameNode(a, b *record.Provider) bool {
	if a.ID != "" || b.ID != "" {
		return a.ID == b.ID
	}
	return compareAddrs(a, b) == 0
}

// compareForMerge is the order of merging. It is total except for providers
// that are equal in everything, so that the input order does not matter.
func compareForMerge(a, b *record.Provider) int {
	if c := cmp.Compare(a.ID, b.ID); c != 0 {
		return c
	}
	if a.ID == "" {
		if c := compareAddrs(a, b); c != 0 {
			return c
		}
	}
	return cmp.Or(
		cmp.Compare(sourceRank(a.Source), sourceRank(b.Source)),
		b.Seen.Compare(a.Seen),
		cmp.Compare(a.Source, b.Source),
		cmp.Compare(a.Region, b.Region),
		compareAddrs(a, b),
	)
}

func compareAddrs(a, b *record.Provider) int {
	return cmp.Or(slices.Compare(a.Overlay, b.Overlay), slices.Compare(a.HTTP, b.HTTP), slices.Compare(a.Other, b.Other))
}

// sourceRank is the rank of a source; the most reliable has 0.
func sourceRank(s record.Source) int {
	order := [...]record.Source{record.Local, record.Registry, record.Peer, record.DHT, record.Delegated, record.Cache}
	if at := slices.Index(order[:], s); at >= 0 {
		return at
	}
	return len(order)
}

// mergeInto merges a provider into another. No slice is shared with the input.
func mergeInto(to, p *record.Provider) {
	to.Overlay, to.HTTP, to.Other = appendUnique(to.Overlay, p.Overlay), appendUnique(to.HTTP, p.HTTP), appendUnique(to.Other, p.Other)
	to.Region = cmp.Or(to.Region, p.Region)
	if p.Seen.After(to.Seen) {
		to.Seen = p.Seen
	}
}

// appendUnique appends what is new, up to MaxAddrs.
func appendUnique(to, more []string) []string {
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
