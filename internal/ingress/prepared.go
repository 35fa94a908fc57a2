package ingress

import (
	"io"
	"net/http"
	"os"
	"sync"
	"time"
)

// Preparation is a whole answer that is known before anybody asks: 200, with
// these headers and this body, to a GET of one exact target.
//
// Who prepares it promises that the handler of the route would say the same,
// whatever Accept, Accept-Language, User-Agent and Referer say, and to anybody
// who may read here at all. What the chain adds to every answer is added to
// this one too; a header without values in the map takes such an addition back.
type Preparation struct {
	Pattern string // of the route, for the metrics
	Header  http.Header
	Body    []byte             // not changed afterwards
	Hits    interface{ Inc() } // counted too, if not nil
}

// Prepared is an answer in the form in which it is written to a connection. It
// is either kept and given to many, as Prepare makes it, or made for one
// request, as a Template does.
type Prepared struct {
	template *Template
	size     int64 // of the body
	kept     bool  // for many; all fields are set at construction

	parts [][]byte // of the body, unless it is in a file
	file  *os.File
	from  int64 // in the file

	// of one that is made for one request
	etag     []byte
	modified time.Time
	age      time.Duration
	done     io.Closer
}

// Prepare makes an answer that is kept. What it refuses are answers that the
// warm lane cannot give.
func Prepare(p Preparation) (*Prepared, error) {
	t, err := newTemplate(TemplateSpec{Pattern: p.Pattern, Header: p.Header, Hits: p.Hits}, true, int64(len(p.Body)))
	if err != nil {
		return nil, err
	}
	return &Prepared{template: t, size: int64(len(p.Body)), kept: true, parts: [][]byte{p.Body}}, nil
}

// Size is about how many bytes it keeps: the body, and the header twice, as
// given and as written.
func (p *Prepared) Size() int {
	size := int(p.size)
	for key, values := range p.template.header {
		for _, value := range values {
			size += 2 * (len(key) + len(value) + len(": \r\n"))
		}
	}
	return size
}

// oneOffs are answers that were made for one request and are over.
var oneOffs = sync.Pool{New: func() any { return new(Prepared) }}

// release is called when an answer was written, or was not wanted after all.
func (p *Prepared) release() {
	if p.kept {
		return
	}
	if p.done != nil {
		_ = p.done.Close() // what was read has been read
	}
	clear(p.parts)
	*p = Prepared{parts: p.parts[:0], etag: p.etag[:0]}
	oneOffs.Put(p)
}

// Warm finds or makes answers for the warm lane. Lookup is called for a plain
// GET of a target, on the connection's own goroutine, by many at once.
//
// It may do a short read whose length is bounded, of memory or of a file that
// is likely in the page cache, and it may allocate, to make the answer on the
// spot: see Template. It must not wait for the network, for another request or
// for a queue: what takes longer, or is not certain, is for the handler, and
// the answer here is false. It must not keep the target, which is the
// connection's.
//
// An answer that a Template has made belongs to the lane once it is returned.
type Warm interface {
	Lookup(target []byte) (*Prepared, bool)
}

// Shelf is a Warm that is asked for targets with one prefix.
type Shelf struct {
	Prefix string
	Warm   Warm
}

// Shelves asks the first shelf whose prefix fits, so that each service keeps
// its own.
type Shelves []Shelf

// Lookup finds a prepared answer.
func (s Shelves) Lookup(target []byte) (*Prepared, bool) {
	for i := range s {
		if len(target) >= len(s[i].Prefix) && string(target[:len(s[i].Prefix)]) == s[i].Prefix {
			return s[i].Warm.Lookup(target)
		}
	}
	return nil, false
}
