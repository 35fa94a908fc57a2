package freshness

import (
	"testing"
	"time"
)

func TestDates(t *testing.T) {
	day := time.Date(2050, 8, 18, 2, 1, 18, 0, time.UTC)
	eighth := time.Date(2050, 8, 8, 2, 1, 18, 0, time.UTC)
	for text, want := range map[string]time.Time{
		// RFC 9110 §5.6.7: three forms.
		"Thu, 18 Aug 2050 02:01:18 GMT":    day,
		"Thursday, 18-Aug-50 02:01:18 GMT": day,
		"Thu Aug 18 02:01:18 2050":         day,
		"Thu Aug  8 02:01:18 2050":         eighth,
		" Thu, 18 Aug 2050 02:01:18 GMT\t": day,
		// RFC 9111 §4.2: case does not matter.
		"THU, 18 aug 2050 02:01:18 gmt": day,
		// The day of the week is not checked against the date.
		"Mon, 18 Aug 2050 02:01:18 GMT": day,
		// A leap second.
		"Sat, 31 Dec 2016 23:59:60 GMT": time.Date(2017, 1, 1, 0, 0, 0, 0, time.UTC),
		"Sat Dec 31 23:59:60 2016":      time.Date(2017, 1, 1, 0, 0, 0, 0, time.UTC),
		"Sun, 21 Nov 2286 04:46:39 GMT": time.Date(2286, 11, 21, 4, 46, 39, 0, time.UTC),
		"Mon, 01 Jan 0001 00:00:00 GMT": {},
	} {
		got, ok := ParseDate(text, noon)
		if !ok || !got.Equal(want) || got.Location() != time.UTC {
			t.Errorf("%q: %v, %v; want %v", text, got, ok, want)
		}
	}
}

func TestWhatIsNoDate(t *testing.T) {
	for _, text := range []string{
		"", "0", "-1", "now", "Thu", "Thu, ", "Thu ",
		"Thu, 18 Aug 2050 02:01:18 UTC",
		"Thu, 18 Aug 2050 02:01:18 AEST",
		"Thu, 18 Aug 2050 02:01:18 +0000",
		"Thu, 18 Aug 2050 02:01:18",
		"Thu, 18 Aug 50 02:01:18 GMT",
		"Thursday, 18-Aug-2050 02:01:18 GMT",
		"Thu, 18-Aug-2050 02:01:18 GMT",
		"Thu 18 Aug 2050 02:01:18 GMT",
		"Thu, 18  Aug  2050 02:01:18 GMT",
		"Thu, 18 Aug 2050 02.01.18 GMT",
		"Thu, 18 Aug 2050 2:01:18 GMT",
		"Thu, 8 Aug 2050 02:01:18 GMT",
		"Thu, 18 Aug 2050 02:01:18.5 GMT",
		"Thu, 18 Aug 2050 24:01:18 GMT",
		"Thu, 18 Aug 2050 02:01:61 GMT",
		"Thu, 18 Aug 2050 02:01:60.0 GMT",
		"Thu, 31 Feb 2050 02:01:18 GMT",
		"Xxx, 18 Aug 2050 02:01:18 GMT",
		"Xxx Aug  8 02:01:18 2050",
		"\u017fun, 18 Aug 2050 02:01:18 GMT",
		"18 Aug 2050 02:01:18 GMT",
		"2050-08-18T02:01:18Z",
		"Thu, 18 Aug 2050 02:01:18 GMT, Thu, 18 Aug 2050 02:01:18 GMT",
	} {
		if got, ok := ParseDate(text, noon); ok {
			t.Errorf("%q is taken for %v", text, got)
		}
	}
}

// RFC 9110 §5.6.7: a year of two digits that seems to be more than fifty years
// ahead is the latest one in the past that ends so.
func TestYearsOfTwoDigits(t *testing.T) {
	for _, c := range []struct {
		text string
		now  int
		year int
	}{
		{"Sunday, 06-Nov-94 08:49:37 GMT", 2026, 1994},
		{"Sunday, 06-Nov-76 08:49:37 GMT", 2026, 2076}, // nine days less than fifty years
		{"Sunday, 24-Nov-76 08:49:37 GMT", 2026, 1976}, // nine days more
		{"Sunday, 06-Nov-77 08:49:37 GMT", 2026, 1977},
		{"Sunday, 06-Nov-26 08:49:37 GMT", 2026, 2026},
		{"Sunday, 06-Nov-00 08:49:37 GMT", 2026, 2000},
		{"Sunday, 06-Nov-10 08:49:37 GMT", 2090, 2110}, // ahead, but not by fifty years
		{"Sunday, 06-Nov-68 08:49:37 GMT", 1999, 1968},
		{"Sunday, 06-Nov-69 08:49:37 GMT", 2040, 2069},
		{"Tuesday, 29-Feb-00 08:49:37 GMT", 2026, 2000},
	} {
		now := time.Date(c.now, 11, 15, 12, 0, 0, 0, time.UTC)
		got, ok := ParseDate(c.text, now)
		if !ok || got.Year() != c.year {
			t.Errorf("%q in %d: %v, %v; want %d", c.text, c.now, got, ok, c.year)
		}
	}
}

func TestDatesAreWrittenInGMT(t *testing.T) {
	zurich := time.FixedZone("CET", 3600)
	if got := FormatDate(time.Date(2026, 11, 15, 13, 0, 0, 0, zurich)); got != "Sun, 15 Nov 2026 12:00:00 GMT" {
		t.Error(got)
	}
}
