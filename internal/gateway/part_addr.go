package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"micronode/fault"
	"micronode/internal/capability"
	"micronode/internal/config"
)

// PartAddr is where a part runs: at a URL, or behind a local socket of the same
// user.
type PartAddr struct {
	text   string
	base   *url.URL
	socket string // empty if it is a URL
}

const addrSyntax = "Write https://HOST:PORT, http://127.0.0.1:PORT on this machine, or a local socket: @micronode-1000.index, or a path with a slash."

// ParsePartAddr reads the address of a part. Without TLS the traffic could be
// read on the way, so plain HTTP must not leave the machine.
func ParsePartAddr(text string) (PartAddr, error) {
	if !strings.Contains(text, "://") {
		return parseSocket(text)
	}
	base, err := url.Parse(text)
	if err != nil {
		return PartAddr{}, malformedAddr("the URL does not parse") // not quoted: it may hold a password
	}
	switch {
	case base.Scheme != "http" && base.Scheme != "https":
		return PartAddr{}, malformedAddr("%s:// is not a supported scheme", base.Scheme)
	case base.Hostname() == "":
		return PartAddr{}, malformedAddr("the URL has no host")
	case base.User != nil:
		return PartAddr{}, malformedAddr("there is a user in the URL; parts know each other by auth.root")
	case strings.Trim(base.Path, "/") != "" || base.RawQuery != "" || base.Fragment != "":
		return PartAddr{}, malformedAddr("the URL has more than a host and a port")
	case base.Scheme == "http" && !config.IsLoopbackHost(base.Hostname()):
		return PartAddr{}, malformedAddr("%s is not this machine, and without TLS the capabilities could be read on the way", base.Host)
	}
	base.Path = ""
	return PartAddr{text: base.String(), base: base}, nil
}

// parseSocket reads the name of a local socket.
func parseSocket(text string) (PartAddr, error) {
	const most = 107 // the kernel's limit
	bare := strings.TrimPrefix(text, "@")
	switch {
	case bare == "":
		return PartAddr{}, malformedAddr("it is empty")
	case !strings.Contains(bare, "/") && bare == text:
		return PartAddr{}, malformedAddr("%q is neither a URL nor a socket", text)
	case strings.Contains(bare, "/") && bare != text:
		return PartAddr{}, malformedAddr("it has an @ and a slash; a socket is either abstract or a path")
	case len(bare) > most || strings.ContainsRune(bare, 0):
		return PartAddr{}, malformedAddr("the kernel has no room for a socket of that name")
	}
	return PartAddr{text: text, socket: text, base: &url.URL{Scheme: "http", Host: "localhost"}}, nil
}

func malformedAddr(format string, args ...any) error {
	return fault.New("gateway.place", fault.Malformed, format, args...).Advise(addrSyntax)
}

// String is the address as it was written.
func (p PartAddr) String() string { return p.text }

// Socket is the name of the local socket, or empty.
func (p PartAddr) Socket() string { return p.socket }

// URL is the base of all URLs of the part. Behind a socket, its host means
// nothing.
func (p PartAddr) URL() string { return p.base.String() }

// The bounds of connections to a part.
const (
	dialTimeout = 2 * time.Second
	idleTimeout = 30 * time.Second // less than the 60 s of a part, so that a part rarely closes as a request goes out
	idleConns   = 64
)

// Transport connects to the part, with at most so many connections at a time. A
// socket must belong to this process's own user. At a URL, the server must
// prove on every connection that it is a part of this node before anything is
// sent to it. Nothing is compressed or inflated on the way: bytes pass as they
// are.
func (p PartAddr) Transport(most int, prove ProofFunc) *http.Transport {
	transport := &http.Transport{
		DisableCompression: true, MaxConnsPerHost: most, MaxIdleConns: idleConns, MaxIdleConnsPerHost: idleConns,
		IdleConnTimeout: idleTimeout, TLSHandshakeTimeout: dialTimeout, ExpectContinueTimeout: time.Second, MaxResponseHeaderBytes: 64 << 10,
	}
	switch {
	case p.socket != "":
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) { return capability.DialLocal(ctx, p.socket) }
	case p.base != nil && p.base.Scheme == "https":
		transport.DialTLSContext = p.dial((&tls.Dialer{NetDialer: dialer(), Config: &tls.Config{ServerName: p.base.Hostname(), NextProtos: []string{"http/1.1"}, MinVersion: tls.VersionTLS12}}).DialContext, prove)
	default:
		transport.DialContext = p.dial(dialer().DialContext, prove)
	}
	return transport
}

func dialer() *net.Dialer { return &net.Dialer{Timeout: dialTimeout, KeepAlive: time.Minute} }

type dialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// dial returns connections only to servers that prove to be a part of this
// node.
func (p PartAddr) dial(next dialFunc, prove ProofFunc) dialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		limited, cancel := context.WithTimeout(ctx, 2*dialTimeout)
		defer cancel()
		conn, err := next(limited, network, address)
		if err != nil {
			return nil, err
		}
		if err := p.requireProof(limited, conn, prove); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
		return conn, nil
	}
}
