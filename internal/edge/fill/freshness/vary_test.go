package freshness

import (
	"net/http"
	"strings"
	"testing"
)

func TestVaryFields(t *testing.T) {
	for name, c := range map[string]struct {
		lines []string
		want  string
		ok    bool
	}{
		"RFC 9110 §12.5.5 none":          {nil, "", true},
		"RFC 9110 §12.5.5 empty":         {[]string{""}, "", true},
		"RFC 9110 §12.5.5 one":           {[]string{"accept"}, "Accept", true},
		"RFC 9110 §12.5.5 several":       {[]string{"foo, BAR", "baz ,foo"}, "Bar Baz Foo", true},
		"RFC 9110 §12.5.5 star":          {[]string{"*"}, "", false},
		"RFC 9110 §12.5.5 stars":         {[]string{"*, *"}, "", false},
		"RFC 9110 §12.5.5 star later":    {[]string{"Foo, *"}, "", false},
		"RFC 9110 §12.5.5 star first":    {[]string{"*, Foo"}, "", false},
		"RFC 9110 §12.5.5 star on 2":     {[]string{"", "*"}, "", false},
		"RFC 9110 §12.5.5 hidden star":   {[]string{", *"}, "", false},
		"RFC 9110 §12.5.5 not a field":   {[]string{"foo bar"}, "", false},
		"RFC 9110 §12.5.5 quoted":        {[]string{`"foo"`}, "", false},
		"RFC 9110 §12.5.5 star in token": {[]string{"a*"}, "A*", true},
	} {
		got, ok := VaryFields(c.lines)
		if ok != c.ok || strings.Join(got, " ") != c.want {
			t.Errorf("%s: %q, %v", name, got, ok)
		}
	}
}

func TestMatches(t *testing.T) {
	for name, c := range map[string]struct {
		vary   string
		stored http.Header
		req    http.Header
		want   bool
	}{
		"§4.1 no Vary":                {"", fields("Foo", "1"), fields("Foo", "2"), true},
		"§4.1 the same":               {"foo", fields("Foo", "1"), fields("Foo", "1"), true},
		"§4.1 another":                {"foo", fields("Foo", "1"), fields("Foo", "2"), false},
		"§4.1 not named":              {"foo", fields("Foo", "1", "Bar", "1"), fields("Foo", "1", "Bar", "2"), true},
		"§4.1 one of two differs":     {"foo, bar", fields("Foo", "1", "Bar", "1"), fields("Foo", "1", "Bar", "2"), false},
		"§4.1 absent and there":       {"foo", fields(), fields("Foo", "1"), false},
		"§4.1 there and absent":       {"foo", fields("Foo", "1"), fields(), false},
		"§4.1 absent in both":         {"foo", fields(), nil, true},
		"§4.1 absent and empty":       {"foo", fields(), fields("Foo", ""), false},
		"§4.1 a key without lines":    {"foo", http.Header{"Foo": nil}, fields(), true},
		"§4.1 empty in both":          {"foo", fields("Foo", ""), fields("Foo", " "), true},
		"§4.1 star":                   {"*", fields("Foo", "1"), fields("Foo", "1"), false},
		"§4.1 star of nothing":        {"*", nil, nil, false},
		"§4.1 case of names":          {"FOO", fields("foo", "1"), fields("fOo", "1"), true},
		"§4.1 case of values":         {"foo", fields("Foo", "a"), fields("Foo", "A"), false},
		"§4.1 lines are combined":     {"foo", fields("Foo", "1, 2"), fields("Foo", "1", "Foo", "2"), true},
		"§4.1 white space":            {"foo", fields("Foo", "1,2"), fields("Foo", " 1\t, 2 "), true},
		"§4.1 white space inside":     {"foo", fields("Foo", "1 2"), fields("Foo", "1  2"), false},
		"§4.1 white space, quoted":    {"foo", fields("Foo", `"1,2"`), fields("Foo", `"1, 2"`), false},
		"§4.1 order":                  {"foo", fields("Foo", "1, 2"), fields("Foo", "2, 1"), false},
		"§4.1 values cannot mix":      {"a, b", fields("A", "1\nb=\"2\""), fields("A", "1", "B", "2"), false},
		"§4.1 bytes that are no text": {"foo", fields("Foo", "\xff"), fields("Foo", "\xfe"), false},

		"Accept-Language case":           {"accept-language", fields("Accept-Language", "en, de"), fields("Accept-Language", "eN,De"), true},
		"Accept-Language order":          {"accept-language", fields("Accept-Language", "en, de"), fields("Accept-Language", "de, en"), false},
		"Accept-Language, no text":       {"accept-language", fields("Accept-Language", "E\xff"), fields("Accept-Language", "e\xfe"), false},
		"Accept-Encoding order, case":    {"accept-encoding", fields("Accept-Encoding", "gzip, br"), fields("Accept-Encoding", "BR,GZip"), true},
		"Accept-Encoding weights":        {"accept-encoding", fields("Accept-Encoding", "gzip, br;q=0.5, x;q=0"), fields("Accept-Encoding", "x;q=0.000, br; q=0.500 , gzip;q=1.0"), true},
		"Accept-Encoding, other weights": {"accept-encoding", fields("Accept-Encoding", "gzip;q=0.5"), fields("Accept-Encoding", "gzip;q=0.05"), false},
		"Accept-Encoding, none and zero": {"accept-encoding", fields("Accept-Encoding", "gzip"), fields("Accept-Encoding", "gzip;q=0"), false},
		"Accept-Encoding twice":          {"accept-encoding", fields("Accept-Encoding", "gzip, gzip"), fields("Accept-Encoding", "gzip"), true},
		"Accept-Encoding x-gzip":         {"accept-encoding", fields("Accept-Encoding", "x-gzip, x-compress"), fields("Accept-Encoding", "gzip, compress"), true},
		"Accept-Encoding, no weight":     {"accept-encoding", fields("Accept-Encoding", "gzip;q=2"), fields("Accept-Encoding", "gzip"), false},
		"Accept-Encoding, 1.5":           {"accept-encoding", fields("Accept-Encoding", "gzip;q=1.5"), fields("Accept-Encoding", "gzip"), false},
		"Accept-Encoding, long weight":   {"accept-encoding", fields("Accept-Encoding", "gzip;q=1.0000"), fields("Accept-Encoding", "gzip"), false},
		"Accept-Encoding, letters":       {"accept-encoding", fields("Accept-Encoding", "gzip;q=1.x"), fields("Accept-Encoding", "gzip"), false},
		"Accept-Encoding, not a weight":  {"accept-encoding", fields("Accept-Encoding", "gzip;v=1"), fields("Accept-Encoding", "gzip"), false},
		"Accept-Encoding, empty":         {"accept-encoding", fields("Accept-Encoding", ""), fields(), false},
	} {
		if got := Matches([]string{c.vary}, c.stored, c.req); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
		if got := Matches([]string{c.vary}, c.req, c.stored); got != c.want {
			t.Errorf("%s, the other way round: %v", name, got)
		}
		a, aok := VaryKey(ok("Vary", c.vary), Request{Header: c.stored})
		b, bok := VaryKey(ok("Vary", c.vary), Request{Header: c.req})
		if (aok && bok && a == b) != c.want {
			t.Errorf("%s: keys %q and %q", name, a, b)
		}
	}
}

func TestKeysOfOtherFieldsDiffer(t *testing.T) {
	req := get("A", "1", "B", "1")
	one, _ := VaryKey(ok("Vary", "a"), req)
	two, _ := VaryKey(ok("Vary", "b"), req)
	both, _ := VaryKey(ok("Vary", "b, a"), req)
	same, _ := VaryKey(ok("Vary", "A", "Vary", "B"), req)
	if one == two || one == both || both != same {
		t.Errorf("%q %q %q %q", one, two, both, same)
	}
}
