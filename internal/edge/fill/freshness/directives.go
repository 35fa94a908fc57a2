package freshness

import (
	"net/http"
	"slices"
	"strings"
	"time"
)

// maxDelta is the largest number of seconds; larger ones are cut to it (RFC
// 9111 §1.2.2).
const maxDelta = (1 << 31) * time.Second

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
	MaxStale     Seconds // without a value: valid, with the largest Span
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
	for member := range listMembers(h["Pragma"]) {
		if asciiLower(member) == "no-cache" {
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

// ParseCacheControl parses the lines of a Cache-Control field (RFC 9111 §5.2).
// Names are compared without case, arguments may be tokens or quoted strings
// whichever the directive prefers, and of a repeated directive the stricter one
// holds (§4.2.1).
func ParseCacheControl(values []string) Directives {
	var d Directives
	for member := range listMembers(values) {
		name, text, has := strings.Cut(member, "=")
		bare := trimOWS(name)
		d.add(asciiLower(bare), argument{text: text, given: has, spaced: bare != name})
	}
	d.NoCacheFields, d.PrivateFields = sortedUnique(d.NoCacheFields), sortedUnique(d.PrivateFields)
	return d
}

// argument is the argument of a directive.
type argument struct {
	text   string
	given  bool // there was an equals sign
	spaced bool // with white space before it, which the grammar forbids
}

// add adds one directive.
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
		if !arg.given {
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

// tighten merges a repeated directive: if one is invalid the result is, and of
// two numbers the stricter is kept.
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

// widen merges a further no-cache or private: without a valid field list, it
// applies to the whole response.
func widen(whole bool, fields []string, arg argument) (bool, []string) {
	listed := arg.fields()
	if len(listed) == 0 {
		return true, fields
	}
	return whole, append(fields, listed...)
}

// sortedUnique sorts names and removes duplicates.
func sortedUnique(names []string) []string {
	slices.Sort(names)
	return slices.Compact(names)
}

// seconds parses the argument as delta-seconds (RFC 9111 §1.2.2): digits and
// nothing else. A missing argument is invalid.
func (a argument) seconds() Seconds {
	text, ok := a.plain()
	if !ok {
		return Seconds{Given: true}
	}
	span, ok := parseSeconds(text)
	return Seconds{Given: true, Valid: ok, Span: span}
}

// fields parses the argument as a list of field names (RFC 9111 §5.2.2.4,
// §5.2.2.7); nil if it is none.
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

// plain removes the quotes from an argument, if it is well-formed.
func (a argument) plain() (string, bool) {
	if !a.given || a.spaced {
		return "", false
	}
	return unquote(a.text)
}

// parseSeconds parses digits as seconds, up to maxDelta.
func parseSeconds(text string) (time.Duration, bool) {
	if text == "" {
		return 0, false
	}
	var seconds int64 // more than an int holds on 32 bits
	for i := 0; i < len(text); i++ {
		digit := text[i] - '0'
		if digit > 9 {
			return 0, false
		}
		seconds = min(int64(maxDelta/time.Second), seconds*10+int64(digit))
	}
	return time.Duration(seconds) * time.Second, true
}
