package ingress

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"micronode/fault"
)

// Drain ends the listener politely. It stops accepting, refuses what is new,
// lets what runs finish, tells streams to end, closes idle connections at once,
// and waits until the last connection is gone. When ctx ends first, it cuts
// what is left and says how many that were. It is the Drain of a
// supervise.Service; calling it again waits again.
func (l *Listener) Drain(ctx context.Context) error {
	l.draining.Store(true)
	l.close()
	l.streams.end()
	l.closeIdle()
	if err := l.conns.Drain(ctx); err != nil {
		left := l.cutAll()
		return &fault.Error{Op: "http.drain", Kind: fault.KindOf(err), Detail: fmt.Sprintf("%d connections were cut at the deadline", left), Err: err}
	}
	return nil
}

// close stops accepting. Connections stay.
func (l *Listener) close() {
	l.mu.Lock()
	inner := l.inner
	l.inner = nil
	l.mu.Unlock()
	if inner != nil {
		_ = inner.Close() // a listener that is closed already is as good
	}
}

// closeIdle closes every connection on which nothing is under way. Those that
// become idle later are closed then, by net/http or by the warm lane.
func (l *Listener) closeIdle() {
	server, all := l.under()
	if server != nil {
		l.announce(server)
	}
	for _, c := range all {
		switch state := http.ConnState(c.state.Load()); {
		case c.phase.Load() != phaseNet:
			c.wakeWarm()
		case state == http.StateIdle && !c.http2.Load(): // of HTTP/2, the end of the last answer may not be sent yet, and it has been told
			_ = c.Close()
		case state == http.StateNew && !c.touched.Load():
			_ = c.Close() // nobody has asked anything on it yet
		}
	}
}

// announce makes net/http say Connection: close, and in HTTP/2 that no more
// requests will be taken. Only Shutdown does the latter. It would wait, for
// which there are better ways here, so it gets no time; and it would drop a
// request that is being read, which without TLS is answered instead.
func (l *Listener) announce(server *http.Server) {
	server.SetKeepAlivesEnabled(false)
	if l.options.TLS != nil {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = server.Shutdown(ctx) // it says that it had no time
	}
}

// cut ends everything at once.
func (l *Listener) cut() { l.cutAll() }

func (l *Listener) cutAll() (left int) {
	l.close()
	l.streams.end()
	_, all := l.under()
	for _, c := range all {
		_ = c.shut()
	}
	return len(all)
}

// under is what is under way: net/http's server and all connections.
func (l *Listener) under() (*http.Server, []*conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.http, slices.Collect(maps.Keys(l.live))
}
