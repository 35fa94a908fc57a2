package wal_test

import (
	"testing"

	"micronode/internal/disk"
	"micronode/internal/wal"
)

func BenchmarkAppend(b *testing.B) {
	log, _ := openLog(b, logPath(b), wal.Options{FS: disk.OS()})
	record := make([]byte, 256)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := log.Append(b.Context(), record); err != nil {
				b.Fatal(err)
			}
		}
	})
}
