package freshness

import (
	"net/http"
	"slices"
	"strings"
	"time"
)

// The three forms of a date (RFC 9110 §5.6.7), without the day of the week and
// the zone. The first is the one to write; the other two must be accepted for
// ever.
const (
	fixdate = "02 Jan 2006 15:04:05"
	rfc850  = "02-Jan-06 15:04:05"
	asctime = "Jan _2 15:04:05 2006"
)

// The names of days, in lower case for comparison.
var (
	shortDays = []string{"mon", "tue", "wed", "thu", "fri", "sat", "sun"}
	longDays  = []string{"monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"}
)

// FormatDate writes a date in the form that HTTP prefers (RFC 9110 §5.6.7).
func FormatDate(t time.Time) string {
	return t.UTC().Format(http.TimeFormat)
}

// ParseDate parses a date in any of the three forms of RFC 9110 §5.6.7. Case
// does not matter (RFC 9111 §4.2). A zone other than GMT makes the date
// invalid. The day of the week must be one, but need not be the right one. A
// year of two digits is the last one that ends so and is at most fifty years
// after now.
func ParseDate(text string, now time.Time) (time.Time, bool) {
	day, rest, _ := strings.Cut(trimOWS(text), " ")
	day, comma := strings.CutSuffix(asciiLower(day), ",")
	rest, zone := cutGMT(rest)
	switch {
	case comma && zone && slices.Contains(shortDays, day):
		return parseExactly(fixdate, rest)
	case comma && zone && slices.Contains(longDays, day):
		date, ok := parseExactly(rfc850, rest)
		return nearestCentury(date, now), ok
	case !comma && !zone && slices.Contains(shortDays, day):
		return parseExactly(asctime, rest)
	}
	return time.Time{}, false
}

// cutGMT removes the zone from the end of a date.
func cutGMT(text string) (string, bool) {
	const zone = " gmt"
	if at := len(text) - len(zone); at >= 0 && asciiLower(text[at:]) == zone {
		return text[:at], true
	}
	return text, false
}

// parseExactly parses a date of one layout. time.Parse is lenient (an hour of
// one digit, fractions of seconds), so the text has to equal the date when it
// is formatted again. The sixtieth second is the leap second of the grammar,
// which Go's time does not have: it is the second after.
func parseExactly(layout, text string) (time.Time, bool) {
	leap := time.Duration(0)
	if at := strings.LastIndexByte(text, ':'); at >= 0 && strings.HasPrefix(text[at+1:], "60") {
		text = text[:at+1] + "59" + text[at+3:]
		leap = time.Second
	}
	date, err := time.Parse(layout, text)
	var buffer [32]byte
	if err != nil || !strings.EqualFold(string(date.AppendFormat(buffer[:0], layout)), text) {
		return time.Time{}, false
	}
	return date.UTC().Add(leap), true
}

// nearestCentury moves a date with a two-digit year to the last century in
// which it is at most fifty years after now. A 29th of February that the year
// does not have becomes the 1st of March.
func nearestCentury(date, now time.Time) time.Time {
	now = now.UTC()
	limit := now.AddDate(50, 0, 0)
	year := limit.Year() - limit.Year()%100 + date.Year()%100
	date = date.AddDate(year-date.Year(), 0, 0)
	if date.After(limit) {
		date = date.AddDate(-100, 0, 0)
	}
	return date
}
