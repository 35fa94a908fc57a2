package client

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"time"

	"micronode/fault"
)

// The environment variables that FromEnvironment reads.
const (
	envURL    = "MICRO_URL"
	envToken  = "MICRO_TOKEN"
	envSocket = "MICRO_SOCKET"
)

const (
	defaultTimeout   = 30 * time.Second
	defaultUserAgent = "micronode-client"
)

// Options name the node and configure the client. The zero Options name the
// node of this user on this machine.
type Options struct {
	// URL is the address of a node, such as https://node.example:8080. Empty
	// means the local socket.
	URL string

	// Token is the capability that is sent only to the node of URL. The local
	// socket needs none. It is left out of JSON, and String does not show it.
	Token string `json:"-"`

	// Socket names a local socket: a bare name is abstract, one with a slash is
	// a path. Empty means micronode-<uid>.
	Socket string

	// HTTPClient, if it is not nil, makes the requests to a URL: for a proxy,
	// a private certificate authority, a client certificate. It is copied, not
	// changed.
	HTTPClient *http.Client `json:"-"`

	// UserAgent identifies the program in the node's log.
	UserAgent string

	// Retry configures how calls are repeated. The zero Retry is the default.
	Retry Retry

	// Timeout bounds a small call with all its tries, and how long a transfer
	// may stall. The deadline of a context shortens both. Zero means 30 s.
	Timeout time.Duration
}

// String describes the options without the token.
func (o Options) String() string {
	token := "no token"
	if o.Token != "" {
		token = "a token"
	}
	return fmt.Sprintf("client options for %s with %s", o.target(), token)
}

// GoString is String, because %#v would show the token.
func (o Options) GoString() string { return o.String() }

// target is the URL or socket that the options name. A URL is shown only if it
// parses and has no password in it: people put secrets into the wrong option.
func (o Options) target() string {
	if o.URL == "" {
		return "the socket " + socketAddress(o.Socket)
	}
	base, err := parseURL(o.URL)
	if err != nil {
		return "a URL that cannot be used"
	}
	return base.String()
}

// Client talks to one node. It is safe for concurrent use.
type Client struct {
	// set at construction
	base      string // prefix of all routes, without a slash at its end
	nodeLabel string // the node, as errors name it
	local     bool   // over the local socket
	userAgent string
	retry     Retry

	timeout   time.Duration
	http      *http.Client
	secret    *secret // behind a pointer, so that printing a Client does not show it
	closeIdle func()  // closes idle connections that the client owns
}

// New makes a client. It does not connect: the first call does.
func New(o Options) (*Client, error) {
	c := &Client{userAgent: o.UserAgent, timeout: o.Timeout, secret: &secret{strings.TrimSpace(o.Token)}, closeIdle: func() {}}
	if c.userAgent == "" {
		c.userAgent = defaultUserAgent
	}
	if c.timeout == 0 {
		c.timeout = defaultTimeout
	}
	var err error
	if c.retry, err = o.Retry.withDefaults(); err != nil {
		return nil, err
	}
	switch {
	case c.timeout < 0:
		return nil, optionError("Leave Timeout zero for 30 s.", "a Timeout of %s is in the past", c.timeout)
	case strings.ContainsFunc(c.userAgent, isInvalidHeaderRune):
		return nil, optionError("Use printable ASCII.", "the UserAgent has characters that no header can carry")
	case strings.ContainsFunc(c.secret.token, isInvalidHeaderRune) || strings.Contains(c.secret.token, " "):
		return nil, optionError("Use the token as `micronode token mint` printed it.", "the token has characters that no token has")
	case o.URL == "":
		err = c.useSocket(o)
	default:
		err = c.useURL(o)
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

// FromEnvironment makes a client of the node that MICRO_URL names, with the
// capability in MICRO_TOKEN. Without MICRO_URL it uses the local socket that
// MICRO_SOCKET names, or else that of this user, which needs no token, and sends
// none. A URL and a socket would be two nodes, which is refused.
func FromEnvironment() (*Client, error) {
	address, socket := os.Getenv(envURL), os.Getenv(envSocket)
	switch {
	case address == "":
		return New(Options{Socket: socket})
	case socket != "":
		return nil, optionError("Unset one of them.", "%s and %s name two nodes", envSocket, envURL)
	}
	return New(Options{URL: address, Token: os.Getenv(envToken)})
}

func (c *Client) useSocket(o Options) error {
	if o.HTTPClient != nil {
		return optionError("Set the URL too, or leave HTTPClient out.", "an HTTPClient has connections of its own and cannot use the local socket")
	}
	address := socketAddress(o.Socket)
	if err := checkSocket(address); err != nil {
		return err
	}
	transport := newTransport(socketDialer(address, ownUID()))
	c.local, c.nodeLabel, c.base, c.closeIdle = true, "the socket "+address, "http://"+localHost, transport.CloseIdleConnections
	c.http = &http.Client{Transport: c.withToken(transport), CheckRedirect: c.redirect(nil)}
	return nil
}

func (c *Client) useURL(o Options) error {
	if o.Socket != "" {
		return optionError("Set one of the two.", "there is a URL and a Socket")
	}
	base, err := parseURL(o.URL)
	if err != nil {
		return err
	}
	c.base, c.nodeLabel = strings.TrimSuffix(base.String(), "/"), base.Host
	if o.HTTPClient != nil {
		given := *o.HTTPClient
		if given.Transport == nil {
			given.Transport = http.DefaultTransport
		}
		given.Transport, given.CheckRedirect = c.withToken(given.Transport), c.redirect(given.CheckRedirect)
		c.http = &given
		return nil
	}
	if c.secret.token != "" && base.Scheme == "http" && !isLoopback(base.Hostname()) {
		return optionError("Write https://, or use a tunnel that ends on this machine.", "the token would be sent to %s in the clear", base.Host)
	}
	dialer := &net.Dialer{Timeout: c.timeout}
	transport := newTransport(dialer.DialContext)
	transport.Proxy = http.ProxyFromEnvironment
	c.closeIdle = transport.CloseIdleConnections
	c.http = &http.Client{Transport: c.withToken(transport), CheckRedirect: c.redirect(nil)}
	return nil
}

// parseURL reads the URL of a node. Its errors do not repeat it, because it
// may contain a password or a token.
func parseURL(text string) (*url.URL, error) {
	const next = "Write it as https://node.example:8080."
	base, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, optionError(next, "the URL of the node does not parse")
	case base.Scheme != "http" && base.Scheme != "https":
		return nil, optionError(next, "the URL of the node does not begin with http:// or https://")
	case base.Hostname() == "":
		return nil, optionError(next, "the URL of the node has no host")
	case base.User != nil:
		return nil, optionError(next+" The token goes into MICRO_TOKEN.", "the URL of the node has a user in it")
	case base.RawQuery != "" || base.Fragment != "":
		return nil, optionError(next, "the URL of the node has a query or a fragment")
	}
	return base, nil
}

// isLoopback reports whether a host is this machine. Names below localhost are,
// by RFC 6761.
func isLoopback(host string) bool {
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.IsLoopback()
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}

// isInvalidHeaderRune reports whether a header value must not hold the rune.
func isInvalidHeaderRune(r rune) bool { return r < ' ' || r > '~' }

func optionError(next, format string, args ...any) *fault.Error {
	return fault.New("client.new", fault.Malformed, format, args...).Advise(next)
}

// String names the node that the client talks to.
func (c *Client) String() string { return "client of " + c.nodeLabel }

// GoString is String, because %#v would show the fields.
func (c *Client) GoString() string { return c.String() }

// Close closes idle connections. The client can still be used, and transfers
// that are under way continue. Connections of an HTTPClient from the Options
// are not closed.
func (c *Client) Close() { c.closeIdle() }
