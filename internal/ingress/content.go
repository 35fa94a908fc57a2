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

// Content is bytes that can be asked for in whole, in part, or only if they
// have changed.
type Content struct {
	Size         int64
	ETag         string    // quoted, with W/ in front if it is weak; empty if there is none
	Modified     time.Time // zero if nobody knows
	Type         string
	Encoding     string // of the bytes as they are stored; empty for none
	CacheControl string

	// Ready says that Write has nothing left to find out: the bytes are there,
	// and verified. Then the head goes first, and a file follows straight from
	// the kernel. Without it the first bytes are waited for, so that an error
	// can still be told.
	Ready bool

	// MultiRange allows more than one range in a request. Without it, asking
	// for several is 416.
	MultiRange bool

	// Write writes a part to w. An error before the first byte becomes a
	// problem document, unless the content is Ready; after it, the connection
	// is cut.
	Write func(w io.Writer, from, length int64) error
}

// FromReaderAt is a Content's Write for something that can be read anywhere.
func FromReaderAt(src io.ReaderAt) func(io.Writer, int64, int64) error {
	return func(w io.Writer, from, length int64) error {
		buffer := copies.Get().(*[pieceSize]byte)
		defer copies.Put(buffer)
		for length > 0 {
			n, err := src.ReadAt(buffer[:min(length, pieceSize)], from)
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

// mostRanges is how many ranges one request may have where several are allowed.
const mostRanges = 16

// ServeContent answers a GET or HEAD of a content as RFC 9110 says: conditions
// first, in their order, then the range. It returns the status that it answered
// with, for those who count. Headers that the handler has set stay.
func ServeContent(w http.ResponseWriter, r *http.Request, c Content) (status int, err error) {
	c.Header(w.Header())
	switch judge(r, c.ETag, c.Modified) {
	case notModified:
		for _, about := range []string{"Content-Type", "Content-Encoding", "Accept-Ranges"} {
			delete(w.Header(), about) // they describe bytes that are not sent
		}
		w.WriteHeader(http.StatusNotModified)
		return http.StatusNotModified, nil
	case failed:
		for _, about := range []string{"Content-Encoding", "Last-Modified", "Accept-Ranges"} {
			delete(w.Header(), about) // they describe the content; the tag may help to ask again
		}
		wrong := fault.New("http.content", fault.Conflict, "what is here is not what the request is conditional on")
		writeStatus(w, r, http.StatusPreconditionFailed, wrong)
		return http.StatusPreconditionFailed, nil
	}
	if r.Method != http.MethodGet { // a range means nothing to a HEAD
		return c.whole(w, r)
	}
	most := 1
	if c.MultiRange {
		most = mostRanges
	}
	what, spans := askedAll, []span(nil)
	if rangeHolds(r, c.ETag, c.Modified) {
		what, spans = parseRange(r.Header.Values("Range"), c.Size, most)
	}
	switch {
	case what == askedInvalid:
		return c.outside(w, r)
	case what == askedAll:
		return c.whole(w, r)
	case len(spans) == 1:
		return c.part(w, spans[0])
	default:
		return c.parts(w, spans)
	}
}

// inBytes is the unit in which we have ranges.
var inBytes = []string{"bytes"}

// Header sets what every answer with the content says. It is also what a
// Preparation of it starts from. The values share one piece of memory.
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
	header["Accept-Ranges"] = inBytes
}

func (c Content) whole(w http.ResponseWriter, r *http.Request) (int, error) {
	w.Header()["Content-Length"] = []string{strconv.FormatInt(c.Size, 10)}
	if r.Method == http.MethodHead || c.Size == 0 {
		w.WriteHeader(http.StatusOK)
		return http.StatusOK, nil
	}
	return c.send(w, http.StatusOK, span{0, c.Size})
}

func (c Content) part(w http.ResponseWriter, one span) (int, error) {
	w.Header()["Content-Length"] = []string{strconv.FormatInt(one.length, 10)}
	w.Header()["Content-Range"] = []string{one.contentRange(c.Size)}
	return c.send(w, http.StatusPartialContent, one)
}

// send writes one span, which is what the header promises.
func (c Content) send(w http.ResponseWriter, status int, one span) (int, error) {
	var out io.Writer = w
	if c.Ready {
		w.WriteHeader(status)
	} else {
		out = &lazy{ResponseWriter: w, status: status}
	}
	return status, fault.Wrap("http.content", c.Write(out, one.from, one.length))
}

// outside answers 416, with the size, so that the client can ask better.
func (c Content) outside(w http.ResponseWriter, r *http.Request) (int, error) {
	header := w.Header()
	for _, about := range []string{"Content-Encoding", "Etag", "Last-Modified", "Accept-Ranges"} {
		header.Del(about) // they describe the content, not the refusal
	}
	header.Set("Content-Range", "bytes */"+strconv.FormatInt(c.Size, 10))
	wrong := fault.New("http.content", fault.InvalidRange, "the range does not lie inside the %d bytes there are, or there are too many", c.Size)
	writeStatus(w, r, fault.InvalidRange.Status(), wrong)
	return fault.InvalidRange.Status(), nil
}

// parts answers with several spans, as multipart/byteranges.
func (c Content) parts(w http.ResponseWriter, spans []span) (int, error) {
	const op = "http.content"
	out := &lazy{ResponseWriter: w, status: http.StatusPartialContent}
	body := multipart.NewWriter(out)
	length, err := c.partsLength(spans, body.Boundary())
	if err != nil {
		return http.StatusPartialContent, fault.Wrap(op, err)
	}
	w.Header().Set("Content-Type", "multipart/byteranges; boundary="+body.Boundary())
	w.Header().Set("Content-Length", strconv.FormatInt(length, 10))
	for _, one := range spans {
		part, err := body.CreatePart(c.partHeader(one))
		if err == nil {
			err = c.Write(part, one.from, one.length)
		}
		if err != nil {
			return http.StatusPartialContent, fault.Wrap(op, err)
		}
	}
	return http.StatusPartialContent, fault.Wrap(op, body.Close())
}

func (c Content) partHeader(one span) textproto.MIMEHeader {
	return textproto.MIMEHeader{"Content-Type": {c.Type}, "Content-Range": {one.contentRange(c.Size)}}
}

// partsLength is how long the multipart body will be.
func (c Content) partsLength(spans []span, boundary string) (int64, error) {
	var frame counter
	body := multipart.NewWriter(&frame)
	if err := body.SetBoundary(boundary); err != nil {
		return 0, err
	}
	for _, one := range spans {
		if _, err := body.CreatePart(c.partHeader(one)); err != nil {
			return 0, err
		}
		frame += counter(one.length)
	}
	err := body.Close()
	return int64(frame), err
}

// counter counts bytes and forgets them.
type counter int64

// Write counts.
func (n *counter) Write(p []byte) (int, error) {
	*n += counter(len(p))
	return len(p), nil
}

// lazy begins the answer with the first byte, so that an error before it can
// still be told.
type lazy struct {
	http.ResponseWriter
	status int
	begun  bool
}

func (l *lazy) begin() {
	if !l.begun {
		l.begun = true
		l.WriteHeader(l.status)
	}
}

// Write begins the answer and writes.
func (l *lazy) Write(p []byte) (int, error) {
	l.begin()
	return l.ResponseWriter.Write(p)
}

// ReadFrom begins the answer once there is a byte of it, and lets the kernel
// copy the rest if it can.
func (l *lazy) ReadFrom(src io.Reader) (n int64, err error) {
	if !l.begun {
		first := copies.Get().(*[pieceSize]byte)
		defer copies.Put(first)
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
