package client

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"micronode/fault"
)

const (
	// localHost is the Host header over a socket. A node accepts it on every
	// loopback listener.
	localHost = "localhost"

	maxRedirects = 5

	// idleTimeout is less than the node's own 60 s, so that the node rarely
	// closes a connection just as a request goes out on it.
	idleTimeout = 30 * time.Second

	// continueTimeout is how long to wait for 100 Continue. A server that does
	// not support it sends nothing, and gets the body then.
	continueTimeout = time.Second

	idleConns = 16
)

type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// newTransport makes the connections of one client. It disables compression:
// objects are what their address says, byte for byte, and a transport that
// inflates silently would hide how long an answer is.
func newTransport(dial dialFunc) *http.Transport {
	return &http.Transport{
		DialContext:           dial,
		DisableCompression:    true,
		MaxIdleConnsPerHost:   idleConns,
		IdleConnTimeout:       idleTimeout,
		TLSHandshakeTimeout:   10 * time.Second,
		ExpectContinueTimeout: continueTimeout,
	}
}

// socketAddress turns the name of a socket into what package net understands:
// an abstract one begins with an @, a path has a slash. Only Linux has abstract
// ones: elsewhere a bare name is a file in the folder for temporary files.
func socketAddress(name string) string {
	bare := strings.TrimPrefix(name, "@")
	switch {
	case strings.Contains(bare, "/"):
		return name
	case bare == "":
		bare = fmt.Sprintf("micronode-%d", ownUID())
	}
	if runtime.GOOS != "linux" {
		return filepath.ToSlash(filepath.Join(os.TempDir(), bare))
	}
	return "@" + bare
}

func checkSocket(address string) error {
	const next = "Use a bare name for an abstract socket, or a path with a slash."
	switch bare := strings.TrimPrefix(address, "@"); {
	case strings.ContainsRune(bare, 0):
		return optionError(next, "the name of the socket has a zero byte in it")
	case len(bare) > maxSocketName:
		return optionError(next, "the name of the socket is %d bytes long; the kernel has room for %d", len(bare), maxSocketName)
	case bare != address && strings.Contains(bare, "/"):
		return optionError(next, "the name of the socket has an @ and a slash; it is either abstract or a path")
	}
	return nil
}

// socketDialer connects to the local socket, whatever address is requested,
// and only if the given user owns it: its owner would see what we send. The
// node of another user is trusted if it serves others, and if the path by which
// it was named is one that only that user and root can put a socket at.
func socketDialer(address string, own uint32) dialFunc {
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		var dialer net.Dialer
		conn, err := dialer.DialContext(ctx, "unix", address)
		if err != nil {
			return nil, socketDialError(address, serviceSocket, err)
		}
		uid, err := ownerOf(conn.(*net.UnixConn))
		if err == nil && (uid == own || onlyUserCanListen("/", address, uid)) {
			return conn, nil
		}
		_ = conn.Close()
		return nil, foreignSocketError(address, uid, err)
	}
}

const dialOp = "client.dial"

// serviceSocket is the socket of the node that a service of the system runs.
const serviceSocket = "/run/micronode/node.sock"

// asUserOf is how to ask a node of another user. A user that exists while a
// service runs has a name only where the system looks for it.
func asUserOf(uid uint32, address string) string {
	name := fmt.Sprintf("'#%d'", uid)
	if known, err := user.LookupId(strconv.FormatUint(uint64(uid), 10)); err == nil {
		name = known.Username
	} else if address == serviceSocket {
		name = "micronode"
	}
	return "sudo -u " + name + " micronode … --socket " + address
}

// foreignSocketError refuses a socket of another or of an unknown user.
func foreignSocketError(address string, uid uint32, cause error) error {
	err := fault.New(dialOp, fault.Forbidden, "the socket %s belongs to another user, %d", address, uid)
	if cause != nil {
		err.Detail = fmt.Sprintf("the owner of the socket %s cannot be determined", address)
	}
	err.Err = cause
	err.Next = "Nothing was sent. Use another socket with --socket NAME, on the node and here, or stop the process that holds it."
	if cause == nil && ownUID() == 0 { // root can become whom a service runs as
		err.Next += " If it is the node of a service, ask as its user: " + asUserOf(uid, address)
	}
	return err
}

// socketDialError classifies a failure to connect to the local socket.
func socketDialError(address, service string, cause error) error {
	err := &fault.Error{Op: dialOp, Err: cause}
	switch {
	case fault.IsErrno(cause, syscall.ECONNREFUSED), fault.IsErrno(cause, syscall.ENOENT):
		err.Kind, err.Detail = fault.NotReady, "no node is running on the socket "+address
		err.Next = "Start a node: micronode run. If it runs with --socket NAME, use the same option here."
		if uid, there := ownerOfFolder(filepath.Dir(service)); there && address != service {
			err.Next += " A service has a node, too: " + asUserOf(uid, service)
		}
	case fault.IsErrno(cause, syscall.EACCES):
		err.Kind, err.Detail = fault.Forbidden, "the socket "+address+" belongs to another user"
		err.Next = "Use another socket with --socket NAME, on the node and here."
		if uid, there := ownerOfFolder(filepath.Dir(address)); there {
			err.Next = "Ask as its user: " + asUserOf(uid, address) + ". Or become a member of the group that the node has as node.socket_group."
		}
	case fault.IsErrno(cause, syscall.EAGAIN):
		err.Kind, err.Detail = fault.Busy, "the node accepts connections too slowly on the socket "+address
	default:
		return cause
	}
	return err
}

// secret is the token. It is added to requests at the last moment, below
// everything that follows redirects, so that no copied header ever holds it.
type secret struct{ token string }

// hide removes the token from an untrusted text: a server may repeat the
// request.
func (s *secret) hide(text string) string {
	if s.token == "" {
		return text
	}
	return strings.ReplaceAll(text, s.token, "[token]")
}

// tokenTransport adds the token to requests for one origin.
type tokenTransport struct {
	// set at construction
	next   http.RoundTripper
	origin string
	secret *secret
}

// withToken must be called after the base is set.
func (c *Client) withToken(next http.RoundTripper) http.RoundTripper {
	if c.secret.token == "" {
		return next
	}
	base, _ := url.Parse(c.base) // it comes from a URL
	return &tokenTransport{next: next, origin: originOf(base), secret: c.secret}
}

// RoundTrip adds the token only to requests for its origin.
func (t *tokenTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if originOf(r.URL) == t.origin {
		r = r.Clone(r.Context()) // a round tripper must not change its request
		r.Header.Set("Authorization", "Bearer "+t.secret.token)
	}
	return t.next.RoundTrip(r)
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
// the call with the redirect as its answer. The policy of the caller's own
// HTTPClient is asked afterwards.
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
