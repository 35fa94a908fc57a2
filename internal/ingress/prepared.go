package ingress

import (
	"io"
	"net/http"
	"os"
	"sync"
	"time"
)

// PreparedSpec is a whole answer that is known before the request: 200, with
// these headers and this body, to a GET of one exact target.
//
// By preparing it a service promises that the handler of the route would answer
// the same, whatever Accept, Accept-Language, User-Agent and Referer say, and
// to every client that may read here at all. The chain's default headers are
// added to it too; a header without values in the map removes such a default.
type PreparedSpec struct {
	Pattern string // of the route, for the metrics
	Header  http.Header
	Body    []byte             // not changed afterwards
	Hits    interface{ Inc() } // counted too, if not nil
}

// PreparedResponse is an answer in the form in which it is written to a
// connection. It is either kept for many requests, as Prepare makes it, or made
// for one request, as a Template does.
type PreparedResponse struct {
	template *Template
	size     int64 // of the body
	reusable bool  // for many requests; all fields are set at construction

	parts  [][]byte // of the body, unless it is in a file
	file   *os.File
	offset int64 // in the file

	// if it is made for one request
	etag     []byte
	modified time.Time
	age      time.Duration
	closer   io.Closer
}

// Prepare makes an answer that is kept. It rejects answers that the warm lane
// cannot give.
func Prepare(p PreparedSpec) (*PreparedResponse, error) {
	t, err := newTemplate(TemplateSpec{Pattern: p.Pattern, Header: p.Header, Hits: p.Hits}, true, int64(len(p.Body)))
	if err != nil {
		return nil, err
	}
	return &PreparedResponse{template: t, size: int64(len(p.Body)), reusable: true, parts: [][]byte{p.Body}}, nil
}

// Size is about how many bytes it keeps: the body, and the header twice, as
// given and as written.
func (p *PreparedResponse) Size() int {
	size := int(p.size)
	for key, values := range p.template.header {
		for _, value := range values {
			size += 2 * (len(key) + len(value) + len(": \r\n"))
		}
	}
	return size
}

// responsePool holds used answers of one request.
var responsePool = sync.Pool{New: func() any { return new(PreparedResponse) }}

// release is called when an answer was written, or was not used after all.
func (p *PreparedResponse) release() {
	if p.reusable {
		return
	}
	if p.closer != nil {
		_ = p.closer.Close() // everything has been read
	}
	clear(p.parts)
	*p = PreparedResponse{parts: p.parts[:0], etag: p.etag[:0]}
	responsePool.Put(p)
}

// WarmSource finds or makes answers for the warm lane. Lookup is called for a
// plain GET of a target, on the connection's own goroutine, concurrently.
//
// It may do a short read of bounded length, from memory or from a file that is
// likely in the page cache, and it may allocate, to make the answer on the
// spot: see Template. It must not wait for the network, for another request or
// for a queue: it returns false for what takes longer or is not certain, and
// the handler answers. It must not keep the target, which is the connection's.
//
// An answer that a Template has made belongs to the lane once it is returned.
type WarmSource interface {
	Lookup(target []byte) (*PreparedResponse, bool)
}

// WarmRoute is a WarmSource for the targets with one prefix.
type WarmRoute struct {
	Prefix string
	Source WarmSource
}

// WarmRoutes asks the first route whose prefix fits, so that each service keeps
// its own answers.
type WarmRoutes []WarmRoute

// Lookup finds a prepared answer.
func (w WarmRoutes) Lookup(target []byte) (*PreparedResponse, bool) {
	for i := range w {
		if len(target) >= len(w[i].Prefix) && string(target[:len(w[i].Prefix)]) == w[i].Prefix {
			return w[i].Source.Lookup(target)
		}
	}
	return nil, false
}
