package ingress

import (
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"micronode/fault"
)

// Template is what answers of one kind have in common: tiles of one pack,
// objects of one type. It is made once; an answer after it costs no allocation
// and no header map. What a Preparation promises, it promises of all of them.
type Template struct {
	// set at construction
	pattern string
	coding  string // the Content-Encoding that the client must accept; empty for none
	header  http.Header
	aged    bool
	kept    bool // all of the header is the same each time
	hits    interface{ Inc() }

	form atomic.Pointer[form] // made by the first who writes one
}

// TemplateSpec is what a Template is made of. The header has what is the same
// each time: Content-Type at least. Content-Length, Etag, Last-Modified and Age
// are each answer's own.
type TemplateSpec struct {
	Pattern string // of the route, for the metrics
	Header  http.Header
	Aged    bool               // answers say their Age
	Hits    interface{ Inc() } // counted too, if not nil
}

// NewTemplate makes a template. What it refuses are answers that the warm lane
// cannot give.
func NewTemplate(spec TemplateSpec) (*Template, error) { return newTemplate(spec, false, 0) }

// notPrepared are the headers that net/http or the chain decides on.
var notPrepared = []string{
	"Date", corrKey, "Connection", "Transfer-Encoding", "Trailer", "Upgrade", "Keep-Alive", allowOriginKey, exposeKey,
}

// notTemplate are those that are each answer's own.
var notTemplate = []string{"Age", "Content-Length", "Etag", "Last-Modified"}

func newTemplate(spec TemplateSpec, kept bool, size int64) (*Template, error) {
	const op = "ingress.prepare"
	header := http.Header{}
	for name, values := range spec.Header {
		header[http.CanonicalHeaderKey(name)] = slices.Clone(values)
	}
	refused := notPrepared
	if kept {
		header.Set("Content-Length", strconv.FormatInt(size, 10))
	} else {
		refused = slices.Concat(notPrepared, notTemplate)
	}
	for _, name := range refused {
		if header.Get(name) != "" {
			return nil, fault.New(op, fault.Internal, "the header %s is not for a handler to prepare", name)
		}
	}
	if header.Get("Content-Type") == "" {
		return nil, fault.New(op, fault.Internal, "there is no Content-Type, and the warm lane does not guess one")
	}
	coding := header.Get("Content-Encoding")
	if vary := header[varyKey]; len(vary) > 0 && (coding == "" || !slices.Equal(vary, []string{"Accept-Encoding"})) {
		return nil, fault.New(op, fault.Internal, "the answer varies by more than the warm lane looks at")
	}
	return &Template{pattern: spec.Pattern, coding: coding, header: header, aged: spec.Aged, kept: kept, hits: spec.Hits}, nil
}

// Particular is what one answer has for itself, besides its tag and the parts
// of its body.
type Particular struct {
	Modified time.Time     // zero if nobody knows
	Age      time.Duration // if the template is Aged

	// The body may be a part of a file. It is read at its place: the file's
	// offset is neither used nor moved, so many may share it. The kernel may
	// send its pages a little later than Done is closed: a file that is
	// changed in place is not for the lane.
	File   *os.File
	From   int64
	Length int64

	// Done is closed when the answer was written, or will not be. It gives
	// back a handle or a buffer.
	Done io.Closer
}

// Done makes a closer of a function.
type Done func()

// Close calls the function.
func (f Done) Close() error {
	f()
	return nil
}

// WarmMost is the largest body that the lane sends. More takes long enough that
// it should be counted among the requests that run.
const WarmMost = 1 << 20

// warmParts is in how many parts a body may lie.
const warmParts = 32

// Answer makes an answer for one request. The tag is quoted, or empty if there
// is none; it is copied. The body is a row of parts, which are not copied and
// must not change until Done is closed, or the file of the particulars. (Tag
// and parts are arguments, and not particulars, so that neither has to be on
// the heap.)
//
// It reports false, and has closed Done, for what is not for the lane: a body
// that is too large or in too many parts, and a tag that is none. So a Lookup
// can end with it.
func (t *Template) Answer(one Particular, etag []byte, body ...[]byte) (*Prepared, bool) {
	size := one.Length
	if one.File == nil {
		size = 0
		for i := range body {
			size += int64(len(body[i]))
		}
	}
	p := oneOffs.Get().(*Prepared)
	p.template, p.size, p.done = t, size, one.Done
	if size < 0 || size > WarmMost || len(body) > warmParts || len(etag) > 0 && !isTag(etag) {
		p.release()
		return nil, false
	}
	p.etag, p.modified, p.age = append(p.etag[:0], etag...), one.Modified, max(one.Age, 0)
	p.parts, p.file, p.from = append(p.parts[:0], body...), one.File, one.From
	return p, true
}

// isTag reports whether text is an entity tag and nothing else.
func isTag(text []byte) bool {
	if len(text) > 2 && text[0] == 'W' && text[1] == '/' {
		text = text[2:]
	}
	last := len(text) - 1
	if last < 1 || text[0] != '"' || text[last] != '"' {
		return false
	}
	for _, c := range text[1:last] {
		if c < 0x21 || c > 0x7e || c == '"' {
			return false
		}
	}
	return true
}

// form is a template as one server writes it: with what the chain of that
// server says in every answer, and cut where the particulars go. Headers are
// sorted by their names, as net/http does it.
type form struct {
	// set at construction
	server  *Server
	counter prometheus.Counter
	latency prometheus.Observer

	toOrigin   []byte // status line, and lines up to Access-Control-…
	toAge      []byte
	toLength   []byte
	toTag      []byte
	toModified []byte
	toCorrID   []byte
	rest       []byte // behind the correlation ID
}

// formOn is the template as a server writes it.
func (t *Template) formOn(s *Server) *form {
	if known := t.form.Load(); known != nil && known.server == s {
		return known
	}
	counts := s.unrouted
	if m := s.routes[t.pattern]; m != nil {
		counts = m.counts
	}
	f := &form{server: s, counter: counts.counter(http.MethodGet, http.StatusOK), latency: counts.latency}
	t.cut(f, t.completed(s))
	t.form.Store(f)
	return f
}

// completed is the header with what the chain adds to it.
func (t *Template) completed(s *Server) http.Header {
	header := t.header.Clone()
	for _, one := range s.manners {
		if _, given := header[one.key]; !given {
			header[one.key] = one.values
		}
	}
	s.cors.addVary(header)
	return header
}

// cut writes the header in pieces.
func (t *Template) cut(f *form, header http.Header) {
	from := ""
	upTo := func(to string) []byte {
		lines := appendLines(header, func(key string) bool { return from <= key && (to == "" || key < to) })
		from = to
		return lines
	}
	f.toOrigin = append([]byte("HTTP/1.1 200 OK\r\n"), upTo(allowOriginKey)...)
	if !t.kept {
		f.toAge, f.toLength, f.toTag, f.toModified = upTo("Age"), upTo("Content-Length"), upTo("Etag"), upTo("Last-Modified")
	}
	f.toCorrID, f.rest = upTo(corrKey), upTo("")
}

// appendHead writes the head of an answer up to the correlation ID.
func (p *Prepared) appendHead(out []byte, f *form, shared []byte) []byte {
	out = append(out, f.toOrigin...)
	out = append(out, shared...)
	if !p.kept {
		out = p.appendParticulars(out, f)
	}
	return append(out, f.toCorrID...)
}

func (p *Prepared) appendParticulars(out []byte, f *form) []byte {
	out = append(out, f.toAge...)
	if p.template.aged {
		out = append(out, "Age: "...)
		out = append(strconv.AppendInt(out, int64(p.age/time.Second), 10), "\r\n"...)
	}
	out = append(out, f.toLength...)
	out = append(out, "Content-Length: "...)
	out = append(strconv.AppendInt(out, p.size, 10), "\r\n"...)
	out = append(out, f.toTag...)
	if len(p.etag) > 0 {
		out = append(out, "Etag: "...)
		out = append(append(out, p.etag...), "\r\n"...)
	}
	out = append(out, f.toModified...)
	if !p.modified.IsZero() {
		out = p.modified.UTC().AppendFormat(append(out, "Last-Modified: "...), http.TimeFormat+"\r\n")
	}
	return out
}
