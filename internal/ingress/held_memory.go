package ingress

import (
	"io"
	"sync"
	"sync/atomic"

	"micronode/fault"
)

// What requests hold in memory is bounded by one budget, limits.memory: headers
// while they arrive, the bodies that handlers read whole, compressed ones as
// what they inflate to, and large answers. Bodies that are streamed are not
// held. ADR 47 has the reasons.

const (
	// What each request may hold without being counted: most need no more, and
	// limits.inflight and limits.max_conns bound how many there are.
	freeBody = 16 << 10
	freeHead = 8 << 10
	freeText = 64 << 10 // of an answer

	// heldFactor is how much memory a byte takes: the buffer that grows with
	// the body, and what is decoded from it; the lines of a header, and its map.
	heldFactor = 2

	// heldStep is how much is taken of the budget at a time.
	heldStep = 32 << 10
)

// errHeld refuses a request for whose content there is no memory.
var errHeld = &fault.Error{Op: "http.memory", Kind: fault.Backpressure, Detail: "the memory for the content of requests is used up",
	Next: "Wait for Retry-After and send it again, or send less at a time. The operator can raise limits.memory if there is memory for it."}

// errHeldLarge refuses a body that would never get as much memory.
var errHeldLarge = &fault.Error{Op: "http.memory", Kind: fault.BodyTooLarge, Detail: "the content of this request takes more than one client may hold: half of limits.memory",
	Next: "Send less at a time. The operator can raise limits.memory if there is memory for it."}

// heldMemory is that budget. A client may hold as much as is left: one alone
// half, two a third each, so there is always something for the next one.
type heldMemory struct {
	size int64 // set at construction

	taken   atomic.Int64
	noAddr  share // of clients without an address; they have no share
	refused atomic.Uint64
}

// take takes n bytes for a client.
func (h *heldMemory) take(used *share, n int64) bool {
	own, left := used.Add(n), h.size-h.taken.Add(n)
	if left < 0 || used != &h.noAddr && own > left+n {
		h.put(used, n)
		h.refused.Add(1)
		return false
	}
	return true
}

func (h *heldMemory) put(used *share, n int64) {
	used.Add(-n)
	h.taken.Add(-n)
}

func (h *heldMemory) shareOf(p *clientState) *share {
	if p == nil {
		return &h.noAddr
	}
	return &p.shares[shareMemory]
}

// HeldMemory is how full the budget for what requests hold is, from 0 to 1, and
// how often it has refused.
func (s *Server) HeldMemory() (fill float64, refused uint64) {
	if s.memory == nil {
		return 0, 0
	}
	return float64(s.memory.taken.Load()) / float64(s.memory.size), s.memory.refused.Load()
}

// holding is what one request holds.
type holding struct {
	mu    sync.Mutex //lockblock:leaf two fields
	bytes int64
	over  bool // the request is; a late reader holds nothing
}

// hold takes memory for as long as the request lasts.
func (c *call) hold(n int64) error {
	budget := c.server.memory
	if budget == nil {
		return nil
	}
	used := budget.shareOf(c.clientState())
	if !budget.take(used, n) {
		c.route.reject("memory")
		return errHeld
	}
	c.holding.mu.Lock()
	defer c.holding.mu.Unlock()
	if c.holding.over {
		budget.put(used, n)
		return nil
	}
	c.holding.bytes += n
	return nil
}

// releaseHeld gives back what the request held.
func (c *call) releaseHeld() {
	c.holding.mu.Lock()
	n := c.holding.bytes
	c.holding.bytes, c.holding.over = 0, true
	c.holding.mu.Unlock()
	if n > 0 {
		c.server.memory.put(c.server.memory.shareOf(c.clientState()), n)
	}
}

// heldBody is a body that its handler reads whole. It takes memory as it comes.
type heldBody struct {
	io.ReadCloser
	call *call
	read int64
	held int64
}

// Read reads, and fails when there is no memory for what was read.
func (b *heldBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.read += int64(n); b.read > freeBody && b.read*heldFactor > b.held {
		more := (b.read*heldFactor/heldStep+1)*heldStep - b.held
		if budget := b.call.server.memory; budget != nil && b.held+more > budget.size/2 {
			return n, errHeldLarge
		}
		if full := b.call.hold(more); full != nil {
			return n, full
		}
		b.held += more
	}
	return n, err
}

// holdFields takes memory for the header of a request of HTTP/2, of which a
// connection carries many at a time.
func (c *call) holdFields() error {
	var size int64
	for name, values := range c.request.Header {
		for _, value := range values {
			size += int64(len(name) + len(value))
		}
	}
	if size += int64(len(c.request.RequestURI)); size <= freeHead {
		return nil
	}
	return c.hold(size)
}

// holdHead takes memory for bytes of a header. It reports false if there is
// none; then the client has its refusal, and the connection is over.
func (c *conn) holdHead(n int) bool {
	budget := c.listener.server.memory
	if c.headRead.Add(int64(n)) <= freeHead || budget == nil {
		return true
	}
	more := int64(n) * heldFactor
	if !budget.take(budget.shareOf(c.clientState), more) {
		c.refuseHead()
		return false
	}
	c.headHeld.Add(more)
	if c.closed.Load() {
		c.releaseHead()
	}
	return true
}

// releaseHead gives back what a header held, when its request is over or the
// connection is closed.
func (c *conn) releaseHead() {
	if n := c.headHeld.Swap(0); n > 0 {
		budget := c.listener.server.memory
		budget.put(budget.shareOf(c.clientState), n)
	}
}
