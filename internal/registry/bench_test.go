package registry

import (
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"

	"micronode/internal/registry/ledger"
	"micronode/internal/testkit"
)

// What a commit costs here, from an approved proposal to the new head: without
// HTTP, in memory. The proposals are made beforehand.
func BenchmarkCommit(b *testing.B) {
	h := startRegistry(b, withConfig(func(c *Config) { c.MaxProposals, c.Storage.RAMBytes = 1<<16, 8<<30 }))
	h.init()
	ids := make([]string, b.N)
	for i := range ids {
		ids[i] = h.approveDirectly(fmt.Sprintf("n%d", i))
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

// approveDirectly adds an approved proposal to the pending ones, as the handlers do.
func (r *testRegistry) approveDirectly(id string) string {
	r.t.Helper()
	state := r.view.Load().state
	wanted, err := ledger.DecodeRequest(fmt.Appendf(nil, `{"schema_version":"1.0.0","ops":[%s]}`, putName(id, "1")))
	testkit.Must(r.t, err)
	p, err := r.Propose(r.ctx(), netip.Addr{}, wanted)
	testkit.Must(r.t, err)
	for _, s := range []signer{alice, bob}[:min(2, state.Signers().M)] {
		_, _, err := r.Approve(r.ctx(), p.ID, ledger.Approve(p.SignThis, s.key, s.id, r.now()))
		testkit.Must(r.t, err)
	}
	return p.ID
}
