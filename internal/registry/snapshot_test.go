package registry

import (
	"bytes"
	"os"
	"testing"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/registry/ledger"
	"micronode/internal/testkit"
)

// sampleSnapshot returns a fixed snapshot: a genesis, and a change of the signers after
// it.
func sampleSnapshot(t testing.TB) snapshot {
	t.Helper()
	at := time.Date(2025, 10, 8, 12, 0, 0, 0, time.UTC)
	set, err := signersOf(initRequest(1, alice, bob))
	testkit.Must(t, err)
	first, state, err := ledger.Genesis(ledger.GenesisSpec{Signers: set, At: at})
	testkit.Must(t, err)
	wanted, err := ledger.DecodeRequest([]byte(`{"schema_version":"1.0.0","ops":[` + string(putSigners(2, alice, bob, carol)) + `,` + string(putName("docs", "1")) + `]}`))
	testkit.Must(t, err)
	p, err := state.Propose(wanted, ledger.ProposalID([16]byte{1}), at, at.Add(time.Hour))
	testkit.Must(t, err)
	second, state, err := state.Commit(p, []ledger.Approval{ledger.Approve(p.SignThis, alice.key, alice.id, at)}, at.Add(time.Minute))
	testkit.Must(t, err)
	return snapshot{state: state, signers: []ledger.Record{first, second}}
}

// The format of a snapshot has not changed since the first one was stored on a disk,
// and those can still be read.
func TestTheFormatOfASnapshot(t *testing.T) {
	s := sampleSnapshot(t)
	golden, err := os.ReadFile("testdata/snapshot-v1")
	testkit.Must(t, err)
	if !bytes.Equal(s.encode(), golden) {
		t.Errorf("the snapshot is %s, and was %s", b3.Of(s.encode()), b3.Of(golden))
	}
	back, err := parseSnapshot(golden)
	testkit.Must(t, err)
	if back.state.Head() != s.state.Head() || len(back.signers) != 2 || back.signers[1].Head() != s.signers[1].Head() || back.state.Len() != 2 {
		t.Errorf("read as %+v", back)
	}
}

// Only a canonical snapshot is accepted.
func FuzzSnapshot(f *testing.F) {
	good := sampleSnapshot(f).encode()
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
		if !bytes.Equal(s.encode(), data) {
			t.Error("it is written otherwise than it was read")
		}
	})
}
