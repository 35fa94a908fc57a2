package hedge

import (
	"cmp"
	"slices"

	"micronode/internal/index/record"
)

// A target may say anything. What is kept of all of them together is bounded.
const (
	mostProviders = 256
	mostAddresses = 16 // of each sort, of one provider
)

// merger joins what several targets say. Two targets that name the same
// provider have named one provider.
type merger struct {
	answer record.Answer
	place  map[string]int // of a provider in the answer, by its ID
}

// add takes an answer and reports whether there was anything in it. What it
// keeps is its own: the slices of the target stay as they are.
func (m *merger) add(a record.Answer, source record.Source) bool {
	if newest := record.Newer(m.answer.Name, a.Name); newest != m.answer.Name {
		m.answer.Name, m.answer.NamedBy = newest, cmp.Or(a.NamedBy, source)
	}
	for _, p := range a.Providers {
		if p.Source == "" {
			p.Source = source
		}
		m.provider(p)
	}
	return a.Name != nil || len(a.Providers) > 0
}

// provider adds one. Without an ID nobody can say whether it is known already,
// so each of those is another.
func (m *merger) provider(p record.Provider) {
	all := m.answer.Providers
	if i, known := m.place[p.ID]; known && p.ID != "" {
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
	if len(all) == mostProviders {
		return
	}
	if m.place == nil {
		m.place = map[string]int{}
	}
	m.place[p.ID] = len(all)
	p.Overlay, p.HTTP, p.Other = union(nil, p.Overlay), union(nil, p.HTTP), union(nil, p.Other)
	m.answer.Providers = append(all, p)
}

// union appends to a what is new in b.
func union(a, b []string) []string {
	for _, text := range b {
		if len(a) == mostAddresses {
			break
		}
		if !slices.Contains(a, text) {
			a = append(a, text)
		}
	}
	return a
}
