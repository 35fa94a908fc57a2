package hedge

import (
	"cmp"
	"slices"

	"micronode/internal/index/record"
)

// Targets are untrusted. The merged answer is bounded.
const (
	maxProviders = 256
	maxAddresses = 16 // of each kind, of one provider
)

// merger merges the answers of several targets. Providers with the same ID are
// one provider.
type merger struct {
	answer    record.Answer
	indexByID map[string]int // of a provider in the answer
}

// add merges an answer and reports whether there was anything in it. It copies
// what it keeps: the slices of the target stay unchanged.
func (m *merger) add(a record.Answer, source record.Source) bool {
	if newest := record.Newer(m.answer.Name, a.Name); newest != m.answer.Name {
		m.answer.Name, m.answer.NamedBy = newest, cmp.Or(a.NamedBy, source)
	}
	for _, p := range a.Providers {
		if p.Source == "" {
			p.Source = source
		}
		m.addProvider(p)
	}
	return a.Name != nil || len(a.Providers) > 0
}

// addProvider adds a provider. Providers without an ID cannot be compared, so
// each of them is a new one.
func (m *merger) addProvider(p record.Provider) {
	all := m.answer.Providers
	if i, known := m.indexByID[p.ID]; known && p.ID != "" {
		was := &all[i]
		was.Overlay = union(was.Overlay, p.Overlay)
		was.HTTP = union(was.HTTP, p.HTTP)
		was.Other = union(was.Other, p.Other)
		if was.Region == "" {
			was.Region = p.Region
		}
		if p.Seen.After(was.Seen) {
			was.Seen = p.Seen
		}
		return
	}
	if len(all) == maxProviders {
		return
	}
	if m.indexByID == nil {
		m.indexByID = map[string]int{}
	}
	m.indexByID[p.ID] = len(all)
	p.Overlay, p.HTTP, p.Other = union(nil, p.Overlay), union(nil, p.HTTP), union(nil, p.Other)
	m.answer.Providers = append(all, p)
}

// union appends to a what is new in b.
func union(a, b []string) []string {
	for _, text := range b {
		if len(a) == maxAddresses {
			break
		}
		if !slices.Contains(a, text) {
			a = append(a, text)
		}
	}
	return a
}
