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
// objects of one type. It is made once; each answer from it costs no allocation
// and no header map. The promise of a PreparedSpec holds for all of them.
type Template struct {
	// set at construction
	pattern  string
	coding   string // the Content-Encoding that the client must accept; empty for none
	header   http.Header
	hasAge   bool
	constant bool // all of the header is the same each time
	hits     interface{ Inc() }

	compiled atomic.Pointer[compiledTemplate] // made by the first answer
}

// TemplateSpec is what a Template is made of. The header has what is the same
// each time: Content-Type at least. Content-Length, Etag, Last-Modified and Age
// are each answer's own.
type TemplateSpec struct {
	Pattern string // of the route, for the metrics
	Header  http.Header
	HasAge  bool               // answers say their Age
	Hits    interface{ Inc() } // counted too, if not nil
}

// NewTemplate makes a template. It rejects answers that the warm lane cannot
// give.
func NewTemplate(spec TemplateSpec) (*Template, error) { return newTemplate(spec, false, 0) }

// serverHeaders are the headers that net/http or the chain decides on.
var serverHeaders = []string{
	corrHeaderKey, "Connection", "Transfer-Encoding", "Trailer", "Upgrade", "Keep-Alive", allowOriginKey, exposeKey,
}

// perResponseHeaders are those that each answer has for itself. A Date is the
// current time, except in an answer that another server has made and that is
// only passed on.
var perResponseHeaders = []string{"Age", "Content-Length", "Date", "Etag", "Last-Modified"}

func newTemplate(spec TemplateSpec, kept bool, size int64) (*Template, error) {
	const op = "ingress.prepare"
	header := http.Header{}
	for name, values := range spec.Header {
		header[http.CanonicalHeaderKey(name)] = slices.Clone(values)
	}
	refused := serverHeaders
	if kept {
		header.Set("Content-Length", strconv.FormatInt(size, 10))
	} else {
		refused = slices.Concat(serverHeaders, perResponseHeaders)
	}
	for _, name := range refused {
		if header.Get(name) != "" {
			return nil, fault.New(op, fault.Internal, "a handler may not set the header %s", name)
		}
	}
	if header.Get("Content-Type") == "" {
		return nil, fault.New(op, fault.Internal, "there is no Content-Type, and the warm lane does not guess one")
	}
	coding := header.Get("Content-Encoding")
	if vary := header[varyKey]; len(vary) > 0 && (coding == "" || !slices.Equal(vary, []string{"Accept-Encoding"})) {
		return nil, fault.New(op, fault.Internal, "the answer varies by headers that the warm lane does not read")
	}
	return &Template{pattern: spec.Pattern, coding: coding, header: header, hasAge: spec.HasAge, constant: kept, hits: spec.Hits}, nil
}

// TemplateValues is what one answer has for itself, besides its tag and the
// parts of its body.
type TemplateValues struct {
	Modified time.Time     // zero if unknown
	Age      time.Duration // if the template has HasAge

	// The body may be a part of a file. It is read at its offset: the file's
	// own offset is neither used nor moved, so many answers may share it. The
	// kernel may send its pages a little later than Done is closed: a file that
	// is changed in place is not for the lane.
	File   *os.File
	Offset int64
	Length int64

	// Done is closed when the answer was written, or will not be. It releases a
	// handle or a buffer.
	Done io.Closer
}

// WarmMaxBody is the largest body that the lane sends. A larger one takes long
// enough that it should count among the running requests.
const WarmMaxBody = 1 << 20

// warmMaxParts is how many parts a body may have.
const warmMaxParts = 32

// Render makes an answer for one request. The tag is quoted, or empty if there
// is none; it is copied. The body is a list of parts, which are not copied and
// must not change until Done is closed, or the file in the values. (Tag and
// parts are arguments, and not values, so that neither has to be on the heap.)
//
// It closes Done and returns false for what is not for the lane: a body that is
// too large or in too many parts, and an invalid tag. So a Lookup can end with
// it.
func (t *Template) Render(values TemplateValues, etag []byte, body ...[]byte) (*PreparedResponse, bool) {
	size := values.Length
	if values.File == nil {
		size = 0
		for i := range body {
			size += int64(len(body[i]))
		}
	}
	p := responsePool.Get().(*PreparedResponse)
	p.template, p.size, p.closer = t, size, values.Done
	if size < 0 || size > WarmMaxBody || len(body) > warmMaxParts || len(etag) > 0 && !isEntityTag(etag) {
		p.release()
		return nil, false
	}
	p.etag, p.modified, p.age = append(p.etag[:0], etag...), values.Modified, max(values.Age, 0)
	p.parts, p.file, p.offset = append(p.parts[:0], body...), values.File, values.Offset
	return p, true
}

// isEntityTag reports whether text is an entity tag and nothing else.
func isEntityTag(text []byte) bool {
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

// compiledTemplate is a template as one server writes it: with the headers that
// the chain of that server adds to every answer, and split where the values go.
// Headers are sorted by their names, as net/http does it.
type compiledTemplate struct {
	// set at construction
	policy    *policy
	server    *Server
	counter   prometheus.Counter
	latency   prometheus.Observer
	corsLines []byte // of a public route; nil for what the request says
	rated     bool   // its requests count against limits.rate

	toOrigin    []byte // status line, and lines up to Access-Control-…
	toAge       []byte
	toLength    []byte
	toTag       []byte
	toModified  []byte
	toCorrID    []byte
	afterCorrID []byte // after the correlation ID
	hasDate     bool   // it has a Date already
}

// compiledFor is the template as a server writes it.
func (t *Template) compiledFor(s *Server) *compiledTemplate {
	if known := t.compiled.Load(); known != nil && known.server == s && known.policy == s.policy.Load() {
		return known
	}
	route := s.routes[t.pattern]
	if route == nil {
		route = s.unrouted
	}
	f := &compiledTemplate{server: s, policy: s.policy.Load(), counter: route.counter(http.MethodGet, http.StatusOK), latency: route.latency, rated: !route.route.Cheap}
	header := t.withServerHeaders(f.policy, route.public)
	if route.public {
		public := http.Header{}
		setPublicCORS(public)
		delete(public, corpCrossOrigin.key)
		f.corsLines = headerLines(public, func(string) bool { return true })
	}
	t.compile(f, header)
	t.compiled.Store(f)
	return f
}

// withServerHeaders is the header with those that the chain adds.
func (t *Template) withServerHeaders(p *policy, public bool) http.Header {
	header := t.header.Clone()
	for _, one := range p.defaultHeaders {
		if _, given := header[one.key]; !given {
			header[one.key] = one.values
		}
	}
	if public {
		if _, given := t.header[corpCrossOrigin.key]; !given {
			header[corpCrossOrigin.key] = corpCrossOrigin.values
		}
		return header // the same for every page
	}
	p.cors.addVary(header)
	return header
}

// compile writes the header in pieces.
func (t *Template) compile(f *compiledTemplate, header http.Header) {
	from := ""
	upTo := func(to string) []byte {
		lines := headerLines(header, func(key string) bool { return from <= key && (to == "" || key < to) })
		from = to
		return lines
	}
	f.toOrigin = append([]byte("HTTP/1.1 200 OK\r\n"), upTo(allowOriginKey)...)
	if !t.constant {
		f.toAge, f.toLength, f.toTag, f.toModified = upTo("Age"), upTo("Content-Length"), upTo("Etag"), upTo("Last-Modified")
	}
	f.toCorrID, f.afterCorrID = upTo(corrHeaderKey), upTo("")
	f.hasDate = len(header["Date"]) > 0
}
