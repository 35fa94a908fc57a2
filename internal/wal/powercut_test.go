package wal_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"micronode/fault"
	"micronode/internal/disk/disktest"
	"micronode/internal/testkit"
	"micronode/internal/wal"
)

// crashModel is a log on a disk that fails and loses power, and the model of
// what must be there.
type crashModel struct {
	*rapid.T
	random *rand.Rand
	disk   *disktest.CrashDisk
	log    *wal.Log

	acked       []string // acknowledged, or seen when the log was opened
	tried       []string // not acknowledged; a part from the first on may be there
	written     int      // makes each record a different one
	stepsLeft   int      // until something happens
	fault       error
	interrupted bool
}

func (m *crashModel) inject(string, string) error {
	if m.interrupted {
		return disktest.ErrPowerCut
	}
	if m.stepsLeft--; m.stepsLeft != 0 || m.fault == nil {
		return nil
	}
	m.interrupted = errors.Is(m.fault, disktest.ErrPowerCut)
	return m.fault
}

// open opens the log and checks it against what is known.
func (m *crashModel) open() {
	var seen collector
	log, err := wal.Open("/node/state.log", wal.Options{FS: m.disk, Apply: seen.apply})
	if err != nil {
		if m.fault == nil {
			m.Fatalf("open: %v", err)
		}
		if fault.KindOf(err) == fault.IntegrityFail {
			m.Fatalf("damage where there is none: %v", err)
		}
		return // a fault came while it was opened
	}
	m.log = log
	extra := len(seen.records) - len(m.acked)
	if extra < 0 || extra > len(m.tried) || !slices.Equal(seen.records, slices.Concat(m.acked, m.tried[:extra])) {
		m.Fatalf("%d records are there; %d were acknowledged, %d more were tried", len(seen.records), len(m.acked), len(m.tried))
	}
	m.acked, m.tried = seen.records, nil
}

func (m *crashModel) append() {
	var batch []string
	for range 1 + m.random.IntN(4) {
		m.written++
		batch = append(batch, fmt.Sprint(m.written, strings.Repeat("x", m.random.IntN(2000))))
	}
	refused := m.log.Err() != nil
	err := m.log.Append(context.Background(), toBytes(batch)...)
	switch {
	case err == nil && refused:
		m.Fatalf("a batch after a failed write was not refused")
	case err == nil:
		m.acked = append(m.acked[:len(m.acked):len(m.acked)], batch...)
	case !refused && m.log.Err() != nil:
		m.tried = batch
	case !refused && fault.KindOf(err) != fault.StoreFull:
		m.Fatalf("Append: %v", err)
	}
}

func (m *crashModel) rewrite() {
	if m.random.IntN(2) == 0 {
		_ = m.log.Rewrite(context.Background(), func(add func([]byte) error) error {
			for _, r := range m.acked {
				if err := add([]byte(r)); err != nil {
					return err
				}
			}
			return nil
		})
		return
	}
	_ = m.log.Compact(context.Background(), wal.Compaction{Snapshot: func() {}, Moved: func(func(wal.Position) wal.Position) {},
		Write: func(add func([]byte) (wal.Position, error)) error {
			for _, r := range m.acked {
				if _, err := add([]byte(r)); err != nil {
					return err
				}
			}
			return nil
		}})
}

// runLife is one life: something fails at some step, or nothing does; the
// process ends, mostly with the machine; and what is there afterwards must be
// right, and must last.
func (m *crashModel) runLife() {
	m.interrupted, m.stepsLeft = false, 1+m.random.IntN(60)
	m.fault = []error{nil, disktest.ErrPowerCut, disktest.ErrPowerCut, disktest.ErrLost, disktest.ErrKept, disktest.ErrIO, disktest.ErrNoRoom, disktest.ErrShort}[m.random.IntN(8)]
	m.disk.Inject = m.inject
	m.open()
	for range m.random.IntN(12) {
		if m.log == nil || m.interrupted {
			break
		}
		if m.random.IntN(4) > 0 {
			m.append()
		} else {
			m.rewrite()
		}
	}
	m.disk.Inject, m.fault = nil, nil
	m.close()
	if m.random.IntN(4) > 0 { // otherwise the process ends and the machine goes on
		m.disk = m.disk.PowerCut(m.random)
	}
	for range 2 { // what is seen after opening lasts
		m.open()
		m.disk = m.disk.PowerCut(m.random)
		m.close()
	}
}

func (m *crashModel) close() {
	if m.log != nil {
		_ = m.log.Close()
		m.log = nil
	}
}

// TestPowerCuts runs a few seeds for each check, so that it is some hundreds.
func TestPowerCuts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint64().Draw(t, "seed")
		for i := range uint64(3) {
			m := &crashModel{T: t, random: rand.New(rand.NewPCG(seed, i)), disk: disktest.NewCrashDisk()}
			for range 4 {
				m.runLife()
			}
		}
	})
}

// A batch whose sync failed is seen again after a restart, because the kernel
// still shows it. Then it must last.
func TestABatchThatIsSeenAfterARestartLasts(t *testing.T) {
	crash := disktest.NewCrashDisk()
	b, _ := openLog(t, "/node/state.log", wal.Options{FS: crash})
	write(t, b, "before")
	seen := strings.Repeat("seen", 1000) // has sectors of its own
	crash.FailOnce("sync", disktest.ErrLost)
	testkit.WantKind(t, b.Append(t.Context(), []byte(seen)), fault.StorageBusy, "a sync that fails")
	_ = b.Close()
	b, got := openLog(t, "/node/state.log", wal.Options{FS: crash})
	testkit.EqualLists(t, "after a restart", got, []string{"before", seen})
	write(t, b, "after")
	_, got = openLog(t, "/node/state.log", wal.Options{FS: crash.PowerCut(rand.New(rand.NewPCG(1, 1)))})
	testkit.EqualLists(t, "after a power cut", got, []string{"before", seen, "after"})
}

// A log that was rewritten keeps its new name, although the process was killed
// before it was durable, once the log was opened again.
func TestANameThatIsSeenAfterARestartLasts(t *testing.T) {
	crash := disktest.NewCrashDisk()
	b, _ := openLog(t, "/node/state.log", wal.Options{FS: crash})
	write(t, b, "used up")
	crash.FailOnce("sync folder", disktest.ErrIO)
	testkit.WantKind(t, b.Rewrite(t.Context(), func(add func([]byte) error) error { return add([]byte("left")) }), fault.StorageBusy, "a rewrite")
	_ = b.Close()
	b, got := openLog(t, "/node/state.log", wal.Options{FS: crash})
	testkit.EqualLists(t, "after a restart", got, []string{"left"})
	write(t, b, "after")
	for seed := range uint64(20) {
		_, got = openLog(t, "/node/state.log", wal.Options{FS: crash.PowerCut(rand.New(rand.NewPCG(seed, 1)))})
		testkit.EqualLists(t, "after a power cut", got, []string{"left", "after"})
	}
}
