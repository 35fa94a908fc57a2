package ingress

import (
	"io"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"strconv"
	"time"

	"micronode/fault"
)

// Content is bytes that can be requested in whole, in part, or only if they
// have changed.
type Content struct {
	Size         int64     // below zero if unknown: then it has no ranges
	ETag         string    // quoted, with W/ in front if it is weak; empty if there is none
	Modified     time.Time // zero if unknown
	ResponseDate time.Time // the Date of an answer of another server; zero for our own
	Type         string
	Encoding     string // of the bytes as they are stored; empty for none
	CacheControl string

	// Ready says that Write cannot fail before its first byte: the bytes are
	// there, and verified. Then the header goes first, and a file follows
	// straight from the kernel. Without it the first bytes are waited for, so
	// that an error can still be answered.
	Ready bool

	// MultiRange allows more than one range in an answer. Without it, a request
	// for several gets the whole.
	MultiRange bool

	// Write writes a part to w. An error before the first byte becomes a
	// problem document, unless the content is Ready; after it, the connection
	// is cut.
	Write func(w io.Writer, from, length int64) error
}

// Immutable is the CacheControl of a content that never changes.
const Immutable = "public, max-age=31536000, immutable"

// FromReaderAt is a Content's Write for something that can be read anywhere.
func FromReaderAt(src io.ReaderAt) func(io.Writer, int64, int64) error {
	return func(w io.Writer, from, length int64) error {
		buffer := copyBuffers.Get().(*[copyChunk]byte)
		defer copyBuffers.Put(buffer)
		for length > 0 {
			n, err := src.ReadAt(buffer[:min(length, copyChunk)], from)
			if n == 0 && err == io.EOF {
				return io.ErrUnexpectedEOF
			}
			if n == 0 {
				return err
			}
			if _, err := w.Write(buffer[:n]); err != nil {
				return err
			}
			from, length = from+int64(n), length-int64(n)
		}
		return nil
	}
}

// maxRanges is how many ranges one request may have where several are allowed.
const maxRanges = 16

// ServeContent answers a GET or HEAD of a content as RFC 9110 says: conditions
// first, in their order, then the range. It returns the status of the answer,
// for counters. Headers that the handler has set stay.
func ServeContent(w http.ResponseWriter, r *http.Request, c Content) (status int, err error) {
	c.Header(w.Header())
	date := c.Modified
	if date.IsZero() {
		date = c.ResponseDate // when the answer was made (RFC 9111, section 4.3.2)
	}
	switch evaluateConditions(r, c.ETag, date) {
	case conditionNotModified:
		for _, about := range []string{"Content-Type", "Content-Encoding", "Accept-Ranges"} {
			delete(w.Header(), about) // they describe bytes that are not sent
		}
		w.WriteHeader(http.StatusNotModified)
		return http.StatusNotModified, nil
	case preconditionFailed:
		for _, about := range []string{"Content-Encoding", "Last-Modified", "Accept-Ranges", "Date", "Age", "Expires"} {
			delete(w.Header(), about) // they describe the content; the tag may help to ask again
		}
		wrong := fault.New("http.content", fault.Conflict, "the condition of the request does not hold")
		writeProblemStatus(w, r, http.StatusPreconditionFailed, wrong)
		return http.StatusPreconditionFailed, nil
	}
	ranges := r.Header["Range"]
	if len(ranges) == 0 || r.Method != http.MethodGet || c.Size < 0 || !rangeApplies(r, c.ETag, c.strongDate()) { // a range means nothing to a HEAD
		return c.serveWhole(w, r)
	}
	most := 1
	if c.MultiRange {
		most = maxRanges
	}
	what, spans := parseRange(ranges, c.Size, most)
	switch {
	case what == rangeInvalid:
		return c.serveInvalidRange(w, r)
	case what == rangeNone:
		return c.serveWhole(w, r)
	case len(spans) > 1:
		return c.serveRanges(w, spans)
	}
	w.Header()["Content-Length"] = []string{strconv.FormatInt(spans[0].length, 10)}
	w.Header()["Content-Range"] = []string{spans[0].contentRange(c.Size)}
	return c.sendSpan(w, http.StatusPartialContent, spans[0])
}

// strongDate is the date that If-Range may use. In the second in which an
// answer was made, the content could have changed again (RFC 9110, section
// 8.8.2.2).
func (c Content) strongDate() time.Time {
	if !c.ResponseDate.IsZero() && c.ResponseDate.Sub(c.Modified) < time.Second {
		return time.Time{}
	}
	return c.Modified
}

// acceptRanges is the value of Accept-Ranges.
var acceptRanges = []string{"bytes"}

// Header sets the headers that every answer with the content has. A
// PreparedSpec of it starts from them too. The values share one allocation.
func (c Content) Header(header http.Header) {
	values := make([]string, 0, 5)
	set := func(key, value string) {
		if value != "" {
			values = append(values, value)
			header[key] = values[len(values)-1 : len(values) : len(values)]
		}
	}
	set("Content-Type", c.Type)
	set("Content-Encoding", c.Encoding)
	set("Cache-Control", c.CacheControl)
	set("Etag", c.ETag)
	if !c.Modified.IsZero() {
		set("Last-Modified", c.Modified.UTC().Format(http.TimeFormat))
	}
	header["Accept-Ranges"] = acceptRanges
}

// serveWhole answers with all of the content.
func (c Content) serveWhole(w http.ResponseWriter, r *http.Request) (int, error) {
	if c.Size >= 0 {
		w.Header()["Content-Length"] = []string{strconv.FormatInt(c.Size, 10)}
	} else {
		delete(w.Header(), "Accept-Ranges")
	}
	if r.Method == http.MethodHead || c.Size == 0 {
		w.WriteHeader(http.StatusOK)
		return http.StatusOK, nil
	}
	return c.sendSpan(w, http.StatusOK, span{0, c.Size})
}

// sendSpan writes one span, which is what the header promises.
func (c Content) sendSpan(w http.ResponseWriter, status int, one span) (int, error) {
	var out io.Writer = w
	if c.Ready {
		w.WriteHeader(status)
	} else {
		out = &lazyWriter{ResponseWriter: w, status: status}
	}
	return status, fault.Wrap("http.content", c.Write(out, one.from, one.length))
}

// serveInvalidRange answers 416, with the size, so that the client can correct
// the range.
func (c Content) serveInvalidRange(w http.ResponseWriter, r *http.Request) (int, error) {
	header := w.Header()
	for _, about := range []string{"Content-Encoding", "Etag", "Last-Modified", "Accept-Ranges", "Date", "Age", "Expires"} {
		header.Del(about) // they describe the content, not the refusal
	}
	header.Set("Content-Range", "bytes */"+strconv.FormatInt(c.Size, 10))
	wrong := fault.New("http.content", fault.InvalidRange, "the range lies outside of the %d bytes", c.Size)
	writeProblemStatus(w, r, fault.InvalidRange.Status(), wrong)
	return fault.InvalidRange.Status(), nil
}

// serveRanges answers with several spans, as multipart/byteranges.
func (c Content) serveRanges(w http.ResponseWriter, spans []span) (int, error) {
	const op = "http.content"
	out := &lazyWriter{ResponseWriter: w, status: http.StatusPartialContent}
	body := multipart.NewWriter(out)
	length, err := c.rangesLength(spans, body.Boundary())
	if err != nil {
		return http.StatusPartialContent, fault.Wrap(op, err)
	}
	w.Header().Set("Content-Type", "multipart/byteranges; boundary="+body.Boundary())
	w.Header().Set("Content-Length", strconv.FormatInt(length, 10))
	for _, one := range spans {
		part, err := body.CreatePart(c.rangeHeader(one))
		if err == nil {
			err = c.Write(part, one.from, one.length)
		}
		if err != nil {
			return http.StatusPartialContent, fault.Wrap(op, err)
		}
	}
	return http.StatusPartialContent, fault.Wrap(op, body.Close())
}

func (c Content) rangeHeader(one span) textproto.MIMEHeader {
	return textproto.MIMEHeader{"Content-Type": {c.Type}, "Content-Range": {one.contentRange(c.Size)}}
}

// rangesLength is how long the multipart body will be.
func (c Content) rangesLength(spans []span, boundary string) (int64, error) {
	var frame byteCounter
	body := multipart.NewWriter(&frame)
	if err := body.SetBoundary(boundary); err != nil {
		return 0, err
	}
	for _, one := range spans {
		if _, err := body.CreatePart(c.rangeHeader(one)); err != nil {
			return 0, err
		}
		frame += byteCounter(one.length)
	}
	err := body.Close()
	return int64(frame), err
}

// byteCounter counts bytes and discards them.
type byteCounter int64

// Write counts.
func (b *byteCounter) Write(p []byte) (int, error) {
	*b += byteCounter(len(p))
	return len(p), nil
}

// lazyWriter begins the answer with the first byte, so that an error before it
// can still be answered.
type lazyWriter struct {
	http.ResponseWriter
	status  int
	started bool
}

// Write begins the answer and writes.
func (l *lazyWriter) Write(p []byte) (int, error) {
	if !l.started {
		l.started = true
		l.WriteHeader(l.status)
	}
	return l.ResponseWriter.Write(p)
}

// ReadFrom begins the answer once there is a byte of it, and lets the kernel
// copy the rest if it can.
func (l *lazyWriter) ReadFrom(src io.Reader) (n int64, err error) {
	if !l.started {
		first := copyBuffers.Get().(*[copyChunk]byte)
		defer copyBuffers.Put(first)
		read, err := io.ReadFull(src, first[:512])
		if read > 0 {
			written, werr := l.Write(first[:read])
			if n += int64(written); werr != nil {
				return n, werr
			}
		}
		switch err {
		case nil:
		case io.EOF, io.ErrUnexpectedEOF:
			return n, nil
		default:
			return n, err
		}
	}
	rest, err := io.Copy(l.ResponseWriter, src)
	return n + rest, err
}
