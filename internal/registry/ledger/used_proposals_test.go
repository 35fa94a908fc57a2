package ledger

import (
	"encoding/binary"
	"maps"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func idOf(n uint64) (id proposalID) {
	binary.LittleEndian.PutUint64(id[:], n*0x9e3779b97f4a7c15) // far apart and out of order
	return id
}

// The set of used proposals is compared with a map, over long histories with
// branches: an abandoned commit leaves no trace.
func TestUsedProposalsIsASet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s usedProposals
		model := map[uint64]int64{} // which proposal expires when
		now := time.UnixMilli(1_000_000)
		for n := uint64(1); n <= uint64(rapid.IntRange(1, 200).Draw(t, "commits")); n++ {
			now = now.Add(time.Duration(rapid.IntRange(0, 30).Draw(t, "pause")) * time.Millisecond)
			u := usedProposal{idOf(n), now.UnixMilli() + rapid.Int64Range(0, 500).Draw(t, "life"), n}
			s.with(usedProposal{idOf(n + 1000), u.expires, n}, now) // abandoned
			s = s.with(u, now)
			model[n] = u.expires
			maps.DeleteFunc(model, func(_ uint64, expires int64) bool { return expires < now.UnixMilli() })
			compare(t, s, model, n, now)
		}
	})
}

func compare(t *rapid.T, s usedProposals, model map[uint64]int64, last uint64, now time.Time) {
	for n := uint64(1); n <= last; n++ {
		version, found := s.find(idOf(n), now)
		if _, want := model[n]; found != want || found && version != n {
			t.Fatalf("proposal %d: found %t as %d, want %t", n, found, version, want)
		}
		if _, found := s.find(idOf(n+1000), now); found {
			t.Fatalf("a commit that was given up is remembered")
		}
	}
	all := s.unexpired(now)
	if len(all) != len(model) {
		t.Fatalf("%d are listed, want %d", len(all), len(model))
	}
	for i, u := range all {
		if u.expires != model[u.version] || i > 0 && all[i-1].version >= u.version {
			t.Fatalf("listed as %v", all)
		}
	}
	if len(s) > 10 {
		t.Fatalf("%d runs for %d commits", len(s), last)
	}
}
