package registry

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"micronode/internal/registry/ledger"
)

// What a commit costs here, from an approved proposal to the new head: without
// HTTP, in memory. The proposals are made beforehand.
func BenchmarkCommit(b *testing.B) {
	h := open(b, with(func(c *Config) { c.MaxProposals, c.Storage.RAMBytes = 1<<16, 8<<30 }))
	h.init()
	ids := make([]string, b.N)
	for i := range ids {
		ids[i] = h.approvedDirectly(fmt.Sprintf("n%d", i))
	}
	b.ReportAllocs()
	b.ResetTimer()
	var next atomic.Int64
	var all sync.WaitGroup
	for range 64 {
		all.Go(func() {
			for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
				if _, err := h.Registry.Commit(b.Context(), ids[i-1]); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
}

// approvedDirectly puts an approved proposal on the docket, as the handlers do.
func (h *house) approvedDirectly(id string) string {
	h.t.Helper()
	state := h.view.Load().state
	wanted, err := ledger.DecodeRequest(fmt.Appendf(nil, `{"schema_version":"1.0.0","ops":[%s]}`, name(id, "1")))
	must(h.t, err)
	p, err := h.lodge(h.ctx(), "test", 0, proposing(wanted))
	must(h.t, err)
	for _, s := range []signer{alice, bob}[:min(2, state.Signers().M)] {
		a := ledger.Approve(p.SignThis, s.key, s.id, h.now())
		must(h.t, p.Check(state, a, h.now(), h.spec.Skew))
		_, err := h.hand(bandApprovals, 1, newJob(h.ctx(), func(c *committer, _ *job) outcome { return c.approve(p.ID, a) }))
		must(h.t, err)
	}
	return p.ID
}
