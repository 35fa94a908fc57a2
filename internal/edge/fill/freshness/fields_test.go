package freshness

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
)

func names(h http.Header) string {
	return strings.Join(slices.Sorted(maps.Keys(h)), " ")
}

func TestWhichFieldsAreEndToEnd(t *testing.T) {
	for name, c := range map[string]struct {
		h    http.Header
		want string
	}{
		"RFC 9110 §7.6.1 the known ones": {
			fields("Connection", "close", "Keep-Alive", "1", "TE", "x", "Trailer", "x", "Transfer-Encoding", "chunked", "Upgrade", "x", "HTTP2-Settings", "x", "X-Mine", "1"),
			"X-Mine",
		},
		"RFC 9110 §7.6.1 the named ones": {
			fields("Connection", "x-a, , X-B", "Connection", "x-c", "X-A", "1", "X-B", "1", "X-C", "1", "X-D", "1"),
			"X-D",
		},
		"RFC 9111 §3.1 of proxies": {
			fields("Proxy-Authenticate", "1", "Proxy-Authentication-Info", "1", "Proxy-Authorization", "1", "Proxy-Connection", "1", "Proxy-Status", "x", "Via", "1"),
			"Proxy-Status Via",
		},
		"all the others": {
			fields("Content-Type", "1", "Set-Cookie", "1", "Content-Foo", "1", "Warning", "1"),
			"Content-Foo Content-Type Set-Cookie Warning",
		},
		"keys that are not canonical": {
			http.Header{"connection": {"x"}, "x-a": {"1"}, "X-A": {"2"}},
			"X-A",
		},
		"none": {nil, ""},
	} {
		if got := names(EndToEnd(c.h)); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestWhichFieldsAreStored(t *testing.T) {
	for name, c := range map[string]struct {
		control string
		want    string
	}{
		"§3.1 nothing said":                 {"max-age=9", "Cache-Control Set-Cookie Vary X-A"},
		"§5.2.2.4 no-cache=":                {`no-cache="set-cookie"`, "Cache-Control Vary X-A"},
		"§5.2.2.7 private=":                 {`private="x-a, set-cookie"`, "Cache-Control Vary"},
		"§5.2.2.7 plain private":            {`private`, "Cache-Control Set-Cookie Vary X-A"},
		"what the rest needs is never lost": {`no-cache="vary, x-a, cache-control"`, "Cache-Control Set-Cookie Vary"},
	} {
		h := fields("Cache-Control", c.control, "Set-Cookie", "a", "X-A", "1", "Vary", "x", "Connection", "x-b", "X-B", "1")
		if got := names(StoredHeader(h)); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestTheHeaderIsCopied(t *testing.T) {
	h := fields("X-A", "1")
	EndToEnd(h)["X-A"][0] = "2"
	StoredHeader(h)["X-A"][0] = "2"
	if h.Get("X-A") != "1" {
		t.Error("the copy and the original share their values")
	}
}
