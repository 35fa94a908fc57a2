package registry

import (
	"testing"

	"micronode/internal/registry/registrytest"
)

// Whatever many clients are told over HTTP while they propose, approve, commit
// and read at the same time could have been told to them one after another,
// also if the storage loses answers.
func TestAllAtOnceLooksLikeOneAfterAnother(t *testing.T) {
	for _, storage := range []struct {
		name   string
		fickle bool
		make   func(t *testing.T) Journal
	}{
		{"in memory", false, func(*testing.T) Journal { return inMemory() }},
		{"in files", false, func(t *testing.T) Journal { return files(t, t.TempDir()) }},
		{"in memory that loses answers", true, func(*testing.T) Journal { return inMemory() }},
		{"in files that lose answers", true, func(t *testing.T) Journal { return files(t, t.TempDir()) }},
	} {
		t.Run(storage.name, func(t *testing.T) {
			committed := 0
			for seed := range uint64(3) {
				j := &fickle{Journal: storage.make(t)}
				h := open(t, on(j))
				w := registrytest.Workload{URLs: []string{h.url}, Client: h.client, Signers: registrytest.Signers(), Seed: seed}
				if storage.fickle {
					w.Lose = func(kept bool) { j.goWrong(mishap{err: lost, kept: kept}) }
				}
				_, err := w.Begin(t.Context())
				must(t, err)
				history := w.Run(t.Context())
				h.close()
				committed += len(history.Commits())
				if err := registrytest.Check(history); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
			}
			if committed < 3 {
				t.Errorf("they committed %d times, which shows little", committed)
			}
		})
	}
}
