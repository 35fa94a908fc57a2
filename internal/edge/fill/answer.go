package fill

import (
	"io"
	"net/http"
	"strconv"
	"time"

	"micronode/internal/edge/fill/freshness"
	"micronode/internal/store"
)

// Answer is what an origin said, now or some time ago.
type Answer struct {
	Status int
	Header http.Header  // for the client; ETag is the address of the body, Age is how old it is
	Handle store.Handle // the body; nil if the status has none
	Age    time.Duration
	Hit    bool      // nobody had to be asked
	Stale  bool      // it served although its time is over
	Until  time.Time // it is fresh until then
}

// newAnswer makes an answer of an entry. The handle is the answer's.
func newAnswer(e *entry, handle store.Handle, age time.Duration, hit bool) *Answer {
	a := &Answer{Status: e.resp.Status, Header: e.header(age, hit), Handle: handle, Age: age, Hit: hit}
	if a.Status == http.StatusNoContent || a.Status == http.StatusResetContent {
		_ = handle.Close() // it is empty, or should be
		a.Handle = nil
	}
	return a
}

// Close lets go of the body.
func (a *Answer) Close() {
	if a.Handle != nil {
		_ = a.Handle.Close() // it was read, not written
	}
}

// Size is how many bytes the body has.
func (a *Answer) Size() int64 {
	if a.Handle == nil {
		return 0
	}
	return a.Handle.Size()
}

// Type is the media type of the body, as the origin said.
func (a *Answer) Type() string { return a.Header.Get("Content-Type") }

// Modified is when the object was changed last, as the origin said; zero if it
// did not.
func (a *Answer) Modified() time.Time {
	modified, _ := freshness.ParseDate(a.Header.Get("Last-Modified"), time.Now())
	return modified
}

// WriteRange writes a part of the body.
func (a *Answer) WriteRange(w io.Writer, from, length int64) error {
	if a.Handle == nil {
		return nil
	}
	_, err := a.Handle.WriteRange(w, from, length)
	return err
}

// WriteTo answers a request with the status and the whole body. The headers
// are the caller's to set.
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

// header is what a client gets to see of the header of an entry at some age.
// The entity tag is the address of the body: whatever the origin calls it, two
// bodies with one tag are the same bytes. What did not come just now says how
// old it is (RFC 9111, 4).
func (e *entry) header(age time.Duration, hit bool) http.Header {
	out := make(http.Header, len(e.resp.Header)+2)
	for name, values := range e.resp.Header {
		out[name] = values[:len(values):len(values)]
	}
	delete(out, "Etag")
	if e.resp.Status == http.StatusOK {
		out["Etag"] = []string{`"` + e.address.String() + `"`}
	}
	delete(out, "Age")
	if seconds := int64(age / time.Second); hit || seconds > 0 {
		out["Age"] = []string{strconv.FormatInt(seconds, 10)}
	}
	return out
}
