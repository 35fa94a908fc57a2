package freshness

import (
	"net/http"
	"slices"
	"testing"
	"time"
)

// testCache is the smallest cache that can be made of this package: one URL, no
// bytes. It shows that the functions fit together, and runs the exchanges of
// public test suites for caches.
type testCache struct {
	policy   Policy
	stored   []Response
	requests []http.Header // the request that led to each
}

// server is how the origin would answer: with a 304 if the conditions hold.
type server struct {
	status int // 200 if zero, -1 if the connection breaks
	fields []string
}

func (s server) answer(now time.Time, conditions http.Header) Response {
	code := s.status
	if code == 0 {
		code = 200
	}
	resp := Response{Status: code, Header: fields(s.fields...), RequestTime: now, ResponseTime: now}
	etag, modified := resp.Header.Get("ETag"), resp.Header.Get("Last-Modified")
	if inm := conditions.Get("If-None-Match"); inm != "" {
		if WeakMatch(inm, etag) {
			resp.Status = 304
		}
	} else if ims := conditions.Get("If-Modified-Since"); ims != "" && ims == modified {
		resp.Status = 304
	}
	return resp
}

// ask sends one request through the cache, and returns where the answer came
// from: "cache", "origin", "validated", "stale" (used because the origin
// failed), "refused" (504) or "broken".
func (c *testCache) ask(now time.Time, req Request, o server) string {
	i := c.find(req.Header)
	if i < 0 {
		if RequestDirectives(req.Header).OnlyIfCached {
			return "refused"
		}
		return c.fetch(now, req, o, nil)
	}
	j := Judge(req, c.stored[i], now, c.policy)
	switch j.Verdict {
	case Fresh:
		return "cache"
	case StaleWhileRevalidate:
		c.fetch(now, req, o, Conditions(c.stored[i]))
		return "cache"
	case Unusable:
		return "refused"
	}
	from := c.fetch(now, req, o, Conditions(c.stored[i]))
	if j.Verdict == StaleIfError && (from == "broken" || ErrorStatus(o.status)) {
		return "stale"
	}
	return from
}

func (c *testCache) find(req http.Header) int {
	for i := range c.stored {
		if Matches(c.stored[i].Header["Vary"], c.requests[i], req) {
			return i
		}
	}
	return -1
}

func (c *testCache) fetch(now time.Time, req Request, o server, conditions http.Header) string {
	if o.status < 0 {
		return "broken"
	}
	resp := o.answer(now, conditions)
	if resp.Status == 304 {
		for _, i := range Selected(c.stored, resp) {
			c.stored[i], _ = Update(c.stored[i], resp)
		}
		return "validated"
	}
	if may, _ := Storable(req, resp); may && !ErrorStatus(resp.Status) {
		resp.Header = StoredHeader(resp.Header)
		if i := c.find(req.Header); i >= 0 {
			c.stored, c.requests = slices.Delete(c.stored, i, i+1), slices.Delete(c.requests, i, i+1)
		}
		c.stored, c.requests = append(c.stored, resp), append(c.requests, req.Header)
	}
	return "origin"
}

func TestScenarios(t *testing.T) {
	// Dates in the second request do not matter; the first is at noon, and the
	// second comes three seconds later.
	type second struct {
		req  []string
		o    server
		want string
	}
	again := func(want string) second { return second{want: want} }
	asks := func(control, want string) second { return second{req: []string{"Cache-Control", control}, want: want} }
	dies := func(want string) second { return second{o: server{status: -1}, want: want} }
	fails := func(want string) second { return second{o: server{status: 503}, want: want} }
	cc := func(control string) []string { return []string{"Cache-Control", control} }

	for name, c := range map[string]struct {
		req   []string
		first []string
		then  second
	}{
		"nothing said":                       {nil, nil, again("origin")},
		"max-age":                            {nil, cc("max-age=3600"), again("cache")},
		"max-age=0":                          {nil, cc("max-age=0"), again("origin")},
		"max-age over":                       {nil, cc("max-age=2"), again("origin")},
		"max-age 2^31-1":                     {nil, cc("max-age=2147483647"), again("cache")},
		"max-age 2^31":                       {nil, cc("max-age=2147483648"), again("cache")},
		"max-age 2^31+1":                     {nil, cc("max-age=2147483649"), again("cache")},
		"max-age 99999999999":                {nil, cc("max-age=99999999999"), again("cache")},
		"max-age and a larger Age":           {nil, []string{"Date", at(0), "Cache-Control", "max-age=3600", "Age", "7200"}, again("origin")},
		"max-age and an old Date":            {nil, []string{"Date", at(-7200), "Cache-Control", "max-age=3600"}, again("origin")},
		"max-age and a past Expires":         {nil, []string{"Date", at(0), "Cache-Control", "max-age=3600", "Expires", at(-7200)}, again("cache")},
		"max-age and Expires: 0":             {nil, []string{"Date", at(0), "Cache-Control", "max-age=3600", "Expires", "0"}, again("cache")},
		"max-age=0 and a future Expires":     {nil, []string{"Date", at(0), "Cache-Control", "max-age=0", "Expires", at(3600)}, again("origin")},
		"an unknown directive first":         {nil, cc("foobar, max-age=3600"), again("cache")},
		"MaX-aGe":                            {nil, cc("MaX-aGe=3600"), again("cache")},
		"max-age negative":                   {nil, cc("max-age=-3600"), again("origin")},
		"max-age in quotes":                  {nil, cc(`max-age="3600"`), again("cache")},
		"max-age in single quotes":           {nil, cc(`max-age='3600'`), again("origin")},
		"max-age inside quotes":              {nil, cc(`extension="max-age=3600", max-age=1`), again("origin")},
		"max-age inside quotes, behind":      {nil, cc(`max-age=1, extension="max-age=3600"`), again("origin")},
		"max-age 003600":                     {nil, cc("max-age=003600"), again("cache")},
		"two max-age, one over":              {nil, cc("max-age=1800, max-age=1"), again("origin")},
		"s-maxage":                           {nil, cc("s-maxage=3600"), again("cache")},
		"s-maxage shorter":                   {nil, cc("max-age=3600, s-maxage=1"), again("origin")},
		"s-maxage longer, Expires past":      {nil, []string{"Expires", at(-10), "Cache-Control", "max-age=0, s-maxage=3600"}, again("cache")},
		"Expires":                            {nil, []string{"Date", at(0), "Expires", at(3600)}, again("cache")},
		"Expires past":                       {nil, []string{"Date", at(0), "Expires", at(-3600)}, again("origin")},
		"Expires now":                        {nil, []string{"Date", at(0), "Expires", at(0)}, again("origin")},
		"Expires before a fast Date":         {nil, []string{"Date", at(400), "Expires", at(300)}, again("origin")},
		"Expires, Date broken":               {nil, []string{"Date", "foo", "Expires", at(10)}, again("cache")},
		"Expires, slow Date, Age":            {nil, []string{"Date", at(-10), "Expires", at(10), "Age", "25"}, again("origin")},
		"Expires, fast Date, Age":            {nil, []string{"Date", at(10), "Expires", at(20), "Age", "15"}, again("origin")},
		"heuristic":                          {nil, []string{"Date", at(0), "Last-Modified", at(-86400)}, again("cache")},
		"no-store":                           {nil, cc("No-StOrE, max-age=3600"), again("origin")},
		"private":                            {nil, cc("private, max-age=3600"), again("origin")},
		"no-cache":                           {nil, cc("max-age=3600, No-CaChE"), again("origin")},
		"no-cache with a field":              {nil, cc(`no-cache="a", max-age=3600`), again("cache")},
		"must-revalidate, fresh":             {nil, cc("max-age=3600, must-revalidate"), again("cache")},
		"pragma in the response":             {nil, []string{"Cache-Control", "max-age=3600", "Pragma", "no-cache"}, again("cache")},
		"pragma in the request":              {nil, cc("max-age=3600"), second{req: []string{"Pragma", "no-cache"}, want: "origin"}},
		"unknown pragma":                     {nil, cc("max-age=3600"), second{req: []string{"Pragma", "x"}, want: "cache"}},
		"request max-age=0":                  {nil, cc("max-age=3600"), asks("max-age=0", "origin")},
		"request max-age=1":                  {nil, cc("max-age=3600"), asks("max-age=1", "origin")},
		"request max-age, aged":              {nil, []string{"Cache-Control", "max-age=3600", "Age", "1800"}, asks("max-age=600", "origin")},
		"request max-stale":                  {nil, cc("max-age=1"), asks("max-stale=1000", "cache")},
		"request max-stale, aged":            {nil, []string{"Cache-Control", "max-age=1500", "Age", "2000"}, asks("max-stale=1000", "cache")},
		"request min-fresh":                  {nil, cc("max-age=1500"), asks("min-fresh=2000", "origin")},
		"request min-fresh, aged":            {nil, []string{"Cache-Control", "max-age=1500", "Age", "1000"}, asks("min-fresh=1000", "origin")},
		"request no-cache":                   {nil, cc("max-age=3600"), asks("no-cache", "origin")},
		"request only-if-cached":             {nil, cc("no-store"), asks("only-if-cached", "refused")},
		"Authorization":                      {[]string{"Authorization", "FOO"}, []string{"Date", at(0), "Expires", at(3600)}, again("origin")},
		"Authorization, public":              {[]string{"Authorization", "FOO"}, cc("max-age=3600, public"), again("cache")},
		"Authorization, must-revalidate":     {[]string{"Authorization", "FOO"}, cc("max-age=3600, must-revalidate"), again("cache")},
		"Authorization, s-maxage":            {[]string{"Authorization", "FOO"}, cc("s-maxage=3600"), again("cache")},
		"Vary, other value":                  {[]string{"Foo", "1"}, []string{"Cache-Control", "max-age=3600", "Vary", "Foo"}, second{req: []string{"Foo", "2"}, want: "origin"}},
		"Vary, same value":                   {[]string{"Foo", "1"}, []string{"Cache-Control", "max-age=3600", "Vary", "Foo"}, second{req: []string{"Foo", "1", "Other", "3"}, want: "cache"}},
		"Vary, omitted":                      {[]string{"Foo", "1"}, []string{"Cache-Control", "max-age=3600", "Vary", "Foo"}, again("origin")},
		"Vary: *":                            {[]string{"Foo", "1"}, []string{"Cache-Control", "max-age=3600", "Vary", "*"}, second{req: []string{"Foo", "1"}, want: "origin"}},
		"Set-Cookie":                         {nil, []string{"Cache-Control", "max-age=3600", "Set-Cookie", "a=b"}, again("cache")},
		"stale, the origin dies":             {nil, cc("max-age=2"), dies("broken")},
		"stale-if-error, the origin dies":    {nil, cc("max-age=2, stale-if-error=60"), dies("stale")},
		"stale-if-error, the origin fails":   {nil, cc("max-age=2, stale-if-error=60"), fails("stale")},
		"stale-if-error, must-revalidate":    {nil, cc("max-age=2, stale-if-error=60, must-revalidate"), dies("broken")},
		"stale-if-error, proxy-revalidate":   {nil, cc("max-age=2, stale-if-error=60, proxy-revalidate"), dies("broken")},
		"stale-if-error, no-cache":           {nil, cc("max-age=2, stale-if-error=60, no-cache"), dies("broken")},
		"stale-if-error, s-maxage":           {nil, cc("s-maxage=2, stale-if-error=60"), dies("broken")},
		"stale-while-revalidate":             {nil, cc("max-age=2, stale-while-revalidate=60"), again("cache")},
		"stale-while-revalidate, over":       {nil, cc("max-age=1, stale-while-revalidate=1"), again("origin")},
		"stale, ETag":                        {nil, []string{"Cache-Control", "max-age=2", "ETag", `"a"`}, second{o: server{fields: []string{"ETag", `"a"`}}, want: "validated"}},
		"stale, weak ETag":                   {nil, []string{"Cache-Control", "max-age=2", "ETag", `W/"a"`}, second{o: server{fields: []string{"ETag", `W/"a"`}}, want: "validated"}},
		"stale, ETag changed":                {nil, []string{"Cache-Control", "max-age=2", "ETag", `"a"`}, second{o: server{fields: []string{"ETag", `"b"`}}, want: "origin"}},
		"stale, Last-Modified":               {nil, []string{"Cache-Control", "max-age=2", "Last-Modified", at(-60)}, second{o: server{fields: []string{"Last-Modified", at(-60)}}, want: "validated"}},
		"no-cache, ETag":                     {nil, []string{"Cache-Control", "no-cache", "ETag", `"a"`}, second{o: server{fields: []string{"ETag", `"a"`}}, want: "validated"}},
		"immutable, reloaded":                {nil, cc("max-age=3600, immutable"), asks("max-age=0", "cache")},
		"immutable, over":                    {nil, cc("max-age=2, immutable"), asks("max-age=0", "origin")},
		"Connection names what it must not":  {nil, []string{"Cache-Control", "max-age=3600", "Connection", "cache-control"}, again("origin")},
		"a response that came late is older": {nil, []string{"Cache-Control", "max-age=10", "Age", "8"}, again("origin")},
	} {
		s := &testCache{policy: Policy{Heuristic: time.Hour}}
		if from := s.ask(noon, get(c.req...), server{fields: c.first}); from != "origin" {
			t.Errorf("%s: the first answer is from %s", name, from)
		}
		if from := s.ask(later(3), get(c.then.req...), c.then.o); from != c.then.want {
			t.Errorf("%s: from %s, want %s", name, from, c.then.want)
		}
	}
}

// A response that is validated is fresh again, with the header of the 304.
func TestARowOfValidations(t *testing.T) {
	s := &testCache{}
	o := server{fields: []string{"Cache-Control", "max-age=10", "ETag", `"a"`, "Age", "3"}}
	var got []string
	for _, seconds := range []int{0, 5, 8, 9, 16, 17} {
		got = append(got, s.ask(later(seconds), get(), o))
	}
	if want := []string{"origin", "cache", "validated", "cache", "validated", "cache"}; !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
}

// Variants are stored side by side, and one does not evict the other.
func TestVariantsSideBySide(t *testing.T) {
	s := &testCache{}
	o := server{fields: []string{"Cache-Control", "max-age=60", "Vary", "Accept-Encoding"}}
	var got []string
	for _, accept := range []string{"gzip, br", "identity", "br,gzip", "identity", ""} {
		got = append(got, s.ask(noon, get("Accept-Encoding", accept), o))
	}
	got = append(got, s.ask(noon, get(), o))
	if want := []string{"origin", "origin", "cache", "cache", "origin", "origin"}; !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
}
