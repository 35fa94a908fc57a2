package bleve

import (
	"time"

	api "github.com/blevesearch/bleve_index_api"
)

// Segments is how many pieces a search looks into.
func Segments(c *Catalogue) int {
	snapshot, err := c.snapshot()
	if err != nil {
		panic(err)
	}
	defer snapshot.Close()
	return len(snapshot.Segments())
}

// SetFormat notes another format.
func SetFormat(c *Catalogue, to string) error {
	batch := api.NewBatch()
	batch.SetInternal(formatKey, []byte(to))
	return c.write(batch)
}

// SetRetryPause makes a catalogue less patient with a full disk.
func SetRetryPause(to time.Duration) (restore func()) {
	before := retryPause
	retryPause = to
	return func() { retryPause = before }
}

// Unwritable is what is said of an error.
var Unwritable = unwritable
