package journal_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"micronode/fault"
	"micronode/internal/disk/disktest"
	"micronode/internal/registry/journal"
	"micronode/internal/registry/ledger"
)

// crashModel is a journal on a disk that fails and loses power, and the model
// of what must be there.
type crashModel struct {
	*rapid.T
	random *rand.Rand
	disk   *crashDisk
	j      *journal.Files

	acked       []ledger.Record // acknowledged, or seen in the log after opening it
	tried       []ledger.Record // not acknowledged; may be there
	checkpoint  uint64          // the size of the last that was acknowledged
	pruned      uint64          // up to where it was acknowledged
	triedPrune  uint64          // up to where it was tried
	tiles       uint64          // so many were saved
	tilesSynced bool            // the first of them, by a prune
	wasRefused  bool            // a write has failed; later ones must be refused
	stepsLeft   int             // until something happens
	fault       error
	interrupted bool
}

var folder = "/registry"

func (m *crashModel) inject(step, _ string) error {
	if m.interrupted {
		return disktest.ErrPowerCut
	}
	if m.stepsLeft--; m.stepsLeft != 0 || m.fault == nil {
		return nil
	}
	if errors.Is(m.fault, disktest.ErrPowerCut) {
		m.interrupted = true
	}
	return m.fault
}

// record makes the record of a version: a different one in each life.
func (m *crashModel) record(version uint64) ledger.Record {
	r := ledger.Record{Version: version, Header: fmt.Appendf(nil, "%d %d", version, m.random.Uint64()), Payload: make([]byte, m.random.IntN(1500))}
	for i := range r.Payload {
		r.Payload[i] = byte(m.random.Uint32())
	}
	return r
}

func sameRecord(a, b ledger.Record) bool {
	return a.Version == b.Version && bytes.Equal(a.Header, b.Header) && bytes.Equal(a.Payload, b.Payload) && bytes.Equal(a.Preconditions, b.Preconditions)
}

func headOf(all []ledger.Record) *ledger.Head {
	if len(all) == 0 {
		return nil
	}
	head := all[len(all)-1].Head()
	return &head
}

// open opens the journal and checks it against what is known.
func (m *crashModel) open() {
	j, err := journal.OpenFiles(journal.FilesSpec{Folder: folder, FS: m.disk, SegmentVersions: 5})
	if err != nil {
		if m.fault == nil {
			m.Fatalf("open: %v", err)
		}
		return // a fault came while it was opened
	}
	m.j, m.wasRefused = j, false
	if damage := j.Opened().Damaged; len(damage) > 0 {
		m.Fatalf("damage where there is none: %v", damage)
	}
	m.check()
}

func (m *crashModel) check() {
	ctx := context.Background()
	end := 0
	head, err := m.j.Head(ctx)
	switch {
	case err == nil:
		end = int(head.Version) + 1
	case fault.KindOf(err) != fault.NotFound && !m.interrupted:
		m.Fatalf("Head: %v", err)
	}
	if m.interrupted {
		return
	}
	if end < len(m.acked) || end > len(m.acked)+len(m.tried) {
		m.Fatalf("the log has %d versions; %d were acknowledged, %d more were tried", end, len(m.acked), len(m.tried))
	}
	m.acked, m.tried = append(m.acked, m.tried[:end-len(m.acked)]...), nil
	note, first, err := m.j.Pruned(ctx)
	if err != nil || note.Below < m.pruned || note.Below > max(m.pruned, m.triedPrune) || first > note.Below {
		m.Fatalf("Pruned: %v, first %d, %v; %d was acknowledged, %d was tried", note, first, err, m.pruned, m.triedPrune)
	}
	m.pruned = note.Below
	for v, want := range m.acked {
		got, err := m.j.Read(ctx, uint64(v))
		if m.interrupted || m.isInjected(err) {
			return
		}
		if uint64(v) < first {
			if fault.KindOf(err) != fault.Expired {
				m.Fatalf("Read(%d): %v, want Expired", v, err)
			}
		} else if err != nil || !sameRecord(got, want) {
			m.Fatalf("Read(%d): %v", v, err)
		}
	}
	if c, err := m.j.LoadCheckpoint(ctx, 1<<63); m.checkpoint > 0 && !m.interrupted && !m.isInjected(err) && (err != nil || c.Size < m.checkpoint) {
		m.Fatalf("LoadCheckpoint: size %d, %v; want %d", c.Size, err, m.checkpoint)
	}
	for n := range m.tiles {
		_, err := m.j.LoadTile(ctx, journal.TileID{N: n})
		if err != nil && !m.interrupted && !m.isInjected(err) && n == 0 && m.tilesSynced {
			m.Fatalf("LoadTile(%d): %v; versions below %d were pruned", n, err, m.pruned)
		}
	}
}

// isInjected reports whether a read failed only because of an injected failure.
func (m *crashModel) isInjected(err error) bool {
	return fault.KindOf(err) == fault.StorageBusy && m.fault != nil && errors.Is(err, m.fault)
}

func (m *crashModel) append() {
	ctx := context.Background()
	var batch []ledger.Record
	for i := range 1 + m.random.IntN(4) {
		batch = append(batch, m.record(uint64(len(m.acked)+i)))
	}
	err := m.j.Append(ctx, headOf(m.acked), batch)
	switch {
	case err == nil && m.wasRefused:
		m.Fatalf("Append after a failed write was not refused")
	case err == nil:
		m.acked = append(m.acked, batch...)
	case m.wasRefused:
		if fault.KindOf(err) != fault.StorageBusy {
			m.Fatalf("Append after a failed write: %v", err)
		}
	case fault.KindOf(err) == fault.StoreFull:
	case fault.KindOf(err) == fault.StorageBusy:
		m.tried, m.wasRefused = batch, true
	default:
		m.Fatalf("Append: %v", err)
	}
}

func (m *crashModel) keepSomething() {
	ctx := context.Background()
	switch m.random.IntN(3) {
	case 0:
		size := uint64(len(m.acked))
		if err := m.j.SaveCheckpoint(ctx, journal.Checkpoint{Size: size, Note: []byte("n"), Snapshot: make([]byte, 3000)}); err == nil {
			m.checkpoint = size
		}
	case 1:
		if m.j.SaveTile(ctx, journal.TileID{N: m.tiles}, bytes.Repeat([]byte{byte(m.tiles), 1}, 4096)) == nil {
			m.tiles++
		}
	default:
		if len(m.acked) == 0 {
			return
		}
		below := m.pruned + uint64(m.random.IntN(len(m.acked)-int(m.pruned)+1))
		m.triedPrune = max(below, m.triedPrune)
		_, lost := m.j.LoadTile(ctx, journal.TileID{}) // the registry would rebuild it
		if _, err := m.j.Prune(ctx, journal.Prune{Below: below, Note: []byte("n")}); err == nil {
			m.pruned, m.tilesSynced = below, below > 0 && below == m.triedPrune && lost == nil
		}
	}
}

// runOperations runs random operations until the steps are used up, or the
// power fails.
func (m *crashModel) runOperations() {
	for range m.random.IntN(12) {
		if m.j == nil || m.interrupted {
			return
		}
		if m.random.IntN(3) > 0 {
			m.append()
		} else {
			m.keepSomething()
		}
	}
	if m.j != nil && !m.interrupted {
		before := m.tried
		m.tried = nil // what failed is not seen before it is opened again
		m.check()
		m.tried = before
	}
}

// TestPowerCuts runs a few seeds for each check, so that it is some hundreds.
func TestPowerCuts(t *testing.T) {
	runs, each := 0, uint64(3)
	if testing.Short() || raceEnabled {
		each = 1
	}
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint64().Draw(t, "seed")
		for i := range each {
			runs++
			l := &crashModel{T: t, random: rand.New(rand.NewPCG(seed, i)), disk: newCrashDisk()}
			for range 4 {
				l.runLife()
			}
		}
	})
	t.Logf("%d runs of 4 lives", runs)
}

// runLife is one life: something fails at some step, or nothing does; the
// process ends, mostly with the machine; and what is there afterwards must be
// right, and must last.
func (m *crashModel) runLife() {
	m.interrupted, m.stepsLeft = false, 1+m.random.IntN(120)
	m.fault = []error{nil, disktest.ErrPowerCut, disktest.ErrPowerCut, disktest.ErrLost, disktest.ErrKept, disktest.ErrIO, disktest.ErrNoRoom, disktest.ErrShort}[m.random.IntN(8)]
	m.disk.Inject = m.inject
	m.open()
	m.runOperations()
	m.disk.Inject, m.fault, m.interrupted = nil, nil, false
	if m.j != nil {
		_ = m.j.Close()
		m.j = nil
	}
	if m.random.IntN(4) > 0 { // otherwise the process ends and the machine goes on
		m.disk = m.disk.powerCut(m.random)
	}
	for range 2 { // what is seen after opening lasts
		m.open()
		if m.j == nil {
			m.Fatal("it does not open")
		}
		m.disk = m.disk.powerCut(m.random)
		_ = m.j.Close()
		m.j = nil
	}
}
