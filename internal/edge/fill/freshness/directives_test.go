package freshness

import (
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"
)

func span(seconds int) Seconds {
	return Seconds{Given: true, Valid: true, Span: time.Duration(seconds) * time.Second}
}

var broken = Seconds{Given: true}

func TestCacheControl(t *testing.T) {
	for name, c := range map[string]struct {
		lines []string
		want  Directives
	}{
		"§5.2 nothing":                         {nil, Directives{}},
		"§5.2 empty members":                   {[]string{"", " , ,,"}, Directives{}},
		"§5.2 unknown ignored":                 {[]string{`foo, bar=1, baz="x, max-age=9", max-age=1`}, Directives{MaxAge: span(1)}},
		"§5.2 case":                            {[]string{"MaX-aGe=5, No-StOrE"}, Directives{MaxAge: span(5), NoStore: true}},
		"§5.2 several lines":                   {[]string{"max-age=5", "public, no-transform"}, Directives{MaxAge: span(5), Public: true, NoTransform: true}},
		"§5.2 tabs":                            {[]string{"\tmax-age=5\t,\tno-store"}, Directives{MaxAge: span(5), NoStore: true}},
		"§5.2 quoted number":                   {[]string{`max-age="60", s-maxage="\6"`}, Directives{MaxAge: span(60), SMaxAge: span(6)}},
		"§5.2 quoted, then more":               {[]string{`max-age="60"x`}, Directives{MaxAge: broken}},
		"§5.2 quoted comma hides nothing else": {[]string{`ext="a\"b, no-store", public`}, Directives{Public: true}},
		"§5.2 stray quote hides nothing":       {[]string{`ext="a, no-store`}, Directives{NoStore: true}},
		"§5.2 escape at the end":               {[]string{`max-age="6\`, `max-age=7`}, Directives{MaxAge: broken}},
		"§5.2 single quotes":                   {[]string{`max-age='60'`}, Directives{MaxAge: broken}},
		"§5.2 flag with an argument":           {[]string{"no-store=1, must-revalidate=\"x\""}, Directives{NoStore: true, MustRevalidate: true}},

		"§1.2.2 leading zeros": {[]string{"max-age=003600"}, Directives{MaxAge: span(3600)}},
		"§1.2.2 2^31":          {[]string{"max-age=2147483648"}, Directives{MaxAge: span(1 << 31)}},
		"§1.2.2 above 2^31":    {[]string{"max-age=2147483649, s-maxage=99999999999999999999999999"}, Directives{MaxAge: span(1 << 31), SMaxAge: span(1 << 31)}},

		"§4.2.1 negative":            {[]string{"max-age=-1"}, Directives{MaxAge: broken}},
		"§4.2.1 plus":                {[]string{"max-age=+1"}, Directives{MaxAge: broken}},
		"§4.2.1 fraction":            {[]string{"max-age=3600.0"}, Directives{MaxAge: broken}},
		"§4.2.1 letters before":      {[]string{"max-age=a60"}, Directives{MaxAge: broken}},
		"§4.2.1 letters behind":      {[]string{"max-age=60a"}, Directives{MaxAge: broken}},
		"§4.2.1 nothing":             {[]string{"max-age="}, Directives{MaxAge: broken}},
		"§4.2.1 empty quotes":        {[]string{`max-age=""`}, Directives{MaxAge: broken}},
		"§4.2.1 no argument":         {[]string{"max-age, s-maxage, min-fresh"}, Directives{MaxAge: broken, SMaxAge: broken, MinFresh: broken}},
		"§4.2.1 space before equals": {[]string{"max-age =60"}, Directives{MaxAge: broken}},
		"§4.2.1 space after equals":  {[]string{"max-age= 60"}, Directives{MaxAge: broken}},
		"§4.2.1 not ASCII digits":    {[]string{"max-age=٦٠"}, Directives{MaxAge: broken}},
		"§4.2.1 two: the shorter":    {[]string{"max-age=60, max-age=30"}, Directives{MaxAge: span(30)}},
		"§4.2.1 two, other order":    {[]string{"max-age=30", "max-age=60"}, Directives{MaxAge: span(30)}},
		"§4.2.1 two, one broken":     {[]string{"max-age=x, max-age=60"}, Directives{MaxAge: broken}},
		"§4.2.1 two, last broken":    {[]string{"max-age=60, max-age=x"}, Directives{MaxAge: broken}},
		"§4.2.1 the shortest s-":     {[]string{"s-maxage=2, s-maxage=1, s-maxage=3"}, Directives{SMaxAge: span(1)}},

		"§5.2.1.2 max-stale, any":           {[]string{"max-stale"}, Directives{MaxStale: Seconds{true, true, forever}}},
		"§5.2.1.2 max-stale, some":          {[]string{"max-stale=9"}, Directives{MaxStale: span(9)}},
		"§5.2.1.2 max-stale, both":          {[]string{"max-stale, max-stale=9"}, Directives{MaxStale: span(9)}},
		"§5.2.1.2 max-stale, empty":         {[]string{"max-stale="}, Directives{MaxStale: broken}},
		"§5.2.1.3 min-fresh: the longer":    {[]string{"min-fresh=1, min-fresh=2"}, Directives{MinFresh: span(2)}},
		"§5.2.1.4 and others, as flags":     {[]string{"no-cache, no-transform, only-if-cached"}, Directives{NoCache: true, NoTransform: true, OnlyIfCached: true}},
		"§5.2.2 flags":                      {[]string{"must-revalidate, proxy-revalidate, must-understand, public"}, Directives{MustRevalidate: true, ProxyRevalidate: true, MustUnderstand: true, Public: true}},
		"RFC 5861":                          {[]string{"stale-while-revalidate=3, stale-if-error=4"}, Directives{StaleWhileRevalidate: span(3), StaleIfError: span(4)}},
		"RFC 5861 twice":                    {[]string{"stale-while-revalidate=3, stale-if-error=4, stale-while-revalidate=2, stale-if-error=x"}, Directives{StaleWhileRevalidate: span(2), StaleIfError: broken}},
		"RFC 8246":                          {[]string{"immutable"}, Directives{Immutable: true}},
		"§5.2.2.4 no-cache, fields":         {[]string{`no-cache="set-cookie, X-b,,x-B"`}, Directives{NoCacheFields: []string{"Set-Cookie", "X-B"}}},
		"§5.2.2.4 no-cache, a token":        {[]string{`no-cache=set-cookie`}, Directives{NoCacheFields: []string{"Set-Cookie"}}},
		"§5.2.2.4 no-cache, no fields":      {[]string{`no-cache=""`}, Directives{NoCache: true}},
		"§5.2.2.4 no-cache, empty":          {[]string{`no-cache=`}, Directives{NoCache: true}},
		"§5.2.2.4 no-cache, space":          {[]string{`no-cache ="a"`}, Directives{NoCache: true}},
		"§5.2.2.4 no-cache, not fields":     {[]string{`no-cache="a b"`}, Directives{NoCache: true}},
		"§5.2.2.4 no-cache, plain and not":  {[]string{`no-cache="a", no-cache`}, Directives{NoCache: true, NoCacheFields: []string{"A"}}},
		"§5.2.2.4 no-cache, open quote":     {[]string{`no-cache="a`}, Directives{NoCache: true}},
		"§5.2.2.7 private":                  {[]string{`private`}, Directives{Private: true}},
		"§5.2.2.7 private, fields, twice":   {[]string{`private="b"`, `private="a"`}, Directives{PrivateFields: []string{"A", "B"}}},
		"§5.2.2.7 private, plain after all": {[]string{`private, private="a"`}, Directives{Private: true, PrivateFields: []string{"A"}}},
	} {
		if got := ParseCacheControl(c.lines); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %q\n got %+v\nwant %+v", name, c.lines, got, c.want)
		}
	}
}

func TestPragma(t *testing.T) {
	for name, c := range map[string]struct {
		h    []string
		want bool
	}{
		"§5.4 alone":                      {[]string{"Pragma", "no-cache"}, true},
		"§5.4 case and company":           {[]string{"Pragma", "x=1, No-Cache"}, true},
		"§5.4 something else":             {[]string{"Pragma", "no-cache=1"}, false},
		"§5.4 Cache-Control is there":     {[]string{"Pragma", "no-cache", "Cache-Control", "max-age=9"}, false},
		"§5.4 Cache-Control says so, too": {[]string{"Pragma", "x", "Cache-Control", "no-cache"}, true},
		"§5.4 neither":                    {nil, false},
	} {
		if got := RequestDirectives(fields(c.h...)).NoCache; got != c.want {
			t.Errorf("%s: no-cache is %v", name, got)
		}
	}
	if ResponseDirectives(fields("Pragma", "no-cache")).NoCache {
		t.Error("§5.4: Pragma has no meaning in a response")
	}
}

func TestDirectivesAreWrittenInOneLine(t *testing.T) {
	d := ParseCacheControl([]string{`max-stale, min-fresh=x`, `private="b, a", no-cache, max-age=7, public`})
	want := `public, private="A, B", no-cache, max-age=7, max-stale, min-fresh=invalid`
	if got := d.String(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// String writes the directives as one Cache-Control line. Parsing it gives the
// same directives again.
func (d Directives) String() string {
	var line []string
	seconds := func(name string, s Seconds) {
		switch {
		case !s.Given:
		case !s.Valid:
			line = append(line, name+"=invalid")
		case s.Span == forever:
			line = append(line, name)
		default:
			line = append(line, name+"="+strconv.FormatInt(int64(s.Span/time.Second), 10))
		}
	}
	flag := func(name string, set bool) {
		if set {
			line = append(line, name)
		}
	}
	fields := func(name string, whole bool, names []string) {
		flag(name, whole)
		if len(names) > 0 {
			line = append(line, name+`="`+strings.Join(names, ", ")+`"`)
		}
	}
	flag("public", d.Public)
	fields("private", d.Private, d.PrivateFields)
	fields("no-cache", d.NoCache, d.NoCacheFields)
	flag("no-store", d.NoStore)
	flag("no-transform", d.NoTransform)
	seconds("max-age", d.MaxAge)
	seconds("s-maxage", d.SMaxAge)
	seconds("max-stale", d.MaxStale)
	seconds("min-fresh", d.MinFresh)
	seconds("stale-while-revalidate", d.StaleWhileRevalidate)
	seconds("stale-if-error", d.StaleIfError)
	flag("must-revalidate", d.MustRevalidate)
	flag("proxy-revalidate", d.ProxyRevalidate)
	flag("must-understand", d.MustUnderstand)
	flag("only-if-cached", d.OnlyIfCached)
	flag("immutable", d.Immutable)
	return strings.Join(line, ", ")
}
