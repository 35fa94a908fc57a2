package freshness

import (
	"net/http"

	"micronode/fault"
)

// ErrValidator is what [Update] returns for a 304 that is for no stored
// response, or whose validator is invalid. Its kind is fault.IntegrityFail.
var ErrValidator error = &fault.Error{
	Op:     "freshness.update",
	Kind:   fault.IntegrityFail,
	Detail: "the origin says that nothing changed, but its validator is not that of a stored response",
	Next:   "repeat the request; if it stays so, tell the origin's operator that its 304 carries a validator that its content does not",
}

// Conditions returns the fields that make a request for a stored response
// conditional (RFC 9111 §4.3.1): If-None-Match and If-Modified-Since, each if
// there is a valid validator for it. With an empty header, only the whole
// response can be requested.
func Conditions(resp Response) http.Header {
	h := http.Header{}
	if etag, _, valid := etagOf(resp.Header); valid {
		h["If-None-Match"] = []string{etag}
	}
	if _, ok := modifiedAt(resp); ok {
		// The exact text that the origin sent: some origins compare it as text.
		h["If-Modified-Since"] = []string{trimOWS(resp.Header["Last-Modified"][0])}
	}
	return h
}

// Update returns the stored response as it is after a 304 (RFC 9111 §4.3.4):
// with the header of both (§3.2) and the times of the 304. It fails with
// ErrValidator if the 304 is not for this response.
func Update(stored Response, notModified Response) (Response, error) {
	if notModified.Status != http.StatusNotModified || len(Selected([]Response{stored}, notModified)) == 0 {
		return Response{}, ErrValidator
	}
	return mergeHeaders(stored, notModified), nil
}

// Selected returns the indices of the stored responses that a 304 is for, among
// those that the request could have selected (RFC 9111 §4.3.4). A strong entity
// tag selects all that have it. A weak one selects the newest that has it, and
// so does Last-Modified. Without a validator it selects the only one there is.
func Selected(stored []Response, notModified Response) []int {
	etag, given, valid := etagOf(notModified.Header)
	modified, dated := modifiedAt(notModified)
	switch {
	case given && !valid:
		return nil
	case given && !isWeak(etag):
		return indicesOf(stored, func(r Response) bool {
			own, _, _ := etagOf(r.Header)
			return StrongMatch(own, etag)
		})
	case given:
		return newestIndexOf(stored, func(r Response) bool {
			own, _, _ := etagOf(r.Header)
			return WeakMatch(own, etag)
		})
	case dated:
		return newestIndexOf(stored, func(r Response) bool {
			own, ok := modifiedAt(r)
			return ok && own.Equal(modified)
		})
	case len(stored) == 1:
		return []int{0}
	}
	return nil
}

// indicesOf are the indices of the responses for which a test holds.
func indicesOf(stored []Response, test func(Response) bool) []int {
	var found []int
	for i, r := range stored {
		if test(r) {
			found = append(found, i)
		}
	}
	return found
}

// newestIndexOf is the index of the newest of them.
func newestIndexOf(stored []Response, test func(Response) bool) []int {
	found := indicesOf(stored, test)
	if len(found) == 0 {
		return nil
	}
	newest := found[0]
	for _, i := range found {
		if newer(stored[i], stored[newest]) {
			newest = i
		}
	}
	return []int{newest}
}

func newer(a, b Response) bool {
	made, other := dateOf(a), dateOf(b)
	return made.After(other) || made.Equal(other) && a.ResponseTime.After(b.ResponseTime)
}

// contentFields are fields that a 304 cannot change, because they describe
// bytes that it does not contain (RFC 9111 §3.2).
var contentFields = map[string]bool{
	"Content-Digest":   true,
	"Content-Encoding": true,
	"Content-Length":   true,
	"Content-Md5":      true,
	"Content-Range":    true,
}

// mergeHeaders is the stored response with the header of a later one merged in
// (RFC 9111 §3.2). Date and Age belong to the message and not to the content:
// those of the stored response are dropped in any case, or a response validated
// now would keep its old age.
func mergeHeaders(stored, later Response) Response {
	h := StoredHeader(stored.Header)
	delete(h, "Age")
	delete(h, "Warning")
	for name, lines := range EndToEnd(later.Header) {
		if !contentFields[name] {
			h[name] = lines
		}
	}
	if _, ok := dateField(later, "Date"); !ok {
		h["Date"] = []string{FormatDate(later.ResponseTime)}
	}
	return Response{
		Status:       stored.Status,
		Header:       StoredHeader(h),
		RequestTime:  later.RequestTime,
		ResponseTime: later.ResponseTime,
	}
}
