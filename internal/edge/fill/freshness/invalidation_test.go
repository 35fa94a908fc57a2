package freshness

import (
	"fmt"
	"net/url"
	"testing"
)

func TestInvalidates(t *testing.T) {
	for _, c := range []struct {
		method string
		status int
		want   bool
	}{
		// RFC 9111 §4.4, RFC 9110 §9.2.1
		{"GET", 200, false}, {"HEAD", 200, false}, {"OPTIONS", 200, false}, {"TRACE", 200, false}, {"", 200, false},
		{"POST", 200, true}, {"PUT", 201, true}, {"DELETE", 204, true}, {"PATCH", 303, true}, {"M-SEARCH", 200, true},
		{"POST", 399, true}, {"POST", 400, false}, {"POST", 500, false}, {"POST", 199, false},
		{"get", 200, true}, // methods have case
	} {
		if got := Invalidates(c.method, c.status); got != c.want {
			t.Errorf("%s %d: %v", c.method, c.status, got)
		}
	}
}

func TestInvalidateTargets(t *testing.T) {
	const target = "https://Example.org/a/b?q=1#top"
	for name, c := range map[string]struct {
		method string
		resp   Response
		want   string
	}{
		"§4.4 the target":           {"POST", ok(), "[https://Example.org/a/b?q=1]"},
		"§4.4 a failure":            {"POST", status(500, "Location", "/x"), "[]"},
		"§4.4 a safe method":        {"GET", ok("Location", "/x"), "[]"},
		"§4.4 Location":             {"PUT", status(201, "Location", "c?d#e"), "[https://Example.org/a/b?q=1 https://Example.org/a/c?d]"},
		"§4.4 both":                 {"PUT", ok("Location", "/l", "Content-Location", "https://example.org:443/c"), "[https://Example.org/a/b?q=1 https://Example.org/l https://example.org:443/c]"},
		"§4.4 itself, once":         {"PUT", ok("Location", "b?q=1", "Content-Location", "#x"), "[https://Example.org/a/b?q=1]"},
		"§4.4 another host":         {"PUT", ok("Location", "https://example.com/a"), "[https://Example.org/a/b?q=1]"},
		"§4.4 another host, hidden": {"PUT", ok("Location", "//example.com/a"), "[https://Example.org/a/b?q=1]"},
		"§4.4 another port":         {"PUT", ok("Location", "https://example.org:8443/a"), "[https://Example.org/a/b?q=1]"},
		"§4.4 another scheme":       {"PUT", ok("Location", "http://example.org/a"), "[https://Example.org/a/b?q=1]"},
		"§4.4 no URL":               {"PUT", ok("Location", "https://[", "Content-Location", "%zz"), "[https://Example.org/a/b?q=1]"},
		"§4.4 only the first line":  {"PUT", ok("Location", "/1", "Location", "/2"), "[https://Example.org/a/b?q=1 https://Example.org/1]"},
	} {
		u, err := url.Parse(target)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(InvalidateTargets(c.method, u, c.resp)); got != c.want {
			t.Errorf("%s: %s", name, got)
		}
		if u.String() != target {
			t.Errorf("%s: the target became %s", name, u)
		}
	}
}
