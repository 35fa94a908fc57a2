package tampertest

import (
	"bytes"
	"context"
	"encoding/binary"
	"hash/crc32"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"micronode/fault"
	"micronode/internal/disk/disktest"
	"micronode/internal/registry"
	"micronode/internal/registry/journal"
	"micronode/internal/registry/ledger"
	"micronode/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTamperingInMemory(t *testing.T) {
	Run(t, func(*testing.T) Storage { return Storage{Journal: journal.NewRAM(journal.RAMSpec{})} })
}

func TestTamperingInFiles(t *testing.T) {
	Run(t, func(t *testing.T) Storage {
		folder := t.TempDir()
		j := openFiles(t, folder)
		return Storage{
			Journal: j,
			Reopen: func() journal.Journal {
				must(t, j.Close())
				return openFiles(t, folder)
			},
			Verify: func(ctx context.Context, trust registry.Trust) (registry.Report, error) {
				return registry.VerifyFolder(ctx, folder, trust, nil)
			},
		}
	})
}

// openFiles opens a folder whose segments end with every batch, so that some
// versions stay that a prune note covers. Nothing is synced: hundreds of logs are
// written, and none of them through a power cut.
func openFiles(t *testing.T, folder string) *journal.Files {
	t.Helper()
	j, err := journal.OpenFiles(journal.FilesSpec{Folder: folder, FS: disktest.Unsynced(), SegmentVersions: batch})
	must(t, err)
	return j
}

// A log of 5,200 versions that a node has pruned by itself, with its default
// settings. The file of version 5100 is edited: the payload changes, and the
// checksums are corrected.
func TestForgedWithAnEditor(t *testing.T) {
	const versions, forged, retained = 5200, 5100, 256
	folder := t.TempDir()
	j, err := journal.OpenFiles(journal.FilesSpec{Folder: folder})
	must(t, err)
	l := &testLog{}
	l.grow(versions)
	l.write(t, j)
	n, err := open(t, j, func(c *registry.Config) { c.Storage.Retain, c.Storage.CheckpointInterval = retained, time.Millisecond })
	must(t, err)
	testkit.WaitFor(t, "the log is pruned", func() bool {
		_, first, err := j.Pruned(t.Context())
		must(t, err)
		return first > 0
	})
	n.stop()
	report, err := registry.VerifyFolder(t.Context(), folder, l.trust(), nil)
	if err != nil || report.First == 0 || report.Head.Version != versions-1 {
		t.Fatalf("before, it is %+v, %v", report, err)
	}

	editFile(t, folder, l.records[forged])
	if report, err := registry.VerifyFolder(t.Context(), folder, l.trust(), nil); fault.KindOf(err) != fault.IntegrityFail {
		t.Errorf("from outside it is %+v, %v", report, err)
	}
	j, err = journal.OpenFiles(journal.FilesSpec{Folder: folder})
	must(t, err)
	n, err = open(t, j)
	must(t, err)
	for _, path := range []string{pathNoItems, pathVersion, pathBundle} {
		if _, err := n.get(path, forged); fault.KindOf(err) != fault.IntegrityFail {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := n.get(pathNoItems, forged-1); err != nil {
		t.Errorf("the version before it: %v", err)
	}
	n.waitFor("damaged")
}

// grow makes a log that is approved by one signer, which takes half the time.
func (l *testLog) grow(versions int) {
	set := signerSet("alice")
	set.M = 1
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	first, state, err := ledger.Genesis(ledger.GenesisSpec{Signers: set, Nonce: [16]byte{2}, At: at})
	panicOn(err)
	l.registry, l.records = state.Registry(), []ledger.Record{first}
	for n := 1; n < versions; n++ {
		p, err := state.Propose(ledger.Request{Ops: []ledger.Op{ledger.Put(l.item(n + versions))}}, ledger.ProposalID(idOf(n)), at, at.Add(time.Hour))
		panicOn(err)
		record, next, err := state.Commit(p, []ledger.Approval{ledger.Approve(p.SignThis, keyOf("alice"), "alice", at)}, at)
		panicOn(err)
		state = next
		l.records = append(l.records, record)
	}
}

// editFile changes the payload of a record in place, following the description
// of the segment format: four lengths and numbers, and two checksums.
func editFile(t *testing.T, folder string, r ledger.Record) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(folder, "segments", "*"))
	must(t, err)
	for _, name := range names {
		b, err := os.ReadFile(name)
		must(t, err)
		at := bytes.Index(b, r.Payload)
		if at < 0 {
			continue
		}
		frame := b[at-len(r.Header)-40:]
		payload := frame[40+len(r.Header):][:len(r.Payload)]
		copy(payload, bytes.Replace(payload, []byte(`"manifest":"b3:00`), []byte(`"manifest":"b3:ff`), 1))
		body := 40 + (len(r.Header)+len(r.Payload)+len(r.Preconditions)+7)/8*8
		sum := func(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }
		binary.LittleEndian.PutUint32(frame[32:], sum(frame[40:body]))
		binary.LittleEndian.PutUint32(frame[36:], sum(frame[:36]))
		must(t, os.WriteFile(name, b, 0o600))
		return
	}
	t.Fatal("there is no such record")
}
