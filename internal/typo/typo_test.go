package typo

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"addr", "addr", 0},
		{"adr", "addr", 1}, {"addrr", "addr", 1}, {"adde", "addr", 1}, {"dadr", "addr", 1},
		{"ildee", "idle", 2}, {"kitten", "sitting", 3}, {"abcdef", "badcfe", 3},
	} {
		if got := Distance(c.a, c.b); got != c.want {
			t.Errorf("%q and %q: %d, want %d", c.a, c.b, got, c.want)
		}
		if got := Distance(c.b, c.a); got != c.want {
			t.Errorf("%q and %q: %d, want %d", c.b, c.a, got, c.want)
		}
	}
}
