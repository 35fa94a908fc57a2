package config

import "testing"

func TestSlipsOfThePen(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"addr", "addr", 0},
		{"adr", "addr", 1}, {"addrr", "addr", 1}, {"adde", "addr", 1}, {"dadr", "addr", 1},
		{"ildee", "idle", 2}, {"kitten", "sitting", 3}, {"abcdef", "badcfe", 3},
	} {
		if got := distance(c.a, c.b); got != c.want {
			t.Errorf("%q and %q: %d, want %d", c.a, c.b, got, c.want)
		}
		if got := distance(c.b, c.a); got != c.want {
			t.Errorf("%q and %q: %d, want %d", c.b, c.a, got, c.want)
		}
	}
}
