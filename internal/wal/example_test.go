package wal_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"micronode/internal/wal"
)

// A state in memory that survives a restart: every change is logged, and
// replayed when the log is opened.
func Example() {
	folder, _ := os.MkdirTemp("", "wal")
	defer os.RemoveAll(folder)
	path, ctx := filepath.Join(folder, "words.log"), context.Background()

	count := map[string]int{}
	apply := func(record []byte) error { count[string(record)]++; return nil }
	log, _ := wal.Open(path, wal.Options{Apply: apply})
	for _, word := range []string{"tea", "rain", "tea"} {
		_ = log.Commit(ctx, func(err error) {
			if err == nil {
				count[word]++
			}
		}, []byte(word))
	}
	_ = log.Close()

	count = map[string]int{}
	log, _ = wal.Open(path, wal.Options{Apply: apply})
	defer log.Close()
	fmt.Println(count)
	// Output: map[rain:1 tea:2]
}
