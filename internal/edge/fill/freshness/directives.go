package freshness

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// longest is what a number of seconds is cut to (RFC 9111 §1.2.2).
const longest = (1 << 31) * time.Second

// Directives is a Cache-Control field, all of its lines together, of a request
// or of a response (RFC 9111 §5.2, RFC 5861, RFC 8246). Unknown directives are
// left out.
type Directives struct {
	// In requests and in responses.
	MaxAge       Seconds
	StaleIfError Seconds
	NoStore      bool
	NoTransform  bool
	// NoCache is the plain form, which means the whole response.
	NoCache bool
	// NoCacheFields are the fields of no-cache="…", canonical and sorted.
	NoCacheFields []string

	// In requests only.
	MaxStale     Seconds // without a value: valid, with the largest Span there is
	MinFresh     Seconds
	OnlyIfCached bool

	// In responses only.
	SMaxAge              Seconds
	StaleWhileRevalidate Seconds
	MustRevalidate       bool
	ProxyRevalidate      bool
	MustUnderstand       bool
	Public               bool
	Immutable            bool
	// Private is the plain form, which means the whole response.
	Private bool
	// PrivateFields are the fields of private="…", canonical and sorted.
	PrivateFields []string
}

// Seconds is the argument of a directive that takes a time.
type Seconds struct {
	Given bool          // the directive is there
	Valid bool          // and its argument is a number
	Span  time.Duration // zero if it is not
}

// RequestDirectives reads the directives of a request. Pragma: no-cache means
// no-cache, but only to a request without Cache-Control (RFC 9111 §5.4).
func RequestDirectives(h http.Header) Directives {
	lines := h["Cache-Control"]
	if len(lines) > 0 {
		return ParseCacheControl(lines)
	}
	var d Directives
	for member := range each(h["Pragma"]) {
		if lower(member) == "no-cache" {
			d.NoCache = true
		}
	}
	return d
}

// ResponseDirectives reads the directives of a response. Pragma has no meaning
// there (RFC 9111 §5.4).
func ResponseDirectives(h http.Header) Directives {
	return ParseCacheControl(h["Cache-Control"])
}

// ParseCacheControl reads the lines of a Cache-Control field (RFC 9111 §5.2).
// Names are compared without case, arguments may be tokens or quoted strings
// whichever the directive prefers, and of a directive that is there twice the
// stricter one holds (§4.2.1).
func ParseCacheControl(values []string) Directives {
	var d Directives
	for member := range each(values) {
		name, text, has := strings.Cut(member, "=")
		bare := trim(name)
		d.add(lower(bare), argument{text: text, has: has, spaced: bare != name})
	}
	d.NoCacheFields, d.PrivateFields = sortedOnce(d.NoCacheFields), sortedOnce(d.PrivateFields)
	return d
}

// argument is what stands behind a directive's name.
type argument struct {
	text   string
	has    bool // there was an equals sign
	spaced bool // with white space before it, which the grammar forbids
}

// add takes one more directive in.
func (d *Directives) add(name string, arg argument) {
	switch name {
	case "max-age":
		d.MaxAge.tighten(arg.seconds(), shorter)
	case "s-maxage":
		d.SMaxAge.tighten(arg.seconds(), shorter)
	case "min-fresh":
		d.MinFresh.tighten(arg.seconds(), longer)
	case "stale-if-error":
		d.StaleIfError.tighten(arg.seconds(), shorter)
	case "stale-while-revalidate":
		d.StaleWhileRevalidate.tighten(arg.seconds(), shorter)
	case "max-stale":
		s := arg.seconds()
		if !arg.has {
			s = Seconds{Given: true, Valid: true, Span: forever}
		}
		d.MaxStale.tighten(s, shorter)
	case "no-store":
		d.NoStore = true
	case "no-transform":
		d.NoTransform = true
	case "only-if-cached":
		d.OnlyIfCached = true
	case "must-revalidate":
		d.MustRevalidate = true
	case "proxy-revalidate":
		d.ProxyRevalidate = true
	case "must-understand":
		d.MustUnderstand = true
	case "public":
		d.Public = true
	case "immutable":
		d.Immutable = true
	case "no-cache":
		d.NoCache, d.NoCacheFields = widen(d.NoCache, d.NoCacheFields, arg)
	case "private":
		d.Private, d.PrivateFields = widen(d.Private, d.PrivateFields, arg)
	}
}

func shorter(a, b time.Duration) bool { return a < b }
func longer(a, b time.Duration) bool  { return a > b }

// tighten merges a repeated directive: a broken one spoils both, of two numbers
// the stricter is kept.
func (s *Seconds) tighten(other Seconds, stricter func(a, b time.Duration) bool) {
	switch {
	case !s.Given:
		*s = other
	case !s.Valid || !other.Valid:
		*s = Seconds{Given: true}
	case stricter(other.Span, s.Span):
		*s = other
	}
}

// widen merges a further no-cache or private: without a field list that can be
// read, the whole response is meant.
func widen(whole bool, fields []string, arg argument) (bool, []string) {
	listed := arg.fields()
	if len(listed) == 0 {
		return true, fields
	}
	return whole, append(fields, listed...)
}

// sortedOnce sorts names and leaves out what is there again.
func sortedOnce(names []string) []string {
	slices.Sort(names)
	return slices.Compact(names)
}

// seconds reads the argument as delta-seconds (RFC 9111 §1.2.2): digits and
// nothing else. No argument is a broken one.
func (a argument) seconds() Seconds {
	text, ok := a.plain()
	if !ok {
		return Seconds{Given: true}
	}
	span, ok := parseSeconds(text)
	return Seconds{Given: true, Valid: ok, Span: span}
}

// fields reads the argument as a list of field names (RFC 9111 §5.2.2.4,
// §5.2.2.7), or as nil if it is none.
func (a argument) fields() []string {
	text, ok := a.plain()
	if !ok {
		return nil
	}
	names := members([]string{text})
	for i, name := range names {
		if !isToken(name) {
			return nil
		}
		names[i] = http.CanonicalHeaderKey(name)
	}
	return names
}

// plain takes the quotes off an argument, if it has the right form.
func (a argument) plain() (string, bool) {
	if !a.has || a.spaced {
		return "", false
	}
	return unquote(a.text)
}

// parseSeconds reads digits as seconds and stops at the longest span.
func parseSeconds(text string) (time.Duration, bool) {
	if text == "" {
		return 0, false
	}
	seconds := 0
	for i := 0; i < len(text); i++ {
		digit := text[i] - '0'
		if digit > 9 {
			return 0, false
		}
		seconds = min(int(longest/time.Second), seconds*10+int(digit))
	}
	return time.Duration(seconds) * time.Second, true
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
