package freshness

import (
	"strings"
	"testing"
	"time"
)

func TestJudge(t *testing.T) {
	cc := func(control string) Response { return ok("Cache-Control", control) }
	asks := func(control string) Request { return get("Cache-Control", control) }
	forgiving := Policy{StaleIfError: 10 * time.Second}
	for name, c := range map[string]struct {
		req    Request
		resp   Response
		age    int
		policy Policy
		want   Verdict
		reason string
	}{
		"§4.2 fresh":                          {get(), cc("max-age=60"), 59, Policy{}, Fresh, ""},
		"§4.2 fresh, HEAD":                    {Request{Method: "HEAD"}, cc("max-age=60"), 59, Policy{}, Fresh, ""},
		"§4.2 fresh, no method":               {Request{}, cc("max-age=60"), 59, Policy{}, Fresh, ""},
		"§4 another method":                   {Request{Method: "POST"}, cc("max-age=60"), 0, Policy{}, MustRevalidate, "method"},
		"§4.2 stale at its lifetime":          {get(), cc("max-age=60"), 60, Policy{}, MustRevalidate, "stale"},
		"§4.2 no lifetime":                    {get(), ok(), 0, Policy{}, MustRevalidate, "stale"},
		"§4.2.2 guessed":                      {get(), ok("Last-Modified", at(-6000)), 599, Policy{Heuristic: time.Hour}, Fresh, ""},
		"§5.2.2.4 no-cache":                   {get(), cc("no-cache, max-age=60"), 0, Policy{}, MustRevalidate, "response says no-cache"},
		"§5.2.2.4 no-cache, no excuse":        {asks("max-stale"), cc("no-cache, max-age=1, stale-if-error=99, stale-while-revalidate=99"), 2, forgiving, MustRevalidate, "response says no-cache"},
		"§5.2.2.4 no-cache, a field":          {get(), cc(`no-cache="set-cookie", max-age=60`), 0, Policy{}, Fresh, ""},
		"§5.2.2.4 no-cache, a needed field":   {get(), cc(`no-cache="vary", max-age=60`), 0, Policy{}, MustRevalidate, "response says no-cache"},
		"§5.2.2.2 must-revalidate, fresh":     {get(), cc("max-age=60, must-revalidate"), 0, Policy{}, Fresh, ""},
		"§5.2.2.2 must-revalidate, stale":     {asks("max-stale"), cc("max-age=60, must-revalidate, stale-if-error=99, stale-while-revalidate=99"), 60, forgiving, MustRevalidate, "forbids"},
		"§5.2.2.8 proxy-revalidate, stale":    {asks("max-stale"), cc("max-age=60, proxy-revalidate"), 60, forgiving, MustRevalidate, "forbids"},
		"§5.2.2.10 s-maxage, stale":           {asks("max-stale"), cc("s-maxage=60, stale-while-revalidate=99"), 60, forgiving, MustRevalidate, "forbids"},
		"§5.2.2.10 s-maxage broken":           {asks("max-stale"), cc("s-maxage=x"), 1, forgiving, MustRevalidate, "forbids"},
		"§5.2.1.4 no-cache":                   {asks("no-cache"), cc("max-age=60"), 0, forgiving, MustRevalidate, "request says no-cache"},
		"§5.2.1.4 no-cache with an argument":  {asks("no-cache=x"), cc("max-age=60"), 0, forgiving, MustRevalidate, "request says no-cache"},
		"§5.4 Pragma":                         {get("Pragma", "no-cache"), cc("max-age=60"), 0, Policy{}, MustRevalidate, "request says no-cache"},
		"§5.4 Pragma and Cache-Control":       {get("Pragma", "no-cache", "Cache-Control", "max-age=60"), cc("max-age=60"), 0, Policy{}, Fresh, ""},
		"§5.2.1.5 no-store does not concern":  {asks("no-store"), cc("max-age=60"), 0, Policy{}, Fresh, ""},
		"§5.2.1.6 nor no-transform":           {asks("no-transform"), cc("max-age=60"), 0, Policy{}, Fresh, ""},
		"§5.2.1.1 max-age=0, new":             {asks("max-age=0"), cc("max-age=60"), 0, Policy{}, Fresh, ""},
		"§5.2.1.1 max-age=0, not new":         {asks("max-age=0"), cc("max-age=60"), 1, Policy{}, MustRevalidate, "older"},
		"§5.2.1.1 max-age as old":             {asks("max-age=10"), cc("max-age=60"), 10, Policy{}, Fresh, ""},
		"§5.2.1.1 max-age older":              {asks("max-age=10"), cc("max-age=60"), 11, Policy{}, MustRevalidate, "older"},
		"§5.2.1.1 max-age, by Age":            {asks("max-age=600"), ok("Cache-Control", "max-age=3600", "Age", "1800"), 0, Policy{}, MustRevalidate, "older"},
		"§5.2.1.1 max-age broken":             {asks("max-age=x"), cc("max-age=60"), 0, Policy{}, MustRevalidate, "older"},
		"§5.2.1.1 max-age forbids stale":      {asks("max-age=100"), cc("max-age=60, stale-while-revalidate=99"), 70, Policy{}, MustRevalidate, "without max-stale"},
		"§5.2.1.1 max-age with max-stale":     {asks("max-age=100, max-stale=20"), cc("max-age=60"), 70, Policy{}, StaleWhileRevalidate, "accepts"},
		"§5.2.1.1 max-age beats max-stale":    {asks("max-age=65, max-stale=20"), cc("max-age=60"), 70, Policy{}, MustRevalidate, "older"},
		"§5.2.1.3 min-fresh, enough":          {asks("min-fresh=10"), cc("max-age=60"), 50, Policy{}, Fresh, ""},
		"§5.2.1.3 min-fresh, too little":      {asks("min-fresh=10"), cc("max-age=60"), 51, Policy{}, MustRevalidate, "not as fresh"},
		"§5.2.1.3 min-fresh broken":           {asks("min-fresh=x"), cc("max-age=60"), 0, Policy{}, MustRevalidate, "not as fresh"},
		"§5.2.1.3 min-fresh beats max-stale":  {asks("min-fresh=1, max-stale"), cc("max-age=60"), 61, Policy{}, MustRevalidate, "not as fresh"},
		"§5.2.1.3 min-fresh, huge":            {asks("min-fresh=99999999999"), cc("max-age=99999999999"), 1, Policy{}, MustRevalidate, "not as fresh"},
		"§5.2.1.2 max-stale, any":             {asks("max-stale"), cc("max-age=60"), 1e6, Policy{}, StaleWhileRevalidate, "accepts"},
		"§5.2.1.2 max-stale, as much":         {asks("max-stale=10"), cc("max-age=60"), 70, Policy{}, StaleWhileRevalidate, "accepts"},
		"§5.2.1.2 max-stale, more":            {asks("max-stale=10"), cc("max-age=60"), 71, Policy{}, MustRevalidate, "stale"},
		"§5.2.1.2 max-stale broken":           {asks("max-stale=x"), cc("max-age=60"), 61, Policy{}, MustRevalidate, "stale"},
		"§5.2.1.2 max-stale, fresh":           {asks("max-stale=10"), cc("max-age=60"), 1, Policy{}, Fresh, ""},
		"§5.2.1.7 only-if-cached, fresh":      {asks("only-if-cached"), cc("max-age=60"), 1, Policy{}, Fresh, ""},
		"§5.2.1.7 only-if-cached, stale":      {asks("only-if-cached"), cc("max-age=60"), 60, Policy{}, Unusable, "only-if-cached"},
		"§5.2.1.7 only-if-cached, on error":   {asks("only-if-cached"), cc("max-age=60, stale-if-error=60"), 60, Policy{}, Unusable, "only-if-cached"},
		"§5.2.1.7 only-if-cached, max-stale":  {asks("only-if-cached, max-stale"), cc("max-age=60"), 60, Policy{}, StaleWhileRevalidate, "accepts"},
		"§5.2.1.7 only-if-cached, meanwhile":  {asks("only-if-cached"), cc("max-age=60, stale-while-revalidate=9"), 60, Policy{}, StaleWhileRevalidate, "meanwhile"},
		"§5.2.1.7 only-if-cached, no-cache":   {asks("only-if-cached, no-cache"), cc("max-age=60"), 1, Policy{}, Unusable, "no-cache"},
		"RFC 5861 §3 at the end":              {get(), cc("max-age=60, stale-while-revalidate=10"), 70, Policy{}, StaleWhileRevalidate, "meanwhile"},
		"RFC 5861 §3 at the beginning":        {get(), cc("max-age=60, stale-while-revalidate=10"), 60, Policy{}, StaleWhileRevalidate, "meanwhile"},
		"RFC 5861 §3 after":                   {get(), cc("max-age=60, stale-while-revalidate=10"), 71, Policy{}, MustRevalidate, "stale"},
		"RFC 5861 §3 zero":                    {get(), cc("max-age=60, stale-while-revalidate=0"), 60, Policy{}, MustRevalidate, "stale"},
		"RFC 5861 §3 broken":                  {get(), cc("max-age=60, stale-while-revalidate=x"), 60, Policy{}, MustRevalidate, "stale"},
		"RFC 5861 §3 with Expires":            {get(), ok("Expires", at(60), "Cache-Control", "stale-while-revalidate=10"), 65, Policy{}, StaleWhileRevalidate, "meanwhile"},
		"RFC 5861 §4 in the response":         {get(), cc("max-age=60, stale-if-error=10"), 70, Policy{}, StaleIfError, "stale"},
		"RFC 5861 §4 after":                   {get(), cc("max-age=60, stale-if-error=10"), 71, Policy{}, MustRevalidate, "stale"},
		"RFC 5861 §4 in the request":          {asks("stale-if-error=10"), cc("max-age=60"), 70, Policy{}, StaleIfError, "stale"},
		"RFC 5861 §4 the longer one":          {asks("stale-if-error=10"), cc("max-age=60, stale-if-error=5"), 70, Policy{}, StaleIfError, "stale"},
		"RFC 5861 §4 after the other one":     {get(), cc("max-age=60, stale-while-revalidate=5, stale-if-error=50"), 70, Policy{}, StaleIfError, "stale"},
		"RFC 5861 §4 by policy":               {get(), cc("max-age=60"), 70, forgiving, StaleIfError, "stale"},
		"RFC 5861 §4 after policy":            {get(), cc("max-age=60"), 71, forgiving, MustRevalidate, "stale"},
		"RFC 5861 §4 zero beats policy":       {get(), cc("max-age=60, stale-if-error=0"), 60, forgiving, MustRevalidate, "stale"},
		"RFC 5861 §4 broken beats policy":     {get(), cc("max-age=60, stale-if-error=x"), 60, forgiving, MustRevalidate, "stale"},
		"RFC 5861 §4 older than asked":        {asks("max-age=0"), cc("max-age=60, stale-if-error=10"), 5, Policy{}, StaleIfError, "older"},
		"RFC 8246 §2.1 a reload, fresh":       {asks("max-age=0"), cc("max-age=60, immutable"), 5, Policy{}, Fresh, ""},
		"RFC 8246 §2.1 a reload, stale":       {asks("max-age=0"), cc("max-age=60, immutable"), 60, Policy{}, MustRevalidate, "older"},
		"RFC 8246 §2.1 no-cache":              {asks("no-cache"), cc("max-age=60, immutable"), 5, Policy{}, MustRevalidate, "no-cache"},
		"RFC 8246 §2 does not make it fresh":  {get(), cc("immutable"), 0, Policy{}, MustRevalidate, "stale"},
		"§5.2.2 the client's on an old thing": {asks("max-stale=1"), ok("Cache-Control", "max-age=1500", "Age", "2000"), 0, Policy{}, MustRevalidate, "stale"},
	} {
		got := Judge(c.req, c.resp, later(c.age), c.policy)
		if got.Verdict != c.want || !strings.Contains(got.Reason, c.reason) || (got.Reason == "") != (got.Verdict == Fresh) {
			t.Errorf("%s: %v, %q; want %v, %q", name, got.Verdict, got.Reason, c.want, c.reason)
		}
		if got.Age != Age(c.resp, later(c.age)) || got.Lifetime != Lifetime(c.resp, c.policy) {
			t.Errorf("%s: age %v and lifetime %v", name, got.Age, got.Lifetime)
		}
	}
}

func TestVerdictsHaveNames(t *testing.T) {
	for v, want := range map[Verdict]string{
		MustRevalidate: "must-revalidate", Fresh: "fresh", StaleWhileRevalidate: "stale-while-revalidate",
		StaleIfError: "stale-if-error", Unusable: "unusable", 9: "verdict 9", -1: "verdict -1",
	} {
		if v.String() != want {
			t.Errorf("%d: %s", int(v), v)
		}
	}
}

// RFC 5861 §4
func TestErrorStatus(t *testing.T) {
	want := map[int]bool{500: true, 502: true, 503: true, 504: true}
	for code := range 1000 {
		if ErrorStatus(code) != want[code] {
			t.Error(code)
		}
	}
}

func BenchmarkJudge(b *testing.B) {
	resp := ok("Date", at(0), "Cache-Control", "public, max-age=3600", "ETag", `"a"`, "Vary", "Accept-Encoding")
	req := get("Accept-Encoding", "gzip, br")
	now := later(5)
	b.ReportAllocs()
	for b.Loop() {
		if Judge(req, resp, now, Policy{}).Verdict != Fresh {
			b.Fatal("not fresh")
		}
	}
}
