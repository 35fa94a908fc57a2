package ingress

import (
	"bufio"
	"io"
	"net"
	"net/netip"

	"github.com/pires/go-proxyproto"

	"micronode/fault"
)

// proxyHeaderConn is a connection that begins with the header of the PROXY
// protocol, version 1 or 2: a trusted proxy that passes bytes on says in it who
// its client is. The header is read when net/http, or TLS above it, reads for
// the first time; so a proxy that does not send it holds up only itself, until
// the deadline of a header.
type proxyHeaderConn struct {
	net.Conn
	conn     *conn
	buffered *bufio.Reader // nil when its bytes are used up
	read     bool
}

// maxProxyHeader is more than a header without extensions needs.
const maxProxyHeader = 1 << 10

// expectProxyHeader makes a connection read its header first.
func (c *conn) expectProxyHeader() {
	c.Conn = &proxyHeaderConn{Conn: c.Conn, conn: c, buffered: bufio.NewReaderSize(c.Conn, maxProxyHeader)}
}

// Read reads the header before the first bytes.
func (p *proxyHeaderConn) Read(b []byte) (int, error) {
	if !p.read {
		if err := p.readHeader(); err != nil {
			return 0, err
		}
		p.read = true
	}
	if p.buffered == nil {
		return p.Conn.Read(b)
	}
	if p.buffered.Buffered() == 0 {
		p.buffered = nil
		return p.Conn.Read(b)
	}
	return p.buffered.Read(b)
}

// readHeader reads the header. A header for the proxy's own use, such as a
// health check, names no client: then the client is the proxy, and has the
// rights of a stranger. The limits of connections are those of the client.
func (p *proxyHeaderConn) readHeader() error {
	header, err := proxyproto.Read(p.buffered)
	if err != nil {
		p.conn.listener.server.reject("proxy_header")
		return fault.WrapKind("http.proxy_header", fault.Malformed, err)
	}
	p.conn.proxied = true
	if header.Command.IsLocal() {
		return nil
	}
	if from, ok := header.SourceAddr.(*net.TCPAddr); ok {
		if ip, valid := netip.AddrFromSlice(from.IP); valid {
			p.conn.client = ip.Unmap()
			if !p.conn.admitClient() {
				return io.EOF // net/http closes it without an answer, as a connection that is not admitted
			}
		}
	}
	return nil
}

// admitClient counts the connection for the client that the header has named,
// as if it had come without the proxy, and reports whether that client may have
// it. Another proxy that is trusted is many clients again.
func (c *conn) admitClient() bool {
	l := c.listener
	if l.server.policy.Load().trusts(c.client) {
		return true
	}
	one, why := l.server.clients.acquire(c.client, l.options.TLS != nil)
	if why != "" {
		l.server.reject(why)
		l.server.noteRefusedClient(c.client, connLimits[why])
		return false
	}
	l.mu.Lock()
	_, open := l.conns[c]
	if open {
		c.clientState = one
	}
	l.mu.Unlock()
	if !open { // it was closed meanwhile, and has released what it counted against
		l.server.clients.release(one)
	}
	return open
}

// CloseWrite ends the answer, where the connection can be closed by halves.
func (p *proxyHeaderConn) CloseWrite() error {
	if half, ok := p.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
