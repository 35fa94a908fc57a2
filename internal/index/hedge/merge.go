package hedge

import (
	"cmp"

	"micronode/internal/index/record"
)

// maxProviders bounds the merged answer: targets are untrusted.
const maxProviders = 256

// merger merges the answers of several targets. Providers with the same ID are
// one provider.
type merger struct {
	answer    record.Answer
	indexByID map[string]int // of a provider in the answer
}

// add merges an answer and reports whether there was anything in it. It copies
// what it keeps: the slices of the target stay unchanged. Providers without an
// ID cannot be compared, so each of them is a new one.
func (m *merger) add(a record.Answer, source record.Source) bool {
	if newest := record.Newer(m.answer.Name, a.Name); newest != m.answer.Name {
		m.answer.Name, m.answer.NamedBy = newest, cmp.Or(a.NamedBy, source)
	}
	for i := range a.Providers {
		p := &a.Providers[i]
		at, known := m.indexByID[p.ID]
		if !known || p.ID == "" {
			if at = len(m.answer.Providers); at == maxProviders {
				continue
			}
			if m.indexByID == nil {
				m.indexByID = map[string]int{}
			}
			m.indexByID[p.ID] = at
			m.answer.Providers = append(m.answer.Providers, record.Provider{ID: p.ID, Source: cmp.Or(p.Source, source)})
		}
		m.answer.Providers[at].Merge(p)
	}
	return a.Name != nil || len(a.Providers) > 0
}
