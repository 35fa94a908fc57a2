package nodetest

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Two bodies that are asked for twice must be the same both times.
func TestThePatternIsOne(t *testing.T) {
	if a, b := pattern(5000), pattern(5000); string(a) != string(b) || a[0] == a[300] {
		t.Error("the pattern is not one")
	}
}
