package ingress

import (
	"io"
	"math"
	"time"

	"micronode/internal/bandwidth"
)

// What moves beyond this machine is charged to node.bandwidth, and what
// strangers read to limits.public_bytes too. Transfers wait for their bytes, in
// turns of their clients. All else is small, has a deadline for the whole, and
// does not wait.
//
// A transfer that waits for a limit of this node is held: it makes no progress,
// and that is not its client's fault. So its watchdog stands still meanwhile.
// ADR 101 has the reasons.

const (
	// remotePiece is how much of a file is sent between two looks at the limits,
	// where there are none.
	remotePiece = 1 << 20

	// holdLimit is the deadline of a stream of HTTP/2 while it is held. Turns come
	// sooner.
	holdLimit = time.Hour

	// headBytes is what the head of a request, or of an answer, counts for.
	headBytes = 300
)

// clientShares are what one client has of the limits of bytes.
type clientShares struct {
	up, down, public bandwidth.Share
}

// leavesMachine reports whether the bytes of a request come from beyond this
// machine, and those of its answer go there.
func (c *call) leavesMachine() bool {
	switch {
	case c.conn == nil, c.listener.options.Local, c.server.exempt, !c.client.IsValid(), c.client.IsLoopback():
		return false
	case c.forwarded:
		return true
	}
	return !c.listener.loopback && c.client != ipOf(c.conn.LocalAddr())
}

// bandwidthShares are those of the client of a request.
func (c *call) bandwidthShares() *clientShares {
	if state := c.clientState(); state != nil {
		return &state.bandwidth
	}
	return &c.server.noAddrShares
}

// await waits until some of n bytes may move, and returns how many.
func (c *call) await(limiter *bandwidth.Limiter, share *bandwidth.Share, n int) (int, error) {
	if granted := limiter.Try(share, n); granted > 0 || n == 0 {
		return granted, nil
	}
	c.transferWatch.hold()
	if c.http2 && limiter != c.server.bandwidth.Down() {
		c.writeDeadlineSet = time.Time{} // so that the next write sets it again
		c.setWriteDeadline(time.Now().Add(holdLimit))
	}
	defer c.transferWatch.resume()
	return limiter.Wait(c.transferContext, bandwidth.Gateway, share, n)
}

// awaitAnswer waits until some of n bytes of the answer may be sent, and returns
// how many.
func (c *call) awaitAnswer(n int) (granted int, err error) {
	shares := c.bandwidthShares()
	if c.server.publicBytes != nil {
		if !c.strangerKnown {
			c.strangerKnown, c.stranger = true, c.isStranger()
		}
		if c.stranger {
			if n, err = c.await(c.server.publicBytes, &shares.public, n); err != nil {
				return 0, err
			}
		}
	}
	granted, err = c.await(c.server.bandwidth.Up(), &shares.up, n)
	if c.stranger {
		c.server.publicBytes.Return(&shares.public, n-granted)
	}
	return granted, err
}

// writeRemote is write for an answer that leaves this machine.
func (c *call) writeRemote(p []byte) (n int, err error) {
	up := c.server.bandwidth.Up()
	if c.transferWatch == nil {
		n, err = c.write(p)
		up.Charge(bandwidth.Gateway, n)
		return n, err
	}
	for {
		granted, err := c.awaitAnswer(len(p) - n)
		if err != nil {
			return n, err
		}
		m, err := c.write(p[n : n+granted])
		n += m
		up.Count(bandwidth.Gateway, m)
		if err != nil || n == len(p) {
			return n, err
		}
	}
}

// readFromRemote is ReadFrom for a transfer that leaves this machine: piece by
// piece.
func (c *call) readFromRemote(below io.ReaderFrom, src io.Reader) (n int64, err error) {
	limited, isLimited := src.(*io.LimitedReader)
	if !isLimited {
		limited = &io.LimitedReader{R: src, N: math.MaxInt64}
	}
	for limited.N > 0 {
		granted, err := c.awaitAnswer(int(min(limited.N, remotePiece)))
		if err != nil {
			return n, err
		}
		piece := io.LimitedReader{R: limited.R, N: int64(granted)}
		m, err := below.ReadFrom(&piece)
		n += m
		limited.N -= m
		c.bytes.Add(m)
		c.countSent(granted, int(m))
		if err != nil || piece.N > 0 {
			return n, err // piece.N > 0: that was all
		}
	}
	return n, nil
}

// countSent counts the bytes that were sent of those that were granted.
func (c *call) countSent(granted, sent int) {
	up, shares := c.server.bandwidth.Up(), c.bandwidthShares()
	up.Count(bandwidth.Gateway, sent)
	if left := granted - sent; left > 0 {
		up.Return(&shares.up, left)
		if c.stranger {
			c.server.publicBytes.Return(&shares.public, left)
		}
	}
}

// bodyStep is how much of the body is read at once.
func (c *call) bodyStep(n int) int {
	if !c.remote || c.transferWatch == nil {
		return n
	}
	return min(n, c.server.bandwidth.Down().Step())
}

// awaitBody waits for the bytes of the body that have come, so that the client
// sends no faster than it may.
func (c *call) awaitBody(n int) error {
	if !c.remote {
		return nil
	}
	down := c.server.bandwidth.Down()
	if c.transferWatch == nil {
		down.Charge(bandwidth.Gateway, n)
		return nil
	}
	down.Count(bandwidth.Gateway, n)
	for share := &c.bandwidthShares().down; n > 0; {
		granted, err := c.await(down, share, n)
		if err != nil {
			return err
		}
		n -= granted
	}
	return nil
}

// chargeBody counts the last bytes of a body, after which nothing has to be held
// back.
func (c *call) chargeBody(n int) {
	if c.remote && n > 0 {
		c.server.bandwidth.Down().Charge(bandwidth.Gateway, n)
	}
}

// chargeHeads counts the heads of a request and of its answer.
func (c *call) chargeHeads() {
	if c.remote {
		c.server.bandwidth.Up().Charge(bandwidth.Gateway, headBytes)
		c.server.bandwidth.Down().Charge(bandwidth.Gateway, headBytes)
	}
}

// hold stops the watchdog while the transfer waits for a limit of this node.
func (w *watchdog) hold() {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.held++; w.held == 1 {
		w.heldSince = now
	}
	if w.setReadDeadline != nil && !w.done && !w.ended && !w.bodyComplete.Load() {
		w.setReadDeadline(now.Add(holdLimit))
	}
}

// resume gives the transfer its time again. One that has lost its slot
// meanwhile has none.
func (w *watchdog) resume() {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.held--; w.held > 0 {
		return
	}
	w.windowHeld += now.Sub(later(w.heldSince, w.windowBegan))
	if w.ended || w.done {
		return
	}
	end := now.Add(w.limit)
	if !w.responseStarted {
		end = sooner(end, w.callerDeadline)
	}
	w.expiresAt = later(w.expiresAt, end)
	w.timer.Reset(w.expiresAt.Sub(now))
	if w.setReadDeadline != nil && !w.bodyComplete.Load() {
		w.setReadDeadline(now.Add(w.limit))
	}
}
