package ingress

import (
	"bytes"
	"net/http"
	"slices"
	"strconv"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"micronode/fault"
)

// Preparation is a whole answer that is known before anybody asks: 200, with
// these headers and this body, to a GET of one exact target.
//
// Who prepares it promises that the handler of the route would say the same,
// whatever Accept, Accept-Language, User-Agent and Referer say, and to anybody
// who may read here at all.
type Preparation struct {
	Pattern string // of the route, for the metrics
	Header  http.Header
	Body    []byte             // not changed afterwards
	Hits    interface{ Inc() } // counted too, if not nil
}

// Prepared is an answer in the form in which it is written to a connection.
type Prepared struct {
	// set at construction
	pattern string
	coding  string // the Content-Encoding that the client must accept; empty for none
	head    []byte // status line and headers; date, correlation ID and the empty line are missing
	body    []byte
	hits    interface{ Inc() }

	tally atomic.Pointer[warmTally] // looked up by the first who serves it
}

// warmTally is where the hits of a Prepared are counted.
type warmTally struct {
	server  *Server
	counter prometheus.Counter
	latency prometheus.Observer
}

// notPrepared are the headers that net/http or the chain decides on.
var notPrepared = []string{"Date", "X-Corr-Id", "Connection", "Transfer-Encoding", "Trailer", "Upgrade", "Keep-Alive"}

// Prepare makes the bytes of an answer. What it refuses are answers that the
// warm lane cannot give.
func Prepare(p Preparation) (*Prepared, error) {
	const op = "ingress.prepare"
	header := p.Header.Clone()
	for _, name := range notPrepared {
		if header.Get(name) != "" {
			return nil, fault.New(op, fault.Internal, "the header %s is not for a handler to prepare", name)
		}
	}
	if header.Get("Content-Type") == "" {
		return nil, fault.New(op, fault.Internal, "there is no Content-Type, and the warm lane does not guess one")
	}
	coding := header.Get("Content-Encoding")
	if vary := header.Values("Vary"); len(vary) > 0 && (coding == "" || !slices.Equal(vary, []string{"Accept-Encoding"})) {
		return nil, fault.New(op, fault.Internal, "the answer varies by more than the warm lane looks at")
	}
	header.Set("Content-Length", strconv.Itoa(len(p.Body)))
	var head bytes.Buffer
	head.WriteString("HTTP/1.1 200 OK\r\n")
	if err := header.Write(&head); err != nil {
		return nil, fault.Wrap(op, err)
	}
	return &Prepared{pattern: p.Pattern, coding: coding, head: head.Bytes(), body: p.Body, hits: p.Hits}, nil
}

// Size is how many bytes it keeps.
func (p *Prepared) Size() int { return len(p.head) + len(p.body) }

// tallyOn finds the metrics of the answer's route on a server.
func (p *Prepared) tallyOn(s *Server) *warmTally {
	if known := p.tally.Load(); known != nil && known.server == s {
		return known
	}
	counts := s.unrouted
	if m := s.routes[p.pattern]; m != nil {
		counts = m.counts
	}
	fresh := &warmTally{server: s, counter: counts.counter(http.MethodGet, http.StatusOK), latency: counts.latency}
	p.tally.Store(fresh)
	return fresh
}

// Warm finds prepared answers. It is asked on the hot path, by many at once:
// it must not allocate, wait, or keep the target.
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
