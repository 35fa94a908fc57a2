package freshness

import "time"

// Lifetime returns for how long after its making a response is fresh, in a
// shared cache (RFC 9111 §4.2.1): by s-maxage, else by max-age, else by Expires
// less Date. Only if it has none of these a time is guessed (§4.2.2).
func Lifetime(resp Response, o Policy) time.Duration {
	d := ResponseDirectives(resp.Header)
	switch {
	case d.SMaxAge.Given:
		return d.SMaxAge.Span
	case d.MaxAge.Given:
		return d.MaxAge.Span
	case len(resp.Header["Expires"]) > 0:
		return untilExpires(resp)
	case heuristic[resp.Status] || d.Public:
		return guess(resp, o)
	}
	return 0
}

// untilExpires is the time from Date to Expires (RFC 9111 §5.3). Of several
// lines the earliest counts, and one that is not a date, such as 0, is in the
// past.
func untilExpires(resp Response) time.Duration {
	made := madeAt(resp)
	span := forever
	for _, line := range resp.Header["Expires"] {
		expires, ok := ParseDate(line, resp.ResponseTime)
		if !ok {
			return 0
		}
		span = min(span, since(made, expires))
	}
	return span
}

// guess is the heuristic lifetime (RFC 9111 §4.2.2): a tenth of the time that
// the content had not changed when the response was made. Errors live for as
// long as the policy says.
func guess(resp Response, o Policy) time.Duration {
	if resp.Status >= 400 {
		return max(0, o.Negative)
	}
	modified, ok := modifiedAt(resp)
	if !ok {
		return 0
	}
	return max(0, min(o.Heuristic, since(modified, madeAt(resp))/10))
}

// Age returns how long ago, by the best estimate, the response was made or
// validated by the origin (RFC 9111 §4.2.3): the age that it came with, by its
// Age field or by its Date whichever is more, and the time that it has been
// here. Nothing makes it negative: neither a Date in the future nor a clock that
// was set back.
func Age(resp Response, now time.Time) time.Duration {
	asked := resp.RequestTime
	if asked.IsZero() {
		asked = resp.ResponseTime
	}
	apparent := since(madeAt(resp), resp.ResponseTime)
	corrected := plus(ageField(resp), since(asked, resp.ResponseTime))
	return plus(max(apparent, corrected), since(resp.ResponseTime, now))
}

// ageField reads the Age field (RFC 9111 §5.1). Of a list the first member
// counts, and if that is not a number the field is ignored.
func ageField(resp Response) time.Duration {
	for first := range each(resp.Header["Age"]) {
		age, _ := parseSeconds(first)
		return age
	}
	return 0
}

// madeAt is the Date of a response, or the time when it came if it has none that
// can be read (RFC 9110 §6.6.1).
func madeAt(resp Response) time.Time {
	if date, ok := dateField(resp, "Date"); ok {
		return date
	}
	return resp.ResponseTime
}

// modifiedAt is the Last-Modified of a response.
func modifiedAt(resp Response) (time.Time, bool) {
	return dateField(resp, "Last-Modified")
}

// dateField reads a field that holds one date.
func dateField(resp Response, name string) (time.Time, bool) {
	lines := resp.Header[name]
	if len(lines) == 0 {
		return time.Time{}, false
	}
	return ParseDate(lines[0], resp.ResponseTime)
}
