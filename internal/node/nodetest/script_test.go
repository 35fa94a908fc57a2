package nodetest

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Two bodies of the same length must be the same.
func TestThePatternIsOne(t *testing.T) {
	if a, b := pattern(5000), pattern(5000); string(a) != string(b) || a[0] == a[300] {
		t.Error("the pattern is not one")
	}
}
