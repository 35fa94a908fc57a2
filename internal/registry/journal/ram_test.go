package journal_test

import (
	"bytes"
	"testing"

	"micronode/fault"
	"micronode/internal/registry/journal"
	"micronode/internal/registry/ledger"
	"micronode/internal/testkit"
)

func TestRAMIsBounded(t *testing.T) {
	m, ctx := journal.NewRAM(journal.RAMSpec{MaxBytes: 10_000}), t.Context()
	var all []ledger.Record
	var err error
	for err == nil {
		next := victimRecord(uint64(len(all)))
		if err = m.Append(ctx, headOf(all), []ledger.Record{next}); err == nil {
			all = append(all, next)
		}
	}
	testkit.WantKind(t, err, fault.StoreFull)
	if head, err := m.Head(ctx); err != nil || head != *headOf(all) || len(all) < 4 || m.Bytes() > 10_000 {
		t.Fatalf("%d records, %d bytes; head %v, %v", len(all), m.Bytes(), head, err)
	}
	testkit.WantKind(t, m.SaveCheckpoint(ctx, journal.Checkpoint{Size: 1, Snapshot: make([]byte, 5000)}), fault.StoreFull)
	testkit.WantKind(t, m.SaveTile(ctx, journal.TileID{}, make([]byte, 8192)), fault.StoreFull)
	_, err = m.Prune(ctx, journal.Prune{Below: 1, Note: make([]byte, 9000)})
	testkit.WantKind(t, err, fault.StoreFull)

	if first, err := m.Prune(ctx, journal.Prune{Below: 3}); err != nil || first != 3 {
		t.Fatal(first, err)
	}
	if err := m.Append(ctx, headOf(all), []ledger.Record{victimRecord(uint64(len(all)))}); err != nil {
		t.Errorf("after Prune: %v", err)
	}
	for range 100 { // replacing costs nothing
		testkit.Must(t, m.SaveTile(ctx, journal.TileID{}, make([]byte, 100)))
		testkit.Must(t, m.SaveCheckpoint(ctx, journal.Checkpoint{Size: 1, Note: make([]byte, 100)}))
	}
	if err := m.Close(); err != nil || m.Bytes() != 0 {
		t.Errorf("after Close: %d bytes, %v", m.Bytes(), err)
	}
}

// What was read before Close is the reader's, and stays.
func TestRAMGivesCopies(t *testing.T) {
	m, ctx := journal.NewRAM(journal.RAMSpec{}), t.Context()
	testkit.Must(t, m.Append(ctx, nil, []ledger.Record{victimRecord(0)}))
	r, err := m.Read(ctx, 0)
	testkit.Must(t, err)
	clear(r.Payload)
	again, err := m.Read(ctx, 0)
	if err != nil || !bytes.Equal(again.Payload, victimRecord(0).Payload) {
		t.Errorf("a reader has changed the log: %v", err)
	}
	_ = m.Close()
	if !sameRecord(again, victimRecord(0)) {
		t.Error("Close has taken what a reader had")
	}
}
