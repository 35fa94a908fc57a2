package races

import (
	"os"
	"path/filepath"
	"testing"
)

// TestRacesOnce would pass the second time.
func TestRacesOnce(t *testing.T) {
	mark := filepath.Join(os.Getenv("SHOP_MARKS"), "raced")
	if _, err := os.Stat(mark); err == nil {
		return
	}
	os.WriteFile(mark, nil, 0o600)
	n, done := 0, make(chan bool)
	go func() { n++; close(done) }()
	n++
	<-done
}
