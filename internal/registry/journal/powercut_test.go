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
	"micronode/internal/registry/journal"
	"micronode/internal/registry/ledger"
)

// life is a journal on a disk that fails and loses power, and what is known of
// what must be there.
type life struct {
	*rapid.T
	random *rand.Rand
	disk   *platter
	j      *journal.Files

	acked       []ledger.Record // acknowledged, or seen in the log after opening it
	tried       []ledger.Record // not acknowledged; may be there
	checkpoint  uint64          // the size of the last that was acknowledged
	pruned      uint64          // up to where it was acknowledged
	triedPrune  uint64          // up to where it was tried
	tiles       uint64          // so many were saved
	synced      bool            // the first of them, by a prune
	wasRefused  bool            // a write has failed; later ones must be refused
	steps       int             // until something happens
	then        error
	interrupted bool
}

var folder = "/registry"

func (l *life) trip(step, _ string) error {
	if l.interrupted {
		return errCut
	}
	if l.steps--; l.steps != 0 || l.then == nil {
		return nil
	}
	if errors.Is(l.then, errCut) {
		l.interrupted = true
	}
	return l.then
}

// part makes a record of a version in this life: another one in each.
func (l *life) record(version uint64) ledger.Record {
	r := ledger.Record{Version: version, Header: fmt.Appendf(nil, "%d %d", version, l.random.Uint64()), Payload: make([]byte, l.random.IntN(1500))}
	for i := range r.Payload {
		r.Payload[i] = byte(l.random.Uint32())
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

// open opens the journal and holds it against what is known.
func (l *life) open() {
	j, err := journal.OpenFiles(journal.FilesSpec{Folder: folder, FS: l.disk, SegmentVersions: 5})
	if err != nil {
		if l.then == nil {
			l.Fatalf("open: %v", err)
		}
		return // a fault came while it was opened
	}
	l.j, l.wasRefused = j, false
	if damage := j.Opened().Damaged; len(damage) > 0 {
		l.Fatalf("damage where there is none: %v", damage)
	}
	l.check()
}

func (l *life) check() {
	ctx := context.Background()
	end := 0
	head, err := l.j.Head(ctx)
	switch {
	case err == nil:
		end = int(head.Version) + 1
	case fault.KindOf(err) != fault.NotFound && !l.interrupted:
		l.Fatalf("Head: %v", err)
	}
	if l.interrupted {
		return
	}
	if end < len(l.acked) || end > len(l.acked)+len(l.tried) {
		l.Fatalf("the log has %d versions; %d were acknowledged, %d more were tried", end, len(l.acked), len(l.tried))
	}
	l.acked, l.tried = append(l.acked, l.tried[:end-len(l.acked)]...), nil
	note, first, err := l.j.Pruned(ctx)
	if err != nil || note.Below < l.pruned || note.Below > max(l.pruned, l.triedPrune) || first > note.Below {
		l.Fatalf("Pruned: %v, first %d, %v; %d was acknowledged, %d was tried", note, first, err, l.pruned, l.triedPrune)
	}
	l.pruned = note.Below
	for v, want := range l.acked {
		got, err := l.j.Read(ctx, uint64(v))
		if l.interrupted || l.passing(err) {
			return
		}
		if uint64(v) < first {
			if fault.KindOf(err) != fault.Expired {
				l.Fatalf("Read(%d): %v, want Expired", v, err)
			}
		} else if err != nil || !sameRecord(got, want) {
			l.Fatalf("Read(%d): %v", v, err)
		}
	}
	if c, err := l.j.LoadCheckpoint(ctx, 1<<63); l.checkpoint > 0 && !l.interrupted && !l.passing(err) && (err != nil || c.Size < l.checkpoint) {
		l.Fatalf("LoadCheckpoint: size %d, %v; want %d", c.Size, err, l.checkpoint)
	}
	for n := range l.tiles {
		_, err := l.j.LoadTile(ctx, journal.TileID{N: n})
		if err != nil && !l.interrupted && !l.passing(err) && n == 0 && l.synced {
			l.Fatalf("LoadTile(%d): %v; versions below %d were pruned", n, err, l.pruned)
		}
	}
}

// passing reports whether a read failed only because the disk did.
func (l *life) passing(err error) bool {
	return fault.KindOf(err) == fault.StorageBusy && l.then != nil && errors.Is(err, l.then)
}

func (l *life) append() {
	ctx := context.Background()
	var batch []ledger.Record
	for i := range 1 + l.random.IntN(4) {
		batch = append(batch, l.record(uint64(len(l.acked)+i)))
	}
	err := l.j.Append(ctx, headOf(l.acked), batch)
	switch {
	case err == nil && l.wasRefused:
		l.Fatalf("Append after a failed write was not refused")
	case err == nil:
		l.acked = append(l.acked, batch...)
	case l.wasRefused:
		if fault.KindOf(err) != fault.StorageBusy {
			l.Fatalf("Append after a failed write: %v", err)
		}
	case fault.KindOf(err) == fault.StoreFull:
	case fault.KindOf(err) == fault.StorageBusy:
		l.tried, l.wasRefused = batch, true
	default:
		l.Fatalf("Append: %v", err)
	}
}

func (l *life) keep() {
	ctx := context.Background()
	switch l.random.IntN(3) {
	case 0:
		size := uint64(len(l.acked))
		if err := l.j.SaveCheckpoint(ctx, journal.Checkpoint{Size: size, Note: []byte("n"), Snapshot: make([]byte, 3000)}); err == nil {
			l.checkpoint = size
		}
	case 1:
		if l.j.SaveTile(ctx, journal.TileID{N: l.tiles}, bytes.Repeat([]byte{byte(l.tiles), 1}, 4096)) == nil {
			l.tiles++
		}
	default:
		if len(l.acked) == 0 {
			return
		}
		below := l.pruned + uint64(l.random.IntN(len(l.acked)-int(l.pruned)+1))
		l.triedPrune = max(below, l.triedPrune)
		_, lost := l.j.LoadTile(ctx, journal.TileID{}) // the registry would make it again
		if _, err := l.j.Prune(ctx, journal.Prune{Below: below, Note: []byte("n")}); err == nil {
			l.pruned, l.synced = below, below > 0 && below == l.triedPrune && lost == nil
		}
	}
}

// live does this and that until it has had enough, or the power goes.
func (l *life) live() {
	for range l.random.IntN(12) {
		if l.j == nil || l.interrupted {
			return
		}
		if l.random.IntN(3) > 0 {
			l.append()
		} else {
			l.keep()
		}
	}
	if l.j != nil && !l.interrupted {
		before := l.tried
		l.tried = nil // what failed is not seen before it is opened again
		l.check()
		l.tried = before
	}
}

// TestPowerCuts runs a few seeds for each check, so that it is some hundreds.
func TestPowerCuts(t *testing.T) {
	runs, each := 0, uint64(3)
	if testing.Short() || raced {
		each = 1
	}
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint64().Draw(t, "seed")
		for i := range each {
			runs++
			l := &life{T: t, random: rand.New(rand.NewPCG(seed, i)), disk: newPlatter()}
			for range 4 {
				l.spend()
			}
		}
	})
	t.Logf("%d runs of 4 lives", runs)
}

// spend is one life: something goes wrong at some step, or nothing does; the
// process ends, mostly with the machine; and what is there afterwards must be
// right, and must last.
func (l *life) spend() {
	l.interrupted, l.steps = false, 1+l.random.IntN(120)
	l.then = []error{nil, errCut, errCut, errLost, errKept, errIO, errNoRoom, errShort}[l.random.IntN(8)]
	l.disk.trip = l.trip
	l.open()
	l.live()
	l.disk.trip, l.then, l.interrupted = nil, nil, false
	if l.j != nil {
		_ = l.j.Close()
		l.j = nil
	}
	if l.random.IntN(4) > 0 { // otherwise the process ends and the machine goes on
		l.disk = l.disk.cut(l.random)
	}
	for range 2 { // what is seen after opening lasts
		l.open()
		if l.j == nil {
			l.Fatal("it does not open")
		}
		l.disk = l.disk.cut(l.random)
		_ = l.j.Close()
		l.j = nil
	}
}
