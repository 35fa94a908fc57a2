package ingress

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"micronode/fault"
)

// Drain ends the listener gracefully. It stops accepting, rejects new requests,
// lets running ones finish, ends streams, closes idle connections at once, and
// waits until the last connection is closed. When ctx ends first, it cuts the
// remaining connections and returns an error with their number. It is the Drain
// of a supervise.Service; calling it again waits again.
func (l *Listener) Drain(ctx context.Context) error {
	l.draining.Store(true)
	l.stopAccepting()
	l.streams.endAll()
	l.closeIdle()
	if err := l.connLane.Drain(ctx); err != nil {
		left := l.closeConns()
		return &fault.Error{Op: "http.drain", Kind: fault.KindOf(err), Detail: fmt.Sprintf("%d connections were cut at the deadline", left), Err: err}
	}
	return nil
}

// stopAccepting stops accepting. Connections stay.
func (l *Listener) stopAccepting() {
	l.mu.Lock()
	inner := l.inner
	l.inner = nil
	l.mu.Unlock()
	if inner != nil {
		_ = inner.Close() // it may be closed already
	}
}

// closeIdle closes every connection without a request under way. Those that
// become idle later are closed then, by net/http or by the warm lane.
func (l *Listener) closeIdle() {
	server, all := l.serverAndConns()
	if server != nil {
		l.endKeepAlive(server)
	}
	for _, c := range all {
		switch state := http.ConnState(c.state.Load()); {
		case c.phase.Load() != phaseNetHTTP:
			c.stopWarm()
		case state == http.StateIdle && !c.http2.Load(): // in HTTP/2 the end of the last answer may be unsent, and GOAWAY was sent
			_ = c.Close()
		case state == http.StateNew && !c.received.Load():
			_ = c.Close() // no request has come on it yet
		}
	}
}

// endKeepAlive makes net/http send Connection: close, and GOAWAY in HTTP/2.
// Only Shutdown does the latter. It would wait, which Drain does itself, so it
// gets no time; and it would drop a request that is being read, which without
// TLS is answered instead.
func (l *Listener) endKeepAlive(server *http.Server) {
	server.SetKeepAlivesEnabled(false)
	if l.options.TLS != nil {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = server.Shutdown(ctx) // returns that it had no time
	}
}

// closeAll closes all connections at once.
func (l *Listener) closeAll() { l.closeConns() }

func (l *Listener) closeConns() (left int) {
	l.stopAccepting()
	l.streams.endAll()
	_, all := l.serverAndConns()
	for _, c := range all {
		_ = c.closeNow()
	}
	return len(all)
}

// serverAndConns returns net/http's server and all connections.
func (l *Listener) serverAndConns() (*http.Server, []*conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.http, slices.Collect(maps.Keys(l.conns))
}
