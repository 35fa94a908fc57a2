package fine

import "testing"

func TestPasses(t *testing.T) {
	t.Run("a part", func(t *testing.T) { milk() })
}

func TestSkipped(t *testing.T) { t.Skip("not here") }
