package registry

import (
	"testing"

	"micronode/internal/registry/registrytest"
	"micronode/internal/testkit"
)

// The registry is linearisable: the answers to many clients that propose, approve,
// commit and read over HTTP at the same time could have been given one after another,
// also if the storage loses answers.
func TestAllAtOnceLooksLikeOneAfterAnother(t *testing.T) {
	for _, storage := range []struct {
		name   string
		fickle bool
		make   func(t *testing.T) Journal
	}{
		{"in memory", false, func(*testing.T) Journal { return newRAMJournal() }},
		{"in files", false, func(t *testing.T) Journal { return openFiles(t, t.TempDir()) }},
		{"in memory that loses answers", true, func(*testing.T) Journal { return newRAMJournal() }},
		{"in files that lose answers", true, func(t *testing.T) Journal { return openFiles(t, t.TempDir()) }},
	} {
		t.Run(storage.name, func(t *testing.T) {
			committed := 0
			for seed := range uint64(3) {
				j := &faultyJournal{Journal: storage.make(t)}
				h := startRegistry(t, withJournal(j))
				w := registrytest.Workload{URLs: []string{h.url}, Client: h.client, Signers: registrytest.Signers(), Seed: seed}
				if storage.fickle {
					w.LoseNextAnswer = func(kept bool) { j.failNext(writeFault{err: errAnswerLost, persisted: kept}) }
				}
				_, err := w.Init(t.Context())
				testkit.Must(t, err)
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
