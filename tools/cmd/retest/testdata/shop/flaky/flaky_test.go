package flaky

import (
	"os"
	"path/filepath"
	"testing"
)

func TestPasses(t *testing.T) {}

// TestFirstTimeFails fails until it has been run once, by the file that it leaves.
func TestFirstTimeFails(t *testing.T) {
	t.Run("fine", func(t *testing.T) {})
	t.Run("one of (two)", func(t *testing.T) {
		mark := filepath.Join(os.Getenv("SHOP_MARKS"), "once")
		if _, err := os.Stat(mark); err != nil {
			os.WriteFile(mark, nil, 0o600)
			t.Fatal("the first time always fails")
		}
	})
}
