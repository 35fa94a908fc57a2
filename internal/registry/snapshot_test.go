package registry

import (
	"bytes"
	"os"
	"testing"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/registry/ledger"
)

// sample is a snapshot that is always the same: a beginning, and a change of the
// signers after it.
func sample(t testing.TB) snapshot {
	t.Helper()
	at := time.Date(2025, 10, 8, 12, 0, 0, 0, time.UTC)
	set, err := signersOf(initRequest(1, alice, bob))
	must(t, err)
	first, state, err := ledger.Genesis(ledger.GenesisSpec{Signers: set, At: at})
	must(t, err)
	wanted, err := ledger.DecodeRequest([]byte(`{"schema_version":"1.0.0","ops":[` + string(signers(2, alice, bob, carol)) + `,` + string(name("docs", "1")) + `]}`))
	must(t, err)
	p, err := state.Propose(wanted, ledger.ProposalID([16]byte{1}), at, at.Add(time.Hour))
	must(t, err)
	second, state, err := state.Commit(p, []ledger.Approval{ledger.Approve(p.SignThis, alice.key, alice.id, at)}, at.Add(time.Minute))
	must(t, err)
	return snapshot{state: state, signers: []ledger.Record{first, second}}
}

// A snapshot is written as it was when the first one was kept on a disk, and
// those are still read.
func TestTheFormOfASnapshot(t *testing.T) {
	s := sample(t)
	golden, err := os.ReadFile("testdata/snapshot-v1")
	must(t, err)
	if !bytes.Equal(s.bytes(), golden) {
		t.Errorf("the snapshot is %s, and was %s", b3.Of(s.bytes()), b3.Of(golden))
	}
	back, err := parseSnapshot(golden)
	must(t, err)
	if back.state.Head() != s.state.Head() || len(back.signers) != 2 || back.signers[1].Head() != s.signers[1].Head() || back.state.Len() != 2 {
		t.Errorf("read as %+v", back)
	}
}

// Nothing but a snapshot is read as one.
func FuzzSnapshot(f *testing.F) {
	good := sample(f).bytes()
	f.Add(good)
	f.Add([]byte(snapshotMagic))
	f.Add(good[:len(good)-1])
	f.Add(append(bytes.Clone(good), 0))
	f.Add([]byte(snapshotMagic + "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"))
	f.Add([]byte(snapshotMagic + "\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"))
	f.Add([]byte(snapshotMagic + "\x80\x00\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := parseSnapshot(data)
		if err != nil {
			if fault.KindOf(err) == fault.Internal {
				t.Errorf("an error without a kind: %v", err)
			}
			return
		}
		if !bytes.Equal(s.bytes(), data) {
			t.Error("it is written otherwise than it was read")
		}
	})
}
