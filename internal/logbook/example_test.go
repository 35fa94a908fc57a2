package logbook_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"micronode/internal/logbook"
)

// A state in memory that survives a restart: what is done to it is written
// down, and done once more when the book is opened.
func Example() {
	folder, _ := os.MkdirTemp("", "logbook")
	defer os.RemoveAll(folder)
	path, ctx := filepath.Join(folder, "words.log"), context.Background()

	count := map[string]int{}
	apply := func(record []byte) error { count[string(record)]++; return nil }
	book, _ := logbook.Open(path, logbook.Options{Apply: apply})
	for _, word := range []string{"tea", "rain", "tea"} {
		_ = book.Commit(ctx, func(err error) {
			if err == nil {
				count[word]++
			}
		}, []byte(word))
	}
	_ = book.Close()

	count = map[string]int{}
	book, _ = logbook.Open(path, logbook.Options{Apply: apply})
	defer book.Close()
	fmt.Println(count)
	// Output: map[rain:1 tea:2]
}
