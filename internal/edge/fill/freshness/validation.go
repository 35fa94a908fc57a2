package freshness

import (
	"net/http"

	"micronode/fault"
)

// ErrValidator is what [Update] returns for a 304 that speaks for nothing we
// hold, or whose validator cannot be read. Its kind is fault.IntegrityFail.
var ErrValidator error = &fault.Error{
	Op:     "freshness.update",
	Kind:   fault.IntegrityFail,
	Detail: "the origin says that nothing changed, but its validator is not that of a stored response",
	Next:   "repeat the request; if it stays so, tell the origin's operator that its 304 carries a validator that its content does not",
}

// Conditions returns the fields that ask the origin whether a stored response
// still stands (RFC 9111 §4.3.1): If-None-Match and If-Modified-Since, each if
// there is a validator for it that can be read. An empty header means that only
// the whole can be asked for.
func Conditions(resp Response) http.Header {
	h := http.Header{}
	if etag, _, valid := etagOf(resp.Header); valid {
		h["If-None-Match"] = []string{etag}
	}
	if _, ok := modifiedAt(resp); ok {
		// The very text that the origin sent: some compare it as text.
		h["If-Modified-Since"] = []string{trim(resp.Header["Last-Modified"][0])}
	}
	return h
}

// Update returns the stored response as it is after a 304 (RFC 9111 §4.3.4):
// with the header of both (§3.2) and the times of the 304. It is ErrValidator
// if the 304 does not speak for this response.
func Update(stored Response, notModified Response) (Response, error) {
	if notModified.Status != http.StatusNotModified || len(Selected([]Response{stored}, notModified)) == 0 {
		return Response{}, ErrValidator
	}
	return merged(stored, notModified), nil
}

// Selected returns which of the stored responses that the request could have
// selected are meant by a 304 (RFC 9111 §4.3.4), as indices. A strong entity tag
// means all that have it. A weak one means the newest that has it, and so does
// Last-Modified. No validator at all means the only one there is.
func Selected(stored []Response, notModified Response) []int {
	etag, given, valid := etagOf(notModified.Header)
	modified, dated := modifiedAt(notModified)
	switch {
	case given && !valid:
		return nil
	case given && !isWeak(etag):
		return having(stored, func(r Response) bool {
			own, _, _ := etagOf(r.Header)
			return StrongMatch(own, etag)
		})
	case given:
		return newestHaving(stored, func(r Response) bool {
			own, _, _ := etagOf(r.Header)
			return WeakMatch(own, etag)
		})
	case dated:
		return newestHaving(stored, func(r Response) bool {
			own, ok := modifiedAt(r)
			return ok && own.Equal(modified)
		})
	case len(stored) == 1:
		return []int{0}
	}
	return nil
}

// having are the indices of the responses for which a test holds.
func having(stored []Response, test func(Response) bool) []int {
	var found []int
	for i, r := range stored {
		if test(r) {
			found = append(found, i)
		}
	}
	return found
}

// newestHaving is the index of the newest of them.
func newestHaving(stored []Response, test func(Response) bool) []int {
	found := having(stored, test)
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

// Newest returns the index of the response that is to be used if several fit:
// the one with the latest Date (RFC 9111 §4), or -1 if there is none.
func Newest(stored []Response) int {
	found := newestHaving(stored, func(Response) bool { return true })
	if len(found) == 0 {
		return -1
	}
	return found[0]
}

func newer(a, b Response) bool {
	made, other := madeAt(a), madeAt(b)
	return made.After(other) || made.Equal(other) && a.ResponseTime.After(b.ResponseTime)
}

// UpdateFromHead compares a stored response to GET with the answer to a HEAD
// for the same (RFC 9111 §4.3.5). If every validator and the length that the
// answer has are those of the stored one, updated has the header of both, and
// same is true. If not, same is false: the stored response does not stand any
// more. An answer other than 200 says nothing, and leaves all as it is.
func UpdateFromHead(stored, head Response) (updated Response, same bool) {
	switch {
	case head.Status != http.StatusOK:
		return stored, true
	case stored.Status != http.StatusOK:
		return stored, false
	}
	if modified, dated := modifiedAt(head); dated {
		if own, ok := modifiedAt(stored); !ok || !own.Equal(modified) {
			return stored, false
		}
	}
	for _, name := range []string{"Etag", "Content-Length"} {
		if value := head.Header.Get(name); value != "" && value != stored.Header.Get(name) {
			return stored, false
		}
	}
	return merged(stored, head), true
}

// aboutContent are fields that a 304 or an answer to HEAD cannot change, because
// they describe bytes that it does not bring (RFC 9111 §3.2).
var aboutContent = map[string]bool{
	"Content-Digest":   true,
	"Content-Encoding": true,
	"Content-Length":   true,
	"Content-Md5":      true,
	"Content-Range":    true,
}

// merged is the stored response with the header of a later one laid over it
// (RFC 9111 §3.2). Date and Age belong to the message and not to the content:
// those of the stored response go in any case, or a response validated now would
// still be as old as it was.
func merged(stored, later Response) Response {
	h := Kept(stored.Header)
	delete(h, "Age")
	delete(h, "Warning")
	for name, lines := range EndToEnd(later.Header) {
		if !aboutContent[name] {
			h[name] = lines
		}
	}
	if _, ok := dateField(later, "Date"); !ok {
		h["Date"] = []string{FormatDate(later.ResponseTime)}
	}
	return Response{
		Status:       stored.Status,
		Header:       Kept(h),
		RequestTime:  later.RequestTime,
		ResponseTime: later.ResponseTime,
	}
}
