package fill

import (
	"io"
	"net/http"
	"strconv"
	"time"

	"micronode/internal/edge/fill/freshness"
	"micronode/internal/store"
)

// Answer is an origin's response, fetched now or taken from the cache.
type Answer struct {
	Status     int
	Header     http.Header  // for the client; ETag is the origin's, or the address of the body; Age is set for hits
	Handle     store.Handle // the body; nil if the status has none
	Age        time.Duration
	Hit        bool      // the origin was not asked
	Stale      bool      // it is past its lifetime
	FreshUntil time.Time // end of its lifetime

	follower *follower // of a body that is still arriving; nil if it is complete
}

// newAnswer makes an answer of an entry. The answer owns the handle.
func newAnswer(e *entry, handle store.Handle, age time.Duration, hit bool) *Answer {
	a := &Answer{Status: e.resp.Status, Header: e.header(age, hit), Handle: handle, Age: age, Hit: hit}
	if a.Status == http.StatusNoContent || a.Status == http.StatusResetContent {
		_ = handle.Close() // it is empty, or should be
		a.Handle = nil
	}
	return a
}

// Close releases the body.
func (a *Answer) Close() {
	if a.Handle != nil {
		_ = a.Handle.Close() // nothing was written
	}
	if a.follower != nil {
		a.follower.close()
	}
}

// Streaming reports whether the body is still arriving.
func (a *Answer) Streaming() bool { return a.follower != nil }

// Size is how many bytes the body has; store.Unknown if that is not known yet.
func (a *Answer) Size() int64 {
	if a.follower != nil {
		return a.follower.body.size
	}
	if a.Handle == nil {
		return 0
	}
	return a.Handle.Size()
}

// Modified is when the object was last modified, as the origin declares it;
// zero if it does not.
func (a *Answer) Modified() time.Time {
	modified, _ := freshness.ParseDate(a.Header.Get("Last-Modified"), time.Now())
	return modified
}

// Date is the Date of the answer: when the origin generated or revalidated it.
func (a *Answer) Date() time.Time {
	made, _ := freshness.ParseDate(a.Header.Get("Date"), time.Now())
	return made
}

// WriteRange writes a part of the body; all of it if its length is not known.
func (a *Answer) WriteRange(w io.Writer, from, length int64) error {
	return a.Stream(w, from, length, func() {})
}

// Stream is WriteRange with a function that is called before each wait for more
// bytes.
func (a *Answer) Stream(w io.Writer, from, length int64, beforeWait func()) error {
	if a.follower != nil {
		return a.follower.write(w, from, length, beforeWait)
	}
	if a.Handle == nil {
		return nil
	}
	_, err := a.Handle.WriteRange(w, from, length)
	return err
}

// WriteTo answers a request with the status and the whole body. The caller sets
// the headers.
func (a *Answer) WriteTo(w http.ResponseWriter, method string) error {
	if a.Handle != nil {
		w.Header().Set("Content-Length", strconv.FormatInt(a.Size(), 10))
	}
	w.WriteHeader(a.Status)
	if method == http.MethodHead {
		return nil
	}
	return a.WriteRange(w, 0, a.Size())
}

// header is the header that a client gets for an entry at some age. The entity
// tag is the origin's. Where the origin sent none, it is the address of the
// body, which is a strong one, and not known while the body is arriving. An
// answer that was not fetched just now has an Age (RFC 9111, 4).
func (e *entry) header(age time.Duration, hit bool) http.Header {
	out := make(http.Header, len(e.resp.Header)+2)
	for name, values := range e.resp.Header {
		out[name] = values[:len(values):len(values)]
	}
	if e.resp.Status == http.StatusOK && len(out["Etag"]) == 0 && !e.address.IsZero() {
		out["Etag"] = []string{`"` + e.address.String() + `"`}
	}
	delete(out, "Age")
	if seconds := int64(age / time.Second); hit || seconds > 0 {
		out["Age"] = []string{strconv.FormatInt(seconds, 10)}
	}
	return out
}
