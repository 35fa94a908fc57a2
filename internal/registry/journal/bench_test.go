package journal_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"micronode/internal/registry/journal"
	"micronode/internal/registry/ledger"
)

// makeRecords makes records of about 1.5 KiB.
func makeRecords(from, n uint64) (all []ledger.Record) {
	for v := from; v < from+n; v++ {
		all = append(all, ledger.Record{Version: v, Header: fmt.Appendf(make([]byte, 0, 500), "%500d", v), Payload: make([]byte, 900), Preconditions: make([]byte, 136)})
	}
	return all
}

// BenchmarkAppend measures one batch: written, synced, visible to readers.
func BenchmarkAppend(b *testing.B) {
	for _, n := range []uint64{1, 64} {
		b.Run(fmt.Sprintf("records=%d", n), func(b *testing.B) {
			j, err := journal.OpenFiles(journal.FilesSpec{Folder: b.TempDir()})
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = j.Close() }()
			var head *ledger.Head
			var took []time.Duration
			next := uint64(0)
			for b.Loop() {
				batch := makeRecords(next, n)
				begin := time.Now()
				if err := j.Append(b.Context(), head, batch); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(begin))
				next, head = next+n, headOf(batch)
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
			b.ReportMetric(float64(next)/b.Elapsed().Seconds(), "records/s")
		})
	}
}

// BenchmarkOpen shows that opening costs by the last segment, not by the log.
func BenchmarkOpen(b *testing.B) {
	for _, n := range []uint64{100, 10_000, 100_000} {
		b.Run(fmt.Sprintf("versions=%d", n), func(b *testing.B) {
			spec := filled(b, n)
			for b.Loop() {
				j, err := journal.OpenFiles(spec)
				if err != nil {
					b.Fatal(err)
				}
				_ = j.Close()
			}
		})
	}
}

// BenchmarkRead reads versions all over the log.
func BenchmarkRead(b *testing.B) {
	for _, n := range []uint64{1000, 100_000} {
		b.Run(fmt.Sprintf("versions=%d", n), func(b *testing.B) {
			j, err := journal.OpenFiles(filled(b, n))
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = j.Close() }()
			v := uint64(0)
			for b.Loop() {
				if _, err := j.Read(b.Context(), v); err != nil {
					b.Fatal(err)
				}
				v = (v + 7919) % n
			}
		})
	}
}

// filled makes a journal of n versions.
func filled(b *testing.B, n uint64) journal.FilesSpec {
	b.Helper()
	spec := journal.FilesSpec{Folder: b.TempDir()}
	j, err := journal.OpenFiles(spec)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = j.Close() }()
	var head *ledger.Head
	for next := uint64(0); next < n; {
		batch := makeRecords(next, min(512, n-next))
		if err := j.Append(b.Context(), head, batch); err != nil {
			b.Fatal(err)
		}
		next, head = next+uint64(len(batch)), headOf(batch)
	}
	return spec
}
