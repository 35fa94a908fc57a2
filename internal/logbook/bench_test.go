package logbook_test

import (
	"testing"

	"micronode/internal/disk"
	"micronode/internal/logbook"
)

func BenchmarkAppend(b *testing.B) {
	book, _ := open(b, bookIn(b), logbook.Options{FS: disk.Real()})
	record := make([]byte, 256)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := book.Append(b.Context(), record); err != nil {
				b.Fatal(err)
			}
		}
	})
}
