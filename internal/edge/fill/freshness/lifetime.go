package freshness

import "time"

// Lifetime returns how long a response is fresh in a shared cache, counted from
// its Date (RFC 9111 §4.2.1): by s-maxage, else by max-age, else by Expires
// less Date, else by heuristics (§4.2.2). With an invalid Age field the age is
// unknown, so the lifetime is zero.
func Lifetime(resp Response, o Policy) time.Duration {
	d := ResponseDirectives(resp.Header)
	_, aged := ageField(resp)
	switch {
	case !aged:
		return 0
	case d.SMaxAge.Given:
		return d.SMaxAge.Span
	case d.MaxAge.Given:
		return d.MaxAge.Span
	case len(resp.Header["Expires"]) > 0:
		return untilExpires(resp)
	case heuristicStatus[resp.Status] || d.Public:
		return heuristicLifetime(resp, o)
	}
	return 0
}

// untilExpires is the time from Date to Expires (RFC 9111 §5.3). Of several
// lines the earliest counts, and one that is not a date, such as 0, is in the
// past.
func untilExpires(resp Response) time.Duration {
	made := dateOf(resp)
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

// heuristicLifetime is the heuristic lifetime (RFC 9111 §4.2.2): a tenth of the
// time from Last-Modified to Date. For errors it is what the policy says.
func heuristicLifetime(resp Response, o Policy) time.Duration {
	if resp.Status >= 400 {
		return max(0, o.Negative)
	}
	modified, ok := modifiedAt(resp)
	if !ok {
		return 0
	}
	return max(0, min(o.Heuristic, since(modified, dateOf(resp))/10))
}

// Age returns how long ago, by the best estimate, the response was generated or
// validated by the origin (RFC 9111 §4.2.3): its age on arrival, by its Age
// field or by its Date whichever is more, plus the time since. It is never
// negative: neither by a Date in the future nor by a clock that was set back.
func Age(resp Response, now time.Time) time.Duration {
	asked := resp.RequestTime
	if asked.IsZero() {
		asked = resp.ResponseTime
	}
	apparent := since(dateOf(resp), resp.ResponseTime)
	age, _ := ageField(resp)
	corrected := saturatingAdd(age, since(asked, resp.ResponseTime))
	return saturatingAdd(max(apparent, corrected), since(resp.ResponseTime, now))
}

// ageField parses the Age field (RFC 9111 §5.1): one number, or no field at
// all. Otherwise ok is false, and the age is the first number in the field, if
// it has one.
func ageField(resp Response) (age time.Duration, ok bool) {
	lines := resp.Header["Age"]
	if len(lines) == 0 {
		return 0, true
	}
	for first := range listMembers(lines) {
		age, _ = parseSeconds(first)
		break
	}
	_, ok = parseSeconds(trimOWS(lines[0]))
	return age, ok && len(lines) == 1
}

// dateOf is the Date of a response, or the time of its arrival if it has no
// valid one (RFC 9110 §6.6.1).
func dateOf(resp Response) time.Time {
	if date, ok := dateField(resp, "Date"); ok {
		return date
	}
	return resp.ResponseTime
}

// modifiedAt is the Last-Modified of a response.
func modifiedAt(resp Response) (time.Time, bool) {
	return dateField(resp, "Last-Modified")
}

// dateField parses a field that holds one date.
func dateField(resp Response, name string) (time.Time, bool) {
	lines := resp.Header[name]
	if len(lines) == 0 {
		return time.Time{}, false
	}
	return ParseDate(lines[0], resp.ResponseTime)
}
