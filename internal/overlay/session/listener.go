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

// keepAlive finds peers that have vanished without a word.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 60 * time.Second, Interval: 15 * time.Second, Count: 4}

// Listen opens the socket. Connections are accepted once Serve runs. Go asks
// the kernel for as long a backlog as it allows, and sets no-delay.
func (t *Sessions) Listen(ctx context.Context, addr string) error {
	listener, err := (&net.ListenConfig{KeepAliveConfig: keepAlive}).Listen(ctx, "tcp", addr)
	if err != nil {
		return ingress.CannotListen("overlay.listen", addr, "--overlay", err)
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

// Addr is where we listen: the port that was picked, if one was. It is nil
// before Listen.
func (t *Sessions) Addr() net.Addr {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.addr
}

// Serve accepts connections until ctx ends or the drain begins. After a failure
// it can be called again; it then opens the same address once more.
func (t *Sessions) Serve(ctx context.Context) error {
	listener, err := t.socket(ctx)
	if err != nil {
		return err
	}
	served := make(chan struct{})
	defer close(served)
	// Accept knows no context, so a task of ours closes the socket for it.
	err = t.spec.Tasks.Handshakes.Go(func(own context.Context) error {
		select {
		case <-ctx.Done():
			t.hurry()
		case <-own.Done():
			t.hurry()
		case <-served:
		}
		t.shut(listener)
		return nil
	})
	if err != nil {
		return fault.Wrap("overlay.listen", err)
	}
	return t.accept(ctx, listener)
}

// socket is the one that Listen opened, or one like it.
func (t *Sessions) socket(ctx context.Context) (net.Listener, error) {
	t.mu.Lock()
	listener, addr, drained := t.listener, t.addr, t.draining
	t.mu.Unlock()
	switch {
	case drained:
		return nil, errDraining
	case listener != nil:
		return listener, nil
	case addr == nil:
		return nil, fault.New("overlay.listen", fault.NotReady, "nobody has called Listen")
	}
	if err := t.Listen(ctx, addr.String()); err != nil {
		return nil, err
	}
	return t.socket(ctx)
}

// shut closes a socket, if it is still the one.
func (t *Sessions) shut(listener net.Listener) {
	t.mu.Lock()
	if t.listener == listener {
		t.listener = nil
	}
	t.mu.Unlock()
	_ = listener.Close() // closing twice is harmless
}

// accept never waits for anything but the next connection: what a connection
// needs is done by a task of its own.
func (t *Sessions) accept(ctx context.Context, listener net.Listener) error {
	pause := time.Duration(0)
	for {
		conn, err := listener.Accept()
		switch {
		case err == nil:
			pause = 0
			t.welcome(conn)
		case ctx.Err() != nil || errors.Is(err, net.ErrClosed):
			return nil
		default:
			// Out of descriptors, most likely. Those who have some will give
			// them back.
			pause = min(max(5*time.Millisecond, 2*pause), time.Second)
			_ = flow.Sleep(ctx, pause) // the next Accept finds the socket closed
		}
	}
}

// welcome gives a connection to a task, if there is room for it.
func (t *Sessions) welcome(conn net.Conn) {
	began := time.Now()
	if !t.door.open(conn.RemoteAddr(), began) {
		t.turnAway(conn, FailedRate)
		return
	}
	if t.conns.TryAcquire(1) == 0 {
		t.turnAway(conn, FailedBusy)
		return
	}
	if t.ingress.Enter(context.Background()) != nil {
		t.conns.Release()
		t.turnAway(conn, FailedBusy)
		return
	}
	if t.spec.Tasks.Handshakes.Go(func(ctx context.Context) error { t.receive(ctx, conn, began); return nil }) != nil {
		t.ingress.Leave()
		t.conns.Release()
		t.turnAway(conn, FailedBusy)
	}
}

// turnAway closes without a word: whoever comes too often is not worth a
// handshake.
func (t *Sessions) turnAway(conn net.Conn, why FailReason) {
	_ = conn.Close()
	t.count.HandshakeFailed(why)
}

// receive is the task of one handshake. It ends with it: the session has fresh
// tasks, because a handshake leaves a large stack behind.
func (t *Sessions) receive(ctx context.Context, conn net.Conn, began time.Time) {
	defer t.ingress.Leave()
	c := newCandidate(conn, t.spec.Config.Write, began.Add(t.spec.Config.Handshake))
	c.free = t.conns.Release
	c.conn = tls.Server(c.wire, t.listening)
	t.begun(c)
	defer t.settled(c)
	over := &parting{err: errStumbled}
	defer func() { // also after a panic, or its place would never be free again
		if over != nil {
			t.failed(over.err)
			c.dismiss(over)
		}
	}()
	over = t.receiveOn(ctx, c)
}

// receiveOn makes a session of a connection of a peer that called us.
func (t *Sessions) receiveOn(ctx context.Context, c *candidate) *parting {
	if over := t.secured(ctx, c); over != nil {
		return over
	}
	agreed, over := t.answer(c)
	if over == nil {
		_, over = t.open(c, agreed)
	}
	return over
}

// failed counts a handshake that came to nothing.
func (t *Sessions) failed(err error) {
	reason := failReason(err)
	if reason == FailedTimeout {
		t.count.HandshakeTimeout()
		t.count.Timeout("handshake")
	}
	t.count.HandshakeFailed(reason)
}
