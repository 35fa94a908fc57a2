package freshness

import "testing"

func TestETagSyntax(t *testing.T) {
	for text, want := range map[string]bool{
		// RFC 9110 §8.8.3
		`"xyzzy"`:     true,
		`W/"xyzzy"`:   true,
		`""`:          true,
		`W/""`:        true,
		`"a\b"`:       true, // a backslash is no escape here
		`"a,b!#~"`:    true,
		"\"\u00fc\"":  true, // obs-text
		"\"\xff\"":    true,
		``:            false,
		`"`:           false,
		`W/"`:         false,
		`W/`:          false,
		`xyzzy`:       false,
		`"xyzzy`:      false,
		`xyzzy"`:      false,
		`w/"xyzzy"`:   false,
		`W\"xyzzy"`:   false,
		`W"xyzzy"`:    false,
		`W/W/"xyzzy"`: false,
		`"a b"`:       false,
		`"a"b"`:       false,
		"\"a\tb\"":    false,
		"\"a\x7fb\"":  false,
		"\"a\x00b\"":  false,
		` "xyzzy"`:    false,
		`"a", "b"`:    false,
		`'xyzzy'`:     false,
		`*`:           false,
	} {
		if got := ValidETag(text); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func TestETagComparison(t *testing.T) {
	for _, c := range []struct {
		a, b         string
		strong, weak bool
	}{
		// The table of RFC 9110 §8.8.3.2.
		{`W/"1"`, `W/"1"`, false, true},
		{`W/"1"`, `W/"2"`, false, false},
		{`W/"1"`, `"1"`, false, true},
		{`"1"`, `"1"`, true, true},
		{`"1"`, `"2"`, false, false},
		// What is no entity tag matches nothing, not even itself.
		{`1`, `1`, false, false},
		{``, ``, false, false},
		{`"1"`, `1`, false, false},
	} {
		if StrongMatch(c.a, c.b) != c.strong || StrongMatch(c.b, c.a) != c.strong {
			t.Errorf("strong: %s %s", c.a, c.b)
		}
		if WeakMatch(c.a, c.b) != c.weak || WeakMatch(c.b, c.a) != c.weak {
			t.Errorf("weak: %s %s", c.a, c.b)
		}
	}
}
