package session

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"slices"
	"time"

	"micronode/fault"
	"micronode/internal/oap"
)

const (
	zstd     = "zstd"
	helloNum = 1  // the corr of our hello
	around   = 51 // what a data message adds to its chunk
)

// lastWords is how long a peer gets to take in why it is left. A reset that
// follows too soon would eat the reason.
const lastWords = time.Second

// parting is why a connection is over, and what the other side is told of it.
type parting struct {
	reason CloseReason
	err    error       // nil after a normal end
	words  oap.Message // nil if there is nothing to say
	flags  oap.Flags
	corr   uint64
	bye    string // what a bye behind the words says; empty if there is none
	cut    bool   // close at once: there is no time, or we are inside a frame
}

// about is a parting over a frame that is refused. Of one whose header is
// refused nothing is known, so it has no number.
func about(frame oap.Frame, err error) *parting {
	p := &parting{reason: closeReason(err), err: err, words: oap.ErrorFor(err), flags: oap.Event, corr: frame.Corr}
	if frame.Flags&oap.Req != 0 {
		p.flags = oap.Resp
	}
	return p
}

// with is a parting over something that is no frame.
func with(reason CloseReason, err error) *parting {
	return &parting{reason: reason, err: err, words: oap.ErrorFor(err), flags: oap.Event}
}

// terms is what two peers agreed on.
type terms struct {
	frame int // the largest payload that the other side takes
	chunk int // of object streams, both ways
	zstd  bool
}

// introduce is our hello.
func introduce(c Config, token string) *oap.Hello {
	return &oap.Hello{
		Versions: []uint64{oap.Version},
		Features: oap.Features{Comp: []string{zstd}, PQ: c.PQ},
		MaxFrame: uint64(c.MaxFrameBytes),
		Token:    token,
	}
}

// choose is the listener's answer to a hello: most is the largest payload that
// it takes, chunk the largest chunk.
func choose(hello *oap.Hello, most, chunk int, pq bool) (*oap.HelloAck, terms, error) {
	if !slices.Contains(hello.Versions, oap.Version) {
		err := fault.New("overlay.handshake", fault.Malformed, "no version in common: the peer speaks %d, this node %d", hello.Versions, oap.Version)
		err.Err, err.Next = oap.BadVersion, "Update the older of the two nodes."
		return nil, terms{}, err
	}
	agreed := terms{frame: min(clamp(hello.MaxFrame), oap.MaxPayload), zstd: slices.Contains(hello.Features.Comp, zstd)}
	agreed.chunk = max(1, min(chunk, agreed.frame-around, most-around))
	ack := &oap.HelloAck{
		Chosen: oap.Chosen{Ver: oap.Version},
		Limits: oap.Limits{MaxFrame: uint64(most), Chunk: uint64(agreed.chunk)},
	}
	if agreed.zstd {
		ack.Chosen.Comp = zstd
	}
	if pq {
		ack.Chosen.PQ = hybrid
	}
	return ack, agreed, nil
}

// agree is how the dialer reads the answer to its hello. What the answer says
// of post-quantum is for logs: TLS knows.
func agree(ack *oap.HelloAck) (terms, error) {
	if ack.Chosen.Ver != oap.Version {
		return terms{}, brokenRule("overlay.handshake", "the listener chose version %d, which was not offered", ack.Chosen.Ver)
	}
	if ack.Chosen.Comp != "" && ack.Chosen.Comp != zstd {
		return terms{}, brokenRule("overlay.handshake", "the listener chose compression %q, which was not offered", ack.Chosen.Comp)
	}
	return terms{
		frame: min(clamp(ack.Limits.MaxFrame), oap.MaxPayload),
		chunk: min(clamp(ack.Limits.Chunk), oap.Chunk),
		zstd:  ack.Chosen.Comp == zstd,
	}, nil
}

// clamp makes an int of a number that may be any.
func clamp(n uint64) int { return int(min(n, 1<<30)) }

// candidate is a connection that is no session yet. It belongs to the task of
// its handshake.
type candidate struct {
	// set at construction
	wire   *wire
	conn   *tls.Conn
	dialed bool
	free   func() // gives its place among the connections back

	secure bool // TLS is up, and the fields below are known
	plain  *source
	frames *oap.Reader
	peer   oap.PeerID
	pq     bool
	rtt    time.Duration
}

// newCandidate bounds everything that follows by a deadline.
func newCandidate(conn net.Conn, patience time.Duration, until time.Time) *candidate {
	c := &candidate{wire: newWire(conn, patience), free: func() {}}
	c.wire.within(until)
	_ = c.wire.SetReadDeadline(until) // fails on a closed connection only, and then so does the first read
	return c
}

// secured does the handshake of TLS.
func (t *Sessions) secured(ctx context.Context, c *candidate) *parting {
	if err := c.conn.HandshakeContext(ctx); err != nil {
		return &parting{err: tlsError(c.wire, err)}
	}
	state := c.conn.ConnectionState()
	c.peer, _ = peerOf(state) // verified
	c.pq = state.CurveID == tls.X25519MLKEM768
	clear(state.PeerCertificates) // the list is that of the connection, which would keep them; the key was all we wanted
	c.plain = newSource(c.conn, c.wire)
	c.frames = oap.NewReader(c.plain, oap.Codec{Max: oap.MaxPayload})
	c.secure = true
	if c.pq {
		t.count.Negotiated(hybrid)
	} else {
		t.count.Negotiated("classical")
	}
	return nil
}

// tlsError gives an error of TLS the reason that TLS does not tell.
func tlsError(w *wire, err error) error {
	switch {
	case timedOut(err):
		return &fault.Error{Op: "overlay.handshake", Kind: fault.Timeout, Detail: "TLS took too long", Err: err}
	case w.foreign:
		return &fault.Error{Op: "overlay.handshake", Kind: fault.Malformed, Detail: "the peer does not offer " + alpn, Err: FailedALPN}
	case failReason(err) == FailedMalformed || failReason(err) == FailedNotReady || failReason(err) == FailedError:
		return &fault.Error{Op: "overlay.handshake", Kind: fault.Transient, Detail: "TLS failed: " + err.Error(), Err: tlsFailed{err}}
	}
	return fault.Wrap("overlay.handshake", err)
}

// tlsFailed is an error of TLS with the reason it is counted under.
type tlsFailed struct{ error }

func (t tlsFailed) Unwrap() []error { return []error{FailedTLS, t.error} }

// answer is the listener's half of the handshake.
func (t *Sessions) answer(c *candidate) (terms, *parting) {
	frame, message, over := t.listen(c)
	if over != nil {
		return terms{}, over
	}
	hello, ok := message.(*oap.Hello)
	if !ok || frame.Flags&oap.Req == 0 {
		return terms{}, about(frame, brokenRule("overlay.handshake", "the first frame is no hello that is a request, but %s", oap.KindOf(message)))
	}
	ack, agreed, err := choose(hello, t.most, int(t.spec.Config.ChunkBytes), c.pq)
	if err == nil {
		err = t.admit(c.peer, hello.Token)
	}
	if err != nil {
		return terms{}, &parting{err: err, words: oap.ErrorFor(err), flags: oap.Resp, corr: frame.Corr}
	}
	return agreed, c.say(oap.Resp, frame.Corr, ack)
}

// admit decides whether a peer may have a session now.
func (t *Sessions) admit(peer oap.PeerID, token string) error {
	if err := t.spec.Admit(peer, token); err != nil {
		return err
	}
	if t.drained() {
		return errDraining
	}
	if t.spec.Ready != nil {
		return t.spec.Ready()
	}
	return nil
}

// greet is the dialer's half of the handshake.
func (t *Sessions) greet(c *candidate) (terms, *parting) {
	token := ""
	if t.spec.Token != nil {
		token = t.spec.Token(c.peer)
	}
	asked := time.Now()
	if over := c.say(oap.Req, helloNum, introduce(t.spec.Config, token)); over != nil {
		return terms{}, over
	}
	frame, message, over := t.listen(c)
	if over != nil {
		return terms{}, over
	}
	c.rtt = time.Since(asked)
	switch m := message.(type) {
	case *oap.Error:
		return terms{}, &parting{err: said{m.Err()}}
	case *oap.HelloAck:
		if frame.Flags&oap.Resp == 0 || frame.Corr != helloNum {
			return terms{}, about(frame, brokenRule("overlay.handshake", "a hello_ack that does not answer our hello"))
		}
		agreed, err := agree(m)
		if err != nil {
			return terms{}, about(frame, err)
		}
		return agreed, nil
	}
	return terms{}, about(frame, brokenRule("overlay.handshake", "the first frame is no hello_ack, but %s", oap.KindOf(message)))
}

// listen reads one message of the handshake.
func (t *Sessions) listen(c *candidate) (oap.Frame, oap.Message, *parting) {
	frame, err := c.frames.Next()
	if err == nil {
		var message oap.Message
		if message, err = oap.Decode(frame.Payload); err == nil {
			return frame, message, nil
		}
	}
	switch reason := oap.ReasonOf(err); {
	case reason != 0:
		t.count.Rejected(reason)
		return frame, nil, about(frame, err)
	case timedOut(err):
		return frame, nil, with("", tooSlow("overlay.handshake", "the handshake took too long"))
	}
	return frame, nil, &parting{err: fault.Wrap("overlay.handshake", err)}
}

// say writes one message of the handshake.
func (c *candidate) say(flags oap.Flags, corr uint64, message oap.Message) *parting {
	frame, err := oap.Codec{Max: oap.MaxPayload}.AppendMessage(nil, flags, corr, message)
	if err == nil {
		_, err = c.conn.Write(frame)
	}
	if err != nil {
		return &parting{err: fault.Wrap("overlay.handshake", err)}
	}
	return nil
}

// dismiss says the last words, if there are any, and closes.
func (c *candidate) dismiss(over *parting) {
	defer c.free()
	defer c.wire.Close()
	c.wire.within(time.Now().Add(lastWords))
	switch {
	case !c.secure:
		// TLS has sent its alert.
		if half, ok := c.wire.Conn.(interface{ CloseWrite() error }); ok && !timedOut(over.err) {
			_ = half.CloseWrite() // whoever is gone already needs no more
			discard(c.wire, c.wire)
		}
	case over.words != nil && c.say(over.flags, over.corr, over.words) == nil:
		_ = c.conn.CloseWrite()
		discard(c.wire, c.plain)
	}
}

// discard reads for a while what nobody wants any more, until the other side
// closes too. Somebody may still be about to wake the reader up, by a deadline
// that has passed; that is not the end.
func discard(w *wire, from io.Reader) {
	buffer := make([]byte, 512) // a small one of its own: in a drain all sessions are here at the same time
	end := time.Now().Add(lastWords)
	_ = w.SetReadDeadline(end) // fails on a closed connection only
	for {
		_, err := from.Read(buffer)
		switch {
		case err == nil:
		case timedOut(err) && time.Now().Before(end):
			_ = w.SetReadDeadline(end)
		default:
			return
		}
	}
}
