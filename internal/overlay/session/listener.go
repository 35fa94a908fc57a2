package session

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"time"

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/ingress"
)

// keepAlive detects peers that vanished without closing.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 60 * time.Second, Interval: 15 * time.Second, Count: 4}

// Listen opens the socket. Connections are accepted once Serve runs. Go asks
// the kernel for as long a backlog as it allows, and sets no-delay.
func (t *Sessions) Listen(ctx context.Context, addr string) error {
	listener, err := (&net.ListenConfig{KeepAliveConfig: keepAlive}).Listen(ctx, "tcp", addr)
	if err != nil {
		return ingress.ListenError("overlay.listen", addr, "--overlay", err)
	}
	t.mu.Lock()
	old := t.listener
	t.listener, t.addr = listener, listener.Addr()
	drained := t.draining
	t.mu.Unlock()
	if old != nil {
		_ = old.Close()
	}
	if drained {
		_ = listener.Close()
		return errDraining
	}
	return nil
}

// Move listens on another address, and no longer on the one before. Sessions
// stay. The old socket is closed first, because the new address may cover it; if
// the new one cannot be had, the old one is opened again. Calls must not overlap.
func (t *Sessions) Move(ctx context.Context, addr string) error {
	moved := make(chan struct{})
	t.mu.Lock()
	old, before := t.listener, t.addr
	if t.draining || before == nil {
		t.mu.Unlock()
		return errDraining
	}
	t.listener, t.moving = nil, moved
	t.moves++
	t.mu.Unlock()
	if old != nil {
		_ = old.Close() // closing twice is harmless
	}
	err := t.Listen(ctx, addr)
	if err != nil {
		err = errors.Join(err, t.Listen(ctx, before.String()))
	}
	t.mu.Lock()
	t.moving = nil
	t.mu.Unlock()
	close(moved)
	return err
}

// Addr returns the address that we listen on, with the port that was picked, if
// one was. It is nil before Listen.
func (t *Sessions) Addr() net.Addr {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.addr
}

// Serve accepts connections until ctx ends or the drain begins. After a failure
// it can be called again; it then opens the same address once more.
func (t *Sessions) Serve(ctx context.Context) error {
	for {
		moves := t.moveCount()
		listener, err := t.openListener(ctx)
		if err == nil {
			err = t.serveListener(ctx, listener)
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil || t.isDraining() || moves == t.moveCount():
			return err
		}
	}
}

func (t *Sessions) moveCount() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.moves
}

// serveListener accepts connections until ctx ends, the drain begins, or the
// listener moves.
func (t *Sessions) serveListener(ctx context.Context, listener net.Listener) error {
	served := make(chan struct{})
	defer close(served)
	// Accept takes no context, so a task of ours closes the socket for it.
	err := t.spec.Tasks.Handshakes.Go(func(own context.Context) error {
		select {
		case <-ctx.Done():
			t.interruptHandshakes()
		case <-own.Done():
			t.interruptHandshakes()
		case <-served:
		}
		t.mu.Lock()
		if t.listener == listener {
			t.listener = nil
		}
		t.mu.Unlock()
		_ = listener.Close() // closing twice is harmless
		return nil
	})
	if err != nil {
		return fault.Wrap("overlay.listen", err)
	}
	return t.acceptLoop(ctx, listener)
}

// openListener returns the listener that Listen or Move opened, or opens the same
// address again.
func (t *Sessions) openListener(ctx context.Context) (net.Listener, error) {
	t.mu.Lock()
	listener, addr, drained, moving := t.listener, t.addr, t.draining, t.moving
	t.mu.Unlock()
	switch {
	case drained:
		return nil, errDraining
	case moving != nil:
		select {
		case <-moving:
			return t.openListener(ctx)
		case <-ctx.Done():
			return nil, errDraining
		}
	case listener != nil:
		return listener, nil
	case addr == nil:
		return nil, fault.New("overlay.listen", fault.NotReady, "Listen was not called")
	}
	if err := t.Listen(ctx, addr.String()); err != nil {
		return nil, err
	}
	return t.openListener(ctx)
}

// acceptLoop waits only for the next connection: each connection is served by a
// task of its own.
func (t *Sessions) acceptLoop(ctx context.Context, listener net.Listener) error {
	pause := time.Duration(0)
	for {
		conn, err := listener.Accept()
		switch {
		case err == nil:
			pause = 0
			t.handleConn(conn)
		case ctx.Err() != nil || errors.Is(err, net.ErrClosed):
			return nil
		default:
			// Out of descriptors, most likely. Other connections will release
			// some.
			pause = min(max(5*time.Millisecond, 2*pause), time.Second)
			_ = flow.Sleep(ctx, pause) // the next Accept finds the socket closed
		}
	}
}

// handleConn starts a task for a connection, if there is room for it.
func (t *Sessions) handleConn(conn net.Conn) {
	began := time.Now()
	if !t.limiter.allow(conn.RemoteAddr(), began) {
		t.rejectConn(conn, FailedRate)
		return
	}
	if t.conns.TryAcquire(1) == 0 {
		t.rejectConn(conn, FailedBusy)
		return
	}
	if t.ingress.Enter(context.Background()) != nil {
		t.conns.Release()
		t.rejectConn(conn, FailedBusy)
		return
	}
	if t.spec.Tasks.Handshakes.Go(func(ctx context.Context) error { t.serveConn(ctx, conn, began); return nil }) != nil {
		t.ingress.Leave()
		t.conns.Release()
		t.rejectConn(conn, FailedBusy)
	}
}

// rejectConn closes without an answer: a connection over the limits is not worth
// a handshake.
func (t *Sessions) rejectConn(conn net.Conn, why FailReason) {
	_ = conn.Close()
	t.counters.HandshakeFailed(why)
}

// serveConn is the task of one handshake, and ends with it: the session has fresh
// tasks, because a handshake leaves a large stack behind.
func (t *Sessions) serveConn(ctx context.Context, conn net.Conn, began time.Time) {
	defer t.ingress.Leave()
	c := newPendingConn(conn, t.spec.Config.Write, began.Add(t.spec.Config.Handshake))
	c.release = t.conns.Release
	c.conn = tls.Server(c.raw, t.serverTLS)
	_, _ = t.open(ctx, c, t.answerHello) // a failure is counted, and the peer knows it
}

// open turns a connection into a session, or counts why it cannot and closes it.
func (t *Sessions) open(ctx context.Context, c *pendingConn, hello func(*pendingConn) (parameters, *closeCause)) (s *Session, err error) {
	t.addPending(c)
	defer t.removePending(c)
	over := &closeCause{err: errHandshakeDied}
	defer func() { // also after a panic, or its permit would never be released
		if over != nil {
			err = over.err
			t.countFailure(err)
			c.closeWith(over)
		}
	}()
	s, over = t.handshake(ctx, c, hello)
	return s, nil
}

// handshake does the handshakes and opens the session; hello is our half of what
// follows TLS.
func (t *Sessions) handshake(ctx context.Context, c *pendingConn, hello func(*pendingConn) (parameters, *closeCause)) (*Session, *closeCause) {
	if over := t.handshakeTLS(ctx, c); over != nil {
		return nil, over
	}
	agreed, over := hello(c)
	if over != nil {
		return nil, over
	}
	return t.openSession(c, agreed)
}

// countFailure counts a failed handshake.
func (t *Sessions) countFailure(err error) {
	reason := failReason(err)
	if reason == FailedTimeout {
		t.counters.HandshakeTimeout()
		t.counters.Timeout("handshake")
	}
	t.counters.HandshakeFailed(reason)
}
