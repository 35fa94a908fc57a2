package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"

	"micronode/fault"
)

const (
	// localHost is what the Host header says over a socket. A node answers it
	// on every loopback listener.
	localHost = "localhost"

	maxSocketName = 107 // what the kernel has room for
	maxRedirects  = 5

	// idleTime is less than the node's own 60 s, so that it is rarely the node
	// that closes a connection just as a request goes out on it.
	idleTime = 30 * time.Second

	// continueTime is how long to wait for the node's leave to send a body. A
	// server that does not know of it says nothing, and gets the body then.
	continueTime = time.Second

	idleConns = 16
)

type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// newTransport makes connections for one client. There is no compression:
// objects are what their address says, byte for byte, and a transport that
// inflates behind our back would hide how long an answer is.
func newTransport(dial dialFunc) *http.Transport {
	return &http.Transport{
		DialContext:           dial,
		DisableCompression:    true,
		MaxIdleConnsPerHost:   idleConns,
		IdleConnTimeout:       idleTime,
		TLSHandshakeTimeout:   10 * time.Second,
		ExpectContinueTimeout: continueTime,
	}
}

// socketAddress turns the name of a socket into what package net understands:
// an abstract one begins with an @, a path has a slash.
func socketAddress(name string) string {
	switch bare := strings.TrimPrefix(name, "@"); {
	case bare == "":
		return fmt.Sprintf("@micronode-%d", os.Geteuid())
	case strings.Contains(bare, "/"):
		return name
	default:
		return "@" + bare
	}
}

func checkSocket(address string) error {
	const next = "Use a bare name for an abstract socket, or a path with a slash."
	switch bare := strings.TrimPrefix(address, "@"); {
	case strings.ContainsRune(bare, 0):
		return wrong(next, "the name of the socket has a zero byte in it")
	case len(bare) > maxSocketName:
		return wrong(next, "the name of the socket is %d bytes long; the kernel has room for %d", len(bare), maxSocketName)
	case bare != address && strings.Contains(bare, "/"):
		return wrong(next, "the name of the socket has an @ and a slash; it is either abstract or a path")
	}
	return nil
}

// socketDialer connects to the local socket, whatever address is asked for,
// and only if it is owned by the given user: whoever made it would get to see
// what we send.
func socketDialer(address string, own uint32) dialFunc {
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		var dialer net.Dialer
		conn, err := dialer.DialContext(ctx, "unix", address)
		if err != nil {
			return nil, noNode(address, err)
		}
		uid, err := ownerOf(conn.(*net.UnixConn))
		if err == nil && uid == own {
			return conn, nil
		}
		_ = conn.Close()
		return nil, squatted(address, uid, err)
	}
}

const dialOp = "client.dial"

// squatted refuses a socket of somebody else, or of somebody unknown.
func squatted(address string, uid uint32, cause error) error {
	err := fault.New(dialOp, fault.Forbidden, "the socket %s belongs to user %d: somebody else squats on it", address, uid)
	if cause != nil {
		err.Detail = fmt.Sprintf("nobody can say whom the socket %s belongs to", address)
	}
	err.Err = cause
	err.Next = "Nothing was sent. Use another socket with --socket NAME, on the node and here, or stop the squatter."
	return err
}

// noNode says what a failure to connect to the local socket means.
func noNode(address string, cause error) error {
	err := &fault.Error{Op: dialOp, Err: cause}
	switch {
	case errors.Is(cause, syscall.ECONNREFUSED), errors.Is(cause, syscall.ENOENT):
		err.Kind, err.Detail = fault.NotReady, "no node is running on the socket "+address
		err.Next = "Start a node: micronode run. If it runs with --socket NAME, say the same here."
	case errors.Is(cause, syscall.EACCES):
		err.Kind, err.Detail = fault.Forbidden, "the socket "+address+" belongs to another user"
		err.Next = "Use another socket with --socket NAME, on the node and here."
	case errors.Is(cause, syscall.EAGAIN):
		err.Kind, err.Detail = fault.Busy, "the node does not take connections as fast as they come on the socket "+address
	default:
		return cause
	}
	return err
}

// secret is the token. It is added to requests at the last moment, below
// everything that follows redirects, so that no header is ever copied that
// holds it.
type secret struct{ token string }

// hide takes the token out of a text that came from somebody else: a server
// may repeat what it was sent.
func (s *secret) hide(text string) string {
	if s.token == "" {
		return text
	}
	return strings.ReplaceAll(text, s.token, "[token]")
}

// bearer adds the token to requests for one origin.
type bearer struct {
	// set at construction
	next   http.RoundTripper
	origin string
	secret *secret
}

// authorise is called when the base is known.
func (c *Client) authorise(next http.RoundTripper) http.RoundTripper {
	if c.secret.token == "" {
		return next
	}
	base, _ := url.Parse(c.base) // it comes from a URL
	return &bearer{next: next, origin: originOf(base), secret: c.secret}
}

// RoundTrip sends the token only to where it belongs.
func (b *bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	if originOf(r.URL) == b.origin {
		r = r.Clone(r.Context()) // a round tripper must not change what it was given
		r.Header.Set("Authorization", "Bearer "+b.secret.token)
	}
	return b.next.RoundTrip(r)
}

// originOf is scheme, host and port in one spelling.
func originOf(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return u.Scheme + "://" + strings.ToLower(u.Hostname()) + ":" + port
}

// redirect decides which redirects are followed: those of reads, a few, never
// from https to http, and never from the local socket to elsewhere. Others end
// the call with the redirect as its answer. What the caller's own HTTPClient
// thinks about it is asked afterwards.
func (c *Client) redirect(theirs func(*http.Request, []*http.Request) error) func(*http.Request, []*http.Request) error {
	return func(to *http.Request, via []*http.Request) error {
		first, last := via[0], via[len(via)-1]
		switch {
		case first.Method != http.MethodGet && first.Method != http.MethodHead,
			len(via) > maxRedirects,
			last.URL.Scheme == "https" && to.URL.Scheme != "https",
			c.local && originOf(to.URL) != originOf(first.URL):
			return http.ErrUseLastResponse
		case theirs != nil:
			return theirs(to, via)
		}
		return nil
	}
}
