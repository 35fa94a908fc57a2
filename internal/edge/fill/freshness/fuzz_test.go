package freshness

import (
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"
)

func FuzzCacheControl(f *testing.F) {
	for _, seed := range []string{"max-age=60", `no-cache="a, b", private=x`, `ext="a\",b", max-stale`, `max-age="`, "s-maxage=99999999999, ,=,", "min-fresh =1"} {
		f.Add(seed, "no-store")
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		d := ParseCacheControl([]string{a, b})
		if again := ParseCacheControl([]string{d.String()}); !reflect.DeepEqual(d, again) {
			t.Fatalf("%q %q: %s\n%+v\n%+v", a, b, d, d, again)
		}
		for _, s := range []Seconds{d.MaxAge, d.SMaxAge, d.MinFresh, d.StaleIfError, d.StaleWhileRevalidate} {
			if s.Span < 0 || s.Span > maxDelta || !s.Valid && s.Span != 0 || s.Valid && !s.Given {
				t.Fatalf("%q %q: %+v", a, b, s)
			}
		}
		// A directive on a line of its own is never hidden by another line.
		if !ParseCacheControl([]string{a, "no-store", b}).NoStore {
			t.Fatalf("no-store is lost between %q and %q", a, b)
		}
	})
}

func FuzzDates(f *testing.F) {
	for _, seed := range []string{"Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994", "0", "Sat, 31 Dec 2016 23:59:60 GMT", "Tuesday, 29-Feb-00 00:00:00 gmt"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, ok := ParseDate(text, noon)
		if !ok || strings.Contains(text, ":60") {
			return
		}
		// Every date that we accept, net/http accepts too, with the same
		// result, but for the case of the zone and the century of two digits.
		text = trimOWS(text)
		if zone := len(text) - 3; asciiLower(text[zone:]) == "gmt" {
			text = text[:zone] + "GMT"
		}
		want, err := http.ParseTime(text)
		if err != nil {
			t.Fatalf("%q is a date only to us: %v", text, err)
		}
		if years := got.Year() - want.Year(); years%100 == 0 && strings.Contains(text, "-") {
			want = want.AddDate(years, 0, 0)
		}
		if !got.Equal(want) {
			t.Fatalf("%q: %v, and %v to net/http", text, got, want)
		}
	})
}

func FuzzAge(f *testing.F) {
	f.Add("5", "Sun, 15 Nov 2026 11:59:00 GMT", int64(3), int64(4))
	f.Add("-5", "", int64(-3), int64(-4))
	f.Add("99999999999999999999, 0", "Mon, 01 Jan 0001 00:00:00 GMT", int64(1)<<62, int64(1)<<62)
	f.Fuzz(func(t *testing.T, age, date string, delay, resident int64) {
		r := Response{Header: http.Header{"Age": {age}, "Date": {date}}, ResponseTime: noon, RequestTime: noon.Add(-time.Duration(delay))}
		now := noon.Add(time.Duration(resident))
		got := Age(r, now)
		if got < 0 || got < time.Duration(resident) {
			t.Fatalf("%v", got)
		}
		if more := Age(r, now.Add(time.Second)); more < got {
			t.Fatalf("%v, and %v a second later", got, more)
		}
	})
}

func FuzzETag(f *testing.F) {
	for _, seed := range []string{`"a"`, `W/"a"`, `w/"a"`, `""`, `"`, `a`, "\"\x7f\"", `"a"b"`} {
		f.Add(seed, `"a"`)
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		if StrongMatch(a, b) && !WeakMatch(a, b) || StrongMatch(a, b) != StrongMatch(b, a) || WeakMatch(a, b) != WeakMatch(b, a) {
			t.Fatalf("%q %q", a, b)
		}
		if WeakMatch(a, a) != ValidETag(a) {
			t.Fatalf("%q and itself", a)
		}
		if ValidETag(a) && !strings.HasPrefix(a, "W/") && (!ValidETag("W/"+a) || !WeakMatch(a, "W/"+a)) {
			t.Fatalf("%q made weak", a)
		}
		stored := ok("ETag", a)
		if _, err := Update(stored, status(304, "ETag", a)); (err == nil) != ValidETag(trimOWS(a)) {
			t.Fatalf("%q: %v", a, err)
		}
		if sent := Conditions(stored)["If-None-Match"]; (len(sent) == 1) != ValidETag(trimOWS(a)) {
			t.Fatalf("%q: %q", a, sent)
		}
	})
}

func FuzzVary(f *testing.F) {
	f.Add("accept-encoding", "gzip, br;q=0.50", "br;q=0.5,gzip")
	f.Add("Foo, *", "1", "1")
	f.Add("foo", `"a, b`, "\xff\"\n")
	f.Fuzz(func(t *testing.T, vary, a, b string) {
		names, valid := VaryFields([]string{vary})
		left, right := http.Header{}, http.Header{}
		for _, name := range names {
			left[name], right[name] = []string{a}, []string{b}
		}
		if Matches([]string{vary}, left, left) != valid {
			t.Fatalf("%q: a request and itself", vary)
		}
		if Matches([]string{vary}, left, right) != Matches([]string{vary}, right, left) {
			t.Fatalf("%q: %q %q", vary, a, b)
		}
		if valid && len(names) > 0 && Matches([]string{vary}, left, nil) {
			t.Fatalf("%q: %q matches nothing at all", vary, a)
		}
		// Normal forms are fixed points: a value and its normal form match.
		for _, name := range names {
			if once := normalValue(name, []string{a}); once != normalValue(name, []string{once}) {
				t.Fatalf("%s: %q, then %q", name, once, normalValue(name, []string{once}))
			}
		}
	})
}
