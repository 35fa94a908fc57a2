package freshness

import (
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// number is an argument of a directive: mostly a valid one.
var number = rapid.Custom(func(t *rapid.T) string {
	return rapid.OneOf(
		rapid.Map(rapid.IntRange(0, 200), func(n int) string { return fmt.Sprint(n) }),
		rapid.SampledFrom([]string{"", "x", "-1", "1.5", `"7"`, "2147483648", "99999999999999999999"}),
	).Draw(t, "number")
})

// directive is one member of a Cache-Control.
var directive = rapid.Custom(func(t *rapid.T) string {
	name := rapid.SampledFrom([]string{
		"max-age=", "s-maxage=", "max-stale=", "min-fresh=", "stale-while-revalidate=", "stale-if-error=",
		"max-stale", "max-age", "no-cache", "no-store", "no-transform", "only-if-cached", "must-revalidate", "proxy-revalidate",
		"must-understand", "public", "private", "immutable", `no-cache="X-A, x-b"`, `private="Set-Cookie"`, `no-cache="vary"`, "x=1",
	}).Draw(t, "directive")
	if strings.HasSuffix(name, "=") {
		name += number.Draw(t, "argument")
	}
	return name
})

var control = rapid.Map(rapid.SliceOfN(directive, 0, 5), func(d []string) string { return strings.Join(d, ", ") })

// dates near noon, some of them invalid.
var date = rapid.OneOf(
	rapid.Map(rapid.IntRange(-300, 300), at),
	rapid.SampledFrom([]string{"", "0", "never", "Sunday, 15-Nov-26 12:00:30 GMT", "Sun Nov 15 12:00:30 2026", "Fri, 31 Dec 9999 23:59:59 GMT", "Mon, 01 Jan 0001 00:00:00 GMT"}),
)

var response = rapid.Custom(func(t *rapid.T) Response {
	r := Response{
		Status:       rapid.SampledFrom([]int{200, 200, 200, 206, 301, 302, 404, 500, 503, 599}).Draw(t, "status"),
		Header:       http.Header{},
		ResponseTime: noon,
		RequestTime:  noon.Add(time.Duration(rapid.IntRange(-20, 5).Draw(t, "delay")) * time.Second),
	}
	lines := func(name string, value *rapid.Generator[string]) {
		if n := rapid.IntRange(-1, 2).Draw(t, "lines of "+name); n > 0 {
			r.Header[name] = rapid.SliceOfN(value, n, n).Draw(t, name)
		}
	}
	lines("Cache-Control", control)
	lines("Date", date)
	lines("Expires", date)
	lines("Last-Modified", date)
	lines("Age", number)
	lines("Etag", rapid.SampledFrom([]string{`"a"`, `W/"a"`, `"b"`, "a"}))
	lines("Vary", rapid.SampledFrom([]string{"", "Foo", "foo, Accept-Encoding", "*"}))
	return r
})

var request = rapid.Custom(func(t *rapid.T) Request {
	r := Request{Method: rapid.SampledFrom([]string{"GET", "GET", "GET", "HEAD", "POST"}).Draw(t, "method"), Header: http.Header{}}
	line := func(name string, value *rapid.Generator[string]) {
		if rapid.Bool().Draw(t, "has "+name) {
			r.Header[name] = []string{value.Draw(t, name)}
		}
	}
	line("Cache-Control", control)
	line("Authorization", rapid.Just("x"))
	line("Foo", rapid.SampledFrom([]string{"", "1", "1, 2", "1,2"}))
	line("Accept-Encoding", rapid.SampledFrom([]string{"gzip, br", "br,gzip", "gzip;q=0.5", "gzip;q=0.50", ""}))
	return r
})

var policy = rapid.Custom(func(t *rapid.T) Policy {
	s := rapid.Map(rapid.IntRange(-1, 60), func(n int) time.Duration { return time.Duration(n) * time.Second })
	return Policy{Heuristic: s.Draw(t, "heuristic"), Negative: s.Draw(t, "negative"), StaleIfError: s.Draw(t, "stale-if-error")}
})

func TestAgeNeverShrinks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := response.Draw(t, "response")
		a := rapid.Int64().Draw(t, "a")
		b := rapid.Int64().Draw(t, "b")
		early, late := noon.Add(time.Duration(min(a, b))), noon.Add(time.Duration(max(a, b)))
		before, after := Age(r, early), Age(r, late)
		if before < 0 || after < before {
			t.Fatalf("%v at %v, %v at %v", before, early, after, late)
		}
	})
}

func TestALongerDelayOrALargerAgeNeverMakesYounger(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := response.Draw(t, "response")
		r.Header["Age"] = []string{fmt.Sprint(rapid.IntRange(0, 1<<40).Draw(t, "age"))}
		older := r
		older.RequestTime = r.RequestTime.Add(-time.Duration(rapid.Int64Min(0).Draw(t, "longer delay")))
		older.Header = r.Header.Clone()
		older.Header["Age"] = []string{"9" + r.Header["Age"][0]}
		if a, b := Age(r, noon), Age(older, noon); b < a {
			t.Fatalf("%v became %v", a, b)
		}
	})
}

func TestLifetimeIsNeverNegative(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		if got := Lifetime(response.Draw(t, "response"), policy.Draw(t, "policy")); got < 0 {
			t.Fatal(got)
		}
	})
}

// rank orders verdicts by how much they allow.
var rank = map[Verdict]int{Fresh: 4, StaleWhileRevalidate: 3, StaleIfError: 2, MustRevalidate: 1, Unusable: 0}

func TestStricterIsNeverFresher(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		req, resp, o := request.Draw(t, "request"), response.Draw(t, "response"), policy.Draw(t, "policy")
		now := later(rapid.IntRange(-10, 400).Draw(t, "now"))
		before := Judge(req, resp, now, o)
		if before.Verdict == Fresh && before.Age >= before.Lifetime {
			t.Fatalf("stale and called fresh: %+v", before)
		}

		stricter := []string{"no-cache", "must-revalidate", "proxy-revalidate", "no-store", "private", `no-cache="vary"`, "stale-while-revalidate=0", "stale-if-error=0"}
		d := ResponseDirectives(resp.Header)
		if d.MaxAge.Given {
			stricter = append(stricter, "max-age=0", "max-age=30", "max-age=x")
		}
		if d.SMaxAge.Given {
			stricter = append(stricter, "s-maxage=0", "s-maxage=30", "s-maxage=x")
		}
		said := resp
		said.Header = resp.Header.Clone()
		said.Header.Add("Cache-Control", rapid.SampledFrom(stricter).Draw(t, "said as well"))
		if after := Judge(req, said, now, o); rank[after.Verdict] > rank[before.Verdict] {
			t.Fatalf("the response said more, and %+v became %+v", before, after)
		}

		asked := req
		asked.Header = req.Header.Clone()
		asked.Header.Add("Cache-Control", rapid.SampledFrom([]string{"no-cache", "max-age=0", "max-age=30", "max-age=x", "min-fresh=10", "min-fresh=x", "only-if-cached", "no-store"}).Draw(t, "asked as well"))
		if after := Judge(asked, resp, now, o); rank[after.Verdict] > rank[before.Verdict] {
			t.Fatalf("the request asked more, and %+v became %+v", before, after)
		}
	})
}

func TestTimeNeverMakesBetter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		req, resp, o := request.Draw(t, "request"), response.Draw(t, "response"), policy.Draw(t, "policy")
		now := rapid.IntRange(-10, 400).Draw(t, "now")
		before, after := Judge(req, resp, later(now), o), Judge(req, resp, later(now+rapid.IntRange(0, 100).Draw(t, "wait")), o)
		if rank[after.Verdict] > rank[before.Verdict] {
			t.Fatalf("%+v became %+v", before, after)
		}
	})
}

func TestStricterIsNeverMoreStorable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		req, resp := request.Draw(t, "request"), response.Draw(t, "response")
		before, _ := Storable(req, resp)
		said := resp
		said.Header = resp.Header.Clone()
		said.Header.Add("Cache-Control", rapid.SampledFrom([]string{"no-store", "private", `private="vary"`}).Draw(t, "said as well"))
		if after, _ := Storable(req, said); after && !before {
			t.Fatal("it may be stored because it said more")
		}
		if before {
			asked := req
			asked.Header = req.Header.Clone()
			asked.Header.Add("Cache-Control", "no-store")
			if after, _ := Storable(asked, resp); after {
				t.Fatal("stored against the wish of the request")
			}
		}
	})
}

func TestDirectivesSurviveWriting(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := ParseCacheControl(rapid.SliceOfN(control, 0, 3).Draw(t, "lines"))
		if again := ParseCacheControl([]string{d.String()}); !reflect.DeepEqual(d, again) {
			t.Fatalf("%s\n%+v\n%+v", d, d, again)
		}
	})
}

func TestTheOrderOfDirectivesDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.SliceOfN(directive, 0, 6).Draw(t, "list")
		shuffled := rapid.Permutation(list).Draw(t, "shuffled")
		a, b := ParseCacheControl([]string{strings.Join(list, ",")}), ParseCacheControl(shuffled)
		if !reflect.DeepEqual(a, b) {
			t.Fatalf("%q %q\n%+v\n%+v", list, shuffled, a, b)
		}
	})
}

func TestDatesSurviveWriting(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seconds := rapid.Int64Range(-62135596800, 253402300799).Draw(t, "seconds") // the years 1 to 9999
		when := time.Unix(seconds, 0)
		for _, form := range []string{FormatDate(when), when.UTC().Format(time.ANSIC)} {
			if got, ok := ParseDate(form, noon); !ok || !got.Equal(when) {
				t.Fatalf("%q: %v, %v", form, got, ok)
			}
		}
		near := noon.Add(time.Duration(rapid.Int64Range(-49*365*86400, 49*365*86400).Draw(t, "near")) * time.Second)
		form := near.Format("Monday, 02-Jan-06 15:04:05 GMT")
		if got, ok := ParseDate(form, noon); !ok || !got.Equal(near) {
			t.Fatalf("%q: %v, %v; want %v", form, got, ok, near)
		}
	})
}

func TestKeysAreEqualWhenRequestsMatch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		resp := response.Draw(t, "response")
		a, b := request.Draw(t, "a"), request.Draw(t, "b")
		ka, ok := VaryKey(resp, a)
		kb, _ := VaryKey(resp, b)
		if (ok && ka == kb) != Matches(resp.Header["Vary"], a.Header, b.Header) {
			t.Fatalf("keys %q and %q", ka, kb)
		}
		if ok != Matches(resp.Header["Vary"], a.Header, a.Header) {
			t.Fatal("a request does not match itself, or matches a star")
		}
	})
}

// An update gives a header that may be stored as it is, never keeps the age of
// the previous message, and can be repeated.
func TestUpdatesAreSound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		stored, notModified := response.Draw(t, "stored"), response.Draw(t, "304")
		notModified.Status = 304
		updated, err := Update(stored, notModified)
		if err != nil {
			return
		}
		if !reflect.DeepEqual(StoredHeader(updated.Header), updated.Header) {
			t.Fatalf("not fit to be stored: %v", updated.Header)
		}
		if got, most := Age(updated, noon), Age(notModified, noon); got != most {
			t.Fatalf("the update is %v old, the 304 %v", got, most)
		}
		again, err := Update(updated, notModified)
		if err == nil && !reflect.DeepEqual(again, updated) {
			t.Fatalf("%+v\n%+v", updated, again)
		}
	})
}

// Whatever the fields say, every function returns.
func TestNothingPanics(t *testing.T) {
	junk := rapid.Custom(func(t *rapid.T) http.Header {
		h := http.Header{}
		for _, name := range rapid.SliceOfN(rapid.SampledFrom([]string{
			"Cache-Control", "Pragma", "Date", "Expires", "Age", "Last-Modified", "Etag", "Vary", "Connection",
			"Location", "Content-Location", "Authorization", "Accept-Encoding", "Foo", "Content-Length",
		}), 0, 8).Draw(t, "names") {
			h[name] = append(h[name], rapid.OneOf(rapid.String(), rapid.StringOf(rapid.RuneFrom([]rune(`",\=*;q019. `))), control).Draw(t, name))
		}
		return h
	})
	when := rapid.Map(rapid.Int64(), func(n int64) time.Time { return time.Unix(n>>20, 0) })
	rapid.Check(t, func(t *rapid.T) {
		req := Request{Method: rapid.String().Draw(t, "method"), Header: junk.Draw(t, "request")}
		a := Response{rapid.Int().Draw(t, "status"), junk.Draw(t, "a"), when.Draw(t, "asked"), when.Draw(t, "came")}
		b := Response{304, junk.Draw(t, "b"), when.Draw(t, "asked"), when.Draw(t, "came")}
		o := Policy{time.Duration(rapid.Int64().Draw(t, "heuristic")), time.Duration(rapid.Int64().Draw(t, "negative")), time.Duration(rapid.Int64().Draw(t, "error"))}
		j := Judge(req, a, when.Draw(t, "now"), o)
		if j.Age < 0 || j.Lifetime < 0 {
			t.Fatalf("%+v", j)
		}
		Storable(req, a)
		VaryKey(a, req)
		Conditions(a)
		Selected([]Response{a, b}, b)
		_, _ = Update(a, b)
	})
}

// A list costs time linear in its length: with quadratic time, two million
// bytes would run into the time-out of the tests.
func TestAHostileListIsReadOnce(t *testing.T) {
	for part, want := range map[string]int{`\"`: 1, `,\"`: 1 << 20} {
		if got := len(members([]string{`"` + strings.Repeat(part, 1<<20)})); got < want {
			t.Errorf("%q: %d members", part, got)
		}
	}
}

func TestManyNamesAtOnce(t *testing.T) {
	const many = 2000
	h := http.Header{}
	var names, control []string
	for i := range many {
		name := fmt.Sprintf("X-%d", i)
		h[name] = []string{"1"}
		names = append(names, name)
		control = append(control, "private="+name, `no-cache="`+name+`"`)
	}
	h["Cache-Control"] = []string{strings.Join(control, ",")}
	if d := ResponseDirectives(h); len(d.PrivateFields) != many || len(d.NoCacheFields) != many {
		t.Errorf("%d private, %d no-cache", len(d.PrivateFields), len(d.NoCacheFields))
	}
	if left := len(StoredHeader(h)); left != 1 {
		t.Errorf("%d fields are kept", left)
	}
	h["Connection"] = []string{strings.Join(names, ",")}
	if left := len(EndToEnd(h)); left != 1 {
		t.Errorf("%d fields are end to end", left)
	}
}
