package bleve

import (
	"time"

	api "github.com/blevesearch/bleve_index_api"
)

// Segments is how many segments a search looks into.
func Segments(c *Engine) int {
	snapshot, err := c.snapshot()
	if err != nil {
		panic(err)
	}
	defer snapshot.Close()
	return len(snapshot.Segments())
}

// SetFormat stores another format version.
func SetFormat(c *Engine, to string) error {
	batch := api.NewBatch()
	batch.SetInternal(formatKey, []byte(to))
	return c.write(batch)
}

// SetRetryPause changes persistRetryDelay.
func SetRetryPause(to time.Duration) (restore func()) {
	before := persistRetryDelay
	persistRetryDelay = to
	return func() { persistRetryDelay = before }
}

// Unwritable is writeError.
var Unwritable = writeError
