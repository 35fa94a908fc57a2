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
	zstd         = "zstd"
	helloCorr    = 1  // the corr of our hello
	dataOverhead = 51 // what a data message adds to its chunk
)

// closeGrace is how long a peer has to read why the connection closes. An earlier
// reset could destroy the reason in transit.
const closeGrace = time.Second

// closeCause is why a connection closes, and what is sent to the peer about it.
type closeCause struct {
	reason    CloseReason
	err       error       // nil after a normal end
	message   oap.Message // the last message; nil if there is none
	flags     oap.Flags
	corr      uint64
	byeReason string // the reason of a bye after message; empty if there is none
	abrupt    bool   // close at once: there is no time, or we are inside a frame
}

// frameCause makes the cause for a refused frame. If the header itself is refused,
// the corr is unknown and stays 0.
func frameCause(frame oap.Frame, err error) *closeCause {
	p := &closeCause{reason: closeReason(err), err: err, message: oap.ErrorFor(err), flags: oap.Event, corr: frame.Corr}
	if frame.Flags&oap.Req != 0 {
		p.flags = oap.Resp
	}
	return p
}

// errorCause makes the cause for an error that is not about a frame.
func errorCause(reason CloseReason, err error) *closeCause {
	return &closeCause{reason: reason, err: err, message: oap.ErrorFor(err), flags: oap.Event}
}

// abortCause makes the cause for a session whose tasks are cancelled.
func abortCause() *closeCause {
	return &closeCause{reason: ClosedAborted, err: errAborted, abrupt: true}
}

// parameters is what two peers agreed on.
type parameters struct {
	maxFrame int // the largest payload that the peer accepts
	chunk    int // of object streams, both ways
	zstd     bool
}

// newHello makes our hello.
func newHello(c Config, token string) *oap.Hello {
	return &oap.Hello{
		Versions: []uint64{oap.Version},
		Features: oap.Features{Comp: []string{zstd}, PQ: c.PQ},
		MaxFrame: uint64(c.MaxFrameBytes),
		Token:    token,
	}
}

// negotiate makes the listener's answer to a hello: maxFrame is the largest payload
// that the listener accepts, chunk the largest chunk.
func negotiate(hello *oap.Hello, maxFrame, chunk int, pq bool) (*oap.HelloAck, parameters, error) {
	if !slices.Contains(hello.Versions, oap.Version) {
		return nil, parameters{}, fault.New("overlay.handshake", fault.Malformed, "no version in common: the peer speaks %d, this node %d", hello.Versions, oap.Version).
			Advise("Update the older of the two nodes.").Because(oap.BadVersion)
	}
	agreed := parameters{maxFrame: min(clamp(hello.MaxFrame), oap.MaxPayload), zstd: slices.Contains(hello.Features.Comp, zstd)}
	agreed.chunk = max(1, min(chunk, agreed.maxFrame-dataOverhead, maxFrame-dataOverhead))
	ack := &oap.HelloAck{
		Chosen: oap.Chosen{Ver: oap.Version},
		Limits: oap.Limits{MaxFrame: uint64(maxFrame), Chunk: uint64(agreed.chunk)},
	}
	if agreed.zstd {
		ack.Chosen.Comp = zstd
	}
	if pq {
		ack.Chosen.PQ = pqHybrid
	}
	return ack, agreed, nil
}

// checkHelloAck checks the answer to the dialer's hello. What the answer says of
// post-quantum is for logs: TLS knows.
func checkHelloAck(ack *oap.HelloAck) (parameters, error) {
	if ack.Chosen.Ver != oap.Version {
		return parameters{}, protocolError("overlay.handshake", "the listener chose version %d, which was not offered", ack.Chosen.Ver)
	}
	if ack.Chosen.Comp != "" && ack.Chosen.Comp != zstd {
		return parameters{}, protocolError("overlay.handshake", "the listener chose compression %q, which was not offered", ack.Chosen.Comp)
	}
	return parameters{
		maxFrame: min(clamp(ack.Limits.MaxFrame), oap.MaxPayload),
		chunk:    min(clamp(ack.Limits.Chunk), oap.Chunk),
		zstd:     ack.Chosen.Comp == zstd,
	}, nil
}

// clamp converts to int, with an upper bound of 1 GiB.
func clamp(n uint64) int { return int(min(n, 1<<30)) }

// pendingConn is a connection whose handshake is under way. It is owned by the
// task of the handshake.
type pendingConn struct {
	// set at construction
	raw     *batchConn
	conn    *tls.Conn
	dialed  bool
	release func() // releases its permit among the connections

	tlsDone bool // TLS is up, and the fields below are set
	source  *source
	frames  *oap.Reader
	peer    oap.PeerID
	pq      bool
	rtt     time.Duration
}

// newPendingConn bounds everything that follows by a deadline.
func newPendingConn(conn net.Conn, patience time.Duration, until time.Time) *pendingConn {
	c := &pendingConn{raw: newBatchConn(conn, patience), release: func() {}}
	c.raw.boundWrites(until)
	_ = c.raw.SetReadDeadline(until) // fails on a closed connection only, and then so does the first read
	return c
}

// handshakeTLS does the handshake of TLS.
func (t *Sessions) handshakeTLS(ctx context.Context, c *pendingConn) *closeCause {
	if err := c.conn.HandshakeContext(ctx); err != nil {
		return &closeCause{err: tlsError(c.raw, err)}
	}
	state := c.conn.ConnectionState()
	c.peer, _ = peerOf(state) // verified
	c.pq = state.CurveID == tls.X25519MLKEM768
	clear(state.PeerCertificates) // the list belongs to the connection, which would keep them; only the key is needed
	c.source = newSource(c.conn, c.raw)
	c.frames = oap.NewReader(c.source, oap.Codec{Max: oap.MaxPayload})
	c.tlsDone = true
	if c.pq {
		t.counters.Negotiated(pqHybrid)
	} else {
		t.counters.Negotiated("classical")
	}
	return nil
}

// tlsError adds to an error of TLS the reason that it is counted under.
func tlsError(raw *batchConn, err error) error {
	switch {
	case timedOut(err):
		return &fault.Error{Op: "overlay.handshake", Kind: fault.Timeout, Detail: "the TLS handshake timed out", Err: err}
	case raw.wrongALPN:
		return &fault.Error{Op: "overlay.handshake", Kind: fault.Malformed, Detail: "the peer does not offer " + alpn, Err: FailedALPN}
	case failReason(err) == FailedMalformed || failReason(err) == FailedNotReady || failReason(err) == FailedError:
		return &fault.Error{Op: "overlay.handshake", Kind: fault.Transient, Detail: "TLS failed: " + err.Error(), Err: tlsFailed{err}}
	}
	return fault.Wrap("overlay.handshake", err)
}

// tlsFailed is an error of TLS with the reason it is counted under.
type tlsFailed struct{ error }

func (t tlsFailed) Unwrap() []error { return []error{FailedTLS, t.error} }

// answerHello is the listener's half of the handshake.
func (t *Sessions) answerHello(c *pendingConn) (parameters, *closeCause) {
	frame, message, over := t.readHandshake(c)
	if over != nil {
		return parameters{}, over
	}
	hello, ok := message.(*oap.Hello)
	if !ok || frame.Flags&oap.Req == 0 {
		return parameters{}, frameCause(frame, protocolError("overlay.handshake", "the first frame is not a hello request, but %s", oap.KindOf(message)))
	}
	ack, agreed, err := negotiate(hello, t.maxFrame, int(t.spec.Config.ChunkBytes), c.pq)
	if err == nil {
		err = t.admit(Candidate{ID: c.peer, Addr: c.raw.RemoteAddr().String(), Token: hello.Token})
	}
	if err != nil {
		return parameters{}, &closeCause{err: err, message: oap.ErrorFor(err), flags: oap.Resp, corr: frame.Corr}
	}
	return agreed, c.writeMessage(oap.Resp, frame.Corr, ack)
}

// admit decides whether to accept a session with a peer now.
func (t *Sessions) admit(peer Candidate) error {
	if err := t.spec.Admit(peer); err != nil {
		return err
	}
	if t.isDraining() {
		return errDraining
	}
	if t.spec.Ready != nil {
		return t.spec.Ready()
	}
	return nil
}

// sendHello is the dialer's half of the handshake.
func (t *Sessions) sendHello(c *pendingConn) (parameters, *closeCause) {
	token := ""
	if t.spec.Token != nil {
		token = t.spec.Token(c.peer)
	}
	asked := time.Now()
	if over := c.writeMessage(oap.Req, helloCorr, newHello(t.spec.Config, token)); over != nil {
		return parameters{}, over
	}
	frame, message, over := t.readHandshake(c)
	if over != nil {
		return parameters{}, over
	}
	c.rtt = time.Since(asked)
	switch m := message.(type) {
	case *oap.Error:
		return parameters{}, &closeCause{err: peerError{m.Err()}}
	case *oap.HelloAck:
		if frame.Flags&oap.Resp == 0 || frame.Corr != helloCorr {
			return parameters{}, frameCause(frame, protocolError("overlay.handshake", "a hello_ack that does not answer our hello"))
		}
		agreed, err := checkHelloAck(m)
		if err != nil {
			return parameters{}, frameCause(frame, err)
		}
		return agreed, nil
	}
	return parameters{}, frameCause(frame, protocolError("overlay.handshake", "the first frame is not a hello_ack, but %s", oap.KindOf(message)))
}

// readHandshake reads one message of the handshake.
func (t *Sessions) readHandshake(c *pendingConn) (oap.Frame, oap.Message, *closeCause) {
	frame, err := c.frames.Next()
	if err == nil {
		var message oap.Message
		if message, err = oap.Decode(frame.Payload); err == nil {
			return frame, message, nil
		}
	}
	switch reason := oap.ReasonOf(err); {
	case reason != 0:
		t.counters.Rejected(reason)
		return frame, nil, frameCause(frame, err)
	case timedOut(err):
		return frame, nil, errorCause("", timeoutError("overlay.handshake", "the handshake timed out"))
	}
	return frame, nil, &closeCause{err: fault.Wrap("overlay.handshake", err)}
}

// writeMessage writes one message of the handshake.
func (c *pendingConn) writeMessage(flags oap.Flags, corr uint64, message oap.Message) *closeCause {
	frame, err := oap.Codec{Max: oap.MaxPayload}.AppendMessage(nil, flags, corr, message)
	if err == nil {
		_, err = c.conn.Write(frame)
	}
	if err != nil {
		return &closeCause{err: fault.Wrap("overlay.handshake", err)}
	}
	return nil
}

// closeWith sends the cause's message, if there is one, and closes.
func (c *pendingConn) closeWith(over *closeCause) {
	defer c.release()
	defer c.raw.Close()
	end := time.Now().Add(closeGrace)
	c.raw.boundWrites(end)
	switch {
	case !c.tlsDone:
		// TLS has sent its alert.
		if half, ok := c.raw.Conn.(interface{ CloseWrite() error }); ok && !timedOut(over.err) {
			_ = half.CloseWrite() // fails only if the peer is gone already
			discard(c.raw, c.raw, end)
		}
	case over.message != nil && c.writeMessage(over.flags, over.corr, over.message) == nil:
		_ = c.conn.CloseWrite()
		discard(c.raw, c.source, end)
	}
}

// discard reads and drops what still arrives, until the peer closes too or the
// end time is reached. interruptReader may still set a deadline in the past; that
// is not the end.
func discard(raw *batchConn, from io.Reader, end time.Time) {
	buffer := make([]byte, 512)  // a small one of its own: in a drain all sessions are here at the same time
	_ = raw.SetReadDeadline(end) // fails on a closed connection only
	for {
		_, err := from.Read(buffer)
		switch {
		case err == nil:
		case timedOut(err) && time.Now().Before(end):
			_ = raw.SetReadDeadline(end)
		default:
			return
		}
	}
}
