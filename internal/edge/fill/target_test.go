package fill

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"micronode/fault"
	"micronode/internal/config"
)

func TestAllowList(t *testing.T) {
	list, err := ParseAllow([]string{"tiles.example.org", "*.Example.NET.", "port.example.org:8443", "*.example.com:8443", "münchen.example", "192.0.2.1", "[2001:DB8::1]:8443", "explicit.example:443"})
	if err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]bool{
		"tiles.example.org": true, "TILES.example.ORG": true, "tiles.example.org.": true, "tiles.example.org:443": true, "ｔiles.example.org": true,
		"tiles.example.org:8443": false, "example.org": false, "x.tiles.example.org": false, "tiles.example.org.evil.test": false, "eviltiles.example.org": false,
		"a.example.net": true, "a.b.example.net": true, "example.net": false, "a.example.net:8443": false, "aexample.net": false, ".example.net": false,
		"port.example.org": false, "port.example.org:8443": true, "port.example.org:08443": true,
		"a.example.com": false, "a.example.com:8443": true,
		"münchen.example": true, "MÜNCHEN.example": true, "xn--mnchen-3ya.example": true,
		"192.0.2.1": true, "192.0.2.2": false, "192.0.2.1.": false, "192.000.2.1": false, "3221225985": false, "0xc0.0.2.1": false,
		"[2001:db8::1]:8443": true, "[2001:db8:0:0:0:0:0:1]:8443": true, "[2001:db8::1]": false, "2001:db8::1": false, "[::ffff:192.0.2.1]": true,
		"explicit.example": true,
		"":                 false, "tiles.example.org:": false, "tiles.example.org:0": false, "tiles.example.org:+443": false, "tiles.example.org:99999": false, "tiles.example.org:443:443": false,
		"u@tiles.example.org": false, "u:p@tiles.example.org": false, "tiles.example.org/": false, "tiles.example.org\\": false, "tiles.example.org#": false,
		"tiles.example.org\x00": false, "tiles.example.org ": false, "tiles%2eexample.org": false, "[192.0.2.1]": false, "[tiles.example.org]": false, "[2001:db8::1%25lo]:8443": false,
		"*.example.net": false, "tiles..example.org": false, strings.Repeat("a", 64) + ".example.net": false, strings.Repeat("a.", 130) + "example.net": false,
	} {
		if got := list.Allows(host); got != want {
			t.Errorf("%q: allowed %t, want %t", host, got, want)
		}
	}
	for _, entry := range []string{"", "*", "*.", "https://example.org", "example.org/path", "u@example.org", "*.192.0.2.1", "a.*.example.org", "*example.org", "example.org:port", "[fe80::1%eth0]"} {
		if _, err := ParseAllow([]string{entry}); fault.KindOf(err) != fault.Malformed || entry != "" && !strings.Contains(err.Error(), entry) {
			t.Errorf("%q: %v", entry, err)
		}
	}
	empty, _ := ParseAllow(nil)
	if empty.Allows("example.org") {
		t.Error("an empty list allows nothing")
	}
}

func TestTargets(t *testing.T) {
	for name, c := range map[string]struct{ host, path, query, key string }{
		"plain":            {"origin.test", "/a/b.png", "", "https://origin.test/a/b.png"},
		"root":             {"origin.test", "/", "", "https://origin.test/"},
		"host":             {"ORIGIN.test.:443", "/", "", "https://origin.test/"},
		"port":             {"origin.test:8443", "/", "", "https://origin.test:8443/"},
		"escapes":          {"origin.test", "/%41%7e%2d/%c3%a9/%20%25", "", "https://origin.test/A~-/%C3%A9/%20%25"},
		"bare utf-8":       {"origin.test", "/é", "", "https://origin.test/%C3%A9"},
		"reserved":         {"origin.test", "/a%3Bb;c%3F", "", "https://origin.test/a%3Bb;c%3F"},
		"empty elements":   {"origin.test", "//a//", "", "https://origin.test//a//"},
		"dots in a name":   {"origin.test", "/..a/b../...", "", "https://origin.test/..a/b../..."},
		"query":            {"origin.test", "/", "a=b&c=%2F..", "https://origin.test/?a=b&c=%2F.."},
		"NUL":              {"origin.test", "/a%00b", "", ""},
		"raw NUL":          {"origin.test", "/a\x00b", "", ""},
		"line":             {"origin.test", "/a%0d%0ab", "", ""},
		"up":               {"origin.test", "/a/../b", "", ""},
		"up at the end":    {"origin.test", "/a/..", "", ""},
		"escaped up":       {"origin.test", "/a/%2e%2E/b", "", ""},
		"here":             {"origin.test", "/a/./b", "", ""},
		"escaped slash":    {"origin.test", "/a%2fb", "", ""},
		"backslash":        {"origin.test", `/a\b`, "", ""},
		"escaped one":      {"origin.test", "/a%5Cb", "", ""},
		"half an escape":   {"origin.test", "/a%2", "", ""},
		"no escape":        {"origin.test", "/a%zzb", "", ""},
		"no slash":         {"origin.test", "a", "", ""},
		"no path":          {"origin.test", "", "", ""},
		"question":         {"origin.test", "/a?b", "", ""},
		"fragment":         {"origin.test", "/a#b", "", ""},
		"fragment, later":  {"origin.test", "/a", "b#c", ""},
		"space in a query": {"origin.test", "/a", "b c", ""},
		"long":             {"origin.test", "/" + strings.Repeat("a", maxTargetBytes), "", ""},
		"long query":       {"origin.test", "/", strings.Repeat("a", maxTargetBytes), ""},
		"user":             {"u@origin.test", "/", "", ""},
	} {
		got, err := newTarget(c.host, c.path, c.query)
		if c.key == "" {
			if fault.KindOf(err) != fault.Malformed {
				t.Errorf("%s: %q, %v", name, got.key(), err)
			}
			continue
		}
		if err != nil || got.key() != c.key || got.url().String() != c.key {
			t.Errorf("%s: %q, asked for as %q, %v; want %q", name, got.key(), got.url(), err, c.key)
		}
	}
}

// Normal forms are fixed points, and what is requested is the cache key.
func FuzzTarget(f *testing.F) {
	f.Add("origin.test", "/a/%2e%2e/b", "q=1")
	f.Add("Origin.TEST:8443", "/%41/é", "")
	f.Add("[::1]:443", "//", "a=%2F")
	f.Fuzz(func(t *testing.T, host, path, query string) {
		first, err := newTarget(host, path, query)
		if err != nil {
			if fault.KindOf(err) != fault.Malformed {
				t.Fatal(err)
			}
			return
		}
		if again, err := newTarget(first.host, first.path, first.query); err != nil || again != first {
			t.Fatalf("%+v became %+v, %v", first, again, err)
		}
		if parsed, err := parseURL(first.key()); err != nil || parsed != first {
			t.Fatalf("%q was read as %+v, %v", first.key(), parsed, err)
		}
		u := first.url()
		if u.String() != first.key() || u.User != nil || u.Hostname() == "" || strings.Contains(u.Path, "\x00") || strings.Contains(u.EscapedPath(), "/../") {
			t.Fatalf("asked for as %q, kept under %q", u, first.key())
		}
	})
}

func TestGetRefuses(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newFixture(t)
		w.origin(answerWith("x"))
		for host, kind := range map[string]fault.Kind{"evil.test": fault.RejectPolicy, "origin.test:8443": fault.RejectPolicy, "127.0.0.1": fault.RejectPolicy, "wild.test": fault.RejectPolicy,
			"u@origin.test": fault.Malformed, "": fault.Malformed} {
			w.wantRefused(Request{Host: host, Path: "/", Method: http.MethodGet}, kind, ReasonNotAllowed)
		}
		w.wantRefused(request("/a/%2e%2e/b"), fault.Malformed, ReasonNotAllowed)
		w.wantRefused(request("/"+strings.Repeat("x", 10_000)), fault.Malformed, ReasonNotAllowed)
		w.wantAsked(0)
		for _, event := range w.eventsOf(EventRefused) {
			if len(event.URL) > 300 {
				t.Errorf("the audit was told %d bytes", len(event.URL))
			}
		}
		if w.network.dials != 0 {
			t.Errorf("%d connections were made", w.network.dials)
		}
		if !w.Allows("ORIGIN.test") || w.Allows("evil.test") {
			t.Error("Allows disagrees with Get")
		}
		if _, err := w.Key(Request{Host: "evil.test", Path: "/", Method: http.MethodGet}); fault.KindOf(err) != fault.RejectPolicy {
			t.Errorf("Key: %v", err)
		}
	})
}

func TestConfig(t *testing.T) {
	if err := DefaultConfig().Validate(); err != nil {
		t.Error(err)
	}
	if err := DefaultCacheConfig().Validate(); err != nil {
		t.Error(err)
	}
	for key, change := range map[string]func(*Config){
		"timeout":         func(c *Config) { c.Timeout = 0 },
		"max_bytes":       func(c *Config) { c.MaxBytes = 0 },
		"inflate":         func(c *Config) { c.Inflate = 0 },
		"inflate_ratio":   func(c *Config) { c.InflateRatio = 0 },
		"tries":           func(c *Config) { c.Tries = 0 },
		"tries ":          func(c *Config) { c.Tries = 11 },
		"base_ms":         func(c *Config) { c.BaseMS = -1 },
		"max_ms":          func(c *Config) { c.MaxMS = -1 },
		"heuristic":       func(c *Config) { c.Heuristic = -1 },
		"negative":        func(c *Config) { c.Negative = -1 },
		"stale_if_error":  func(c *Config) { c.StaleIfError = -1 },
		"forward_headers": func(c *Config) { c.ForwardHeaders = []string{"*", "accept"} },
		// The same key with other mistakes; the space keeps the keys of the map apart.
		"forward_headers ":    func(c *Config) { c.ForwardHeaders = []string{"not a name"} },
		"forward_headers  ":   func(c *Config) { c.ForwardHeaders = []string{"range"} },
		"forward_headers   ":  func(c *Config) { c.ForwardHeaders = []string{"cookie"} },
		"forward_headers    ": func(c *Config) { c.ForwardHeaders = []string{"Authorization"} },
		"warm":                func(c *Config) { c.Warm = []string{"http://origin.test/"} },
	} {
		c := DefaultConfig()
		change(&c)
		wrong, found := errors.AsType[*config.Problem](c.Validate())
		if !found || wrong.Key != strings.TrimSpace(key) || wrong.Next == "" {
			t.Errorf("%s: %+v", key, wrong)
		}
	}
	if err := (CacheConfig{}).Validate(); err == nil {
		t.Error("a cache without entries")
	}
	c := DefaultCacheConfig()
	if c.Budget(false) != 128<<20 || c.Budget(true) != 1<<30 {
		t.Errorf("%d in RAM, %d on disk", c.Budget(false), c.Budget(true))
	}
	c.MaxBytes = config.Auto[config.Size]{Value: 7}
	if c.Budget(true) != 7 {
		t.Error("what is configured counts")
	}
}

// The pauses are min(max, base·2ⁿ) + U[0, base].
func TestPauses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := &policy{Config: Config{
			BaseMS: rapid.IntRange(0, 200).Draw(t, "base"), MaxMS: rapid.IntRange(0, 2000).Draw(t, "max"),
			Jitter: rapid.Bool().Draw(t, "jitter"), Tries: rapid.IntRange(1, maxTries).Draw(t, "tries"), Timeout: time.Second,
		}}
		for n := range p.Tries - 1 {
			least := min(p.MaxMS, p.BaseMS<<n)
			most := least
			if p.Jitter {
				most += p.BaseMS
			}
			pause := p.backoff(n)
			if pause < time.Duration(least)*time.Millisecond || pause > time.Duration(most)*time.Millisecond {
				t.Fatalf("pause %d is %s, want %d to %d ms", n, pause, least, most)
			}
		}
	})
}
