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

// The variables of the environment that FromEnvironment reads.
const (
	envURL   = "MICRO_URL"
	envToken = "MICRO_TOKEN"
)

const (
	defaultTimeout   = 30 * time.Second
	defaultUserAgent = "micronode-client"
)

// Options say which node to talk to, and how. The zero Options stand for the
// node of this user on this machine.
type Options struct {
	// URL is the address of a node, such as https://node.example:8080. Empty
	// means the local socket.
	URL string

	// Token is the capability that is sent to the node of URL, and to nobody
	// else. The local socket needs none. It is left out of JSON, and String
	// does not show it.
	Token string `json:"-"`

	// Socket names a local socket: a bare name is abstract, one with a slash is
	// a path. Empty means micronode-<uid>.
	Socket string

	// HTTPClient, if it is not nil, does the work for a URL: for a proxy, an
	// authority of one's own, a client certificate. It is copied, not changed.
	HTTPClient *http.Client `json:"-"`

	// UserAgent is how the program calls itself in the node's log.
	UserAgent string

	// Retry says how often a call is repeated. The zero Retry is the default.
	Retry Retry

	// Timeout is how long a small call may take with all its tries, and how
	// long a transfer may stand still. The deadline of a context shortens both.
	// Zero means 30 s.
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

// target is the place that the options name. A URL is shown only if it parses
// and has no password in it: people put secrets into the wrong place.
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

// Client talks to one node. It may be used by many goroutines at once.
type Client struct {
	// set at construction
	base  string // what all routes are appended to; it has no slash at its end
	where string // the node, as errors name it
	local bool   // over the local socket
	agent string
	retry Retry

	timeout time.Duration
	http    *http.Client
	secret  *secret // behind a pointer, so that printing a Client does not show it
	idle    func()  // closes idle connections that are ours
}

// New makes a client. It does not connect: the first call does.
func New(o Options) (*Client, error) {
	c := &Client{agent: o.UserAgent, timeout: o.Timeout, secret: &secret{strings.TrimSpace(o.Token)}, idle: func() {}}
	if c.agent == "" {
		c.agent = defaultUserAgent
	}
	if c.timeout == 0 {
		c.timeout = defaultTimeout
	}
	var err error
	if c.retry, err = o.Retry.settled(); err != nil {
		return nil, err
	}
	switch {
	case c.timeout < 0:
		return nil, wrong("Leave Timeout zero for 30 s.", "a Timeout of %s is in the past", c.timeout)
	case strings.ContainsFunc(c.agent, notInHeader):
		return nil, wrong("Use printable ASCII.", "the UserAgent has characters that no header can carry")
	case strings.ContainsFunc(c.secret.token, notInHeader) || strings.Contains(c.secret.token, " "):
		return nil, wrong("Use the token as `micronode token mint` printed it.", "the token has characters that no token has")
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
// capability in MICRO_TOKEN. Without MICRO_URL it is the local socket of this
// user, which needs no token, and none is sent.
func FromEnvironment() (*Client, error) {
	address := os.Getenv(envURL)
	if address == "" {
		return New(Options{})
	}
	return New(Options{URL: address, Token: os.Getenv(envToken)})
}

func (c *Client) useSocket(o Options) error {
	if o.HTTPClient != nil {
		return wrong("Set the URL too, or leave HTTPClient out.", "an HTTPClient has connections of its own and cannot use the local socket")
	}
	address := socketAddress(o.Socket)
	if err := checkSocket(address); err != nil {
		return err
	}
	transport := newTransport(socketDialer(address, uint32(os.Geteuid())))
	c.local, c.where, c.base, c.idle = true, "the socket "+address, "http://"+localHost, transport.CloseIdleConnections
	c.http = &http.Client{Transport: c.authorise(transport), CheckRedirect: c.redirect(nil)}
	return nil
}

func (c *Client) useURL(o Options) error {
	if o.Socket != "" {
		return wrong("Set one of the two.", "there is a URL and a Socket")
	}
	base, err := parseURL(o.URL)
	if err != nil {
		return err
	}
	c.base, c.where = strings.TrimSuffix(base.String(), "/"), base.Host
	if o.HTTPClient != nil {
		given := *o.HTTPClient
		if given.Transport == nil {
			given.Transport = http.DefaultTransport
		}
		given.Transport, given.CheckRedirect = c.authorise(given.Transport), c.redirect(given.CheckRedirect)
		c.http = &given
		return nil
	}
	if c.secret.token != "" && base.Scheme == "http" && !loopback(base.Hostname()) {
		return wrong("Write https://, or use a tunnel that ends on this machine.", "the token would travel to %s for all to read", base.Host)
	}
	dialer := &net.Dialer{Timeout: c.timeout}
	transport := newTransport(dialer.DialContext)
	transport.Proxy = http.ProxyFromEnvironment
	c.idle = transport.CloseIdleConnections
	c.http = &http.Client{Transport: c.authorise(transport), CheckRedirect: c.redirect(nil)}
	return nil
}

// parseURL reads the URL of a node. Its errors do not repeat it, because
// somebody may have put a password or a token there.
func parseURL(text string) (*url.URL, error) {
	const next = "Write it as https://node.example:8080."
	base, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, wrong(next, "the URL of the node does not parse")
	case base.Scheme != "http" && base.Scheme != "https":
		return nil, wrong(next, "the URL of the node does not begin with http:// or https://")
	case base.Hostname() == "":
		return nil, wrong(next, "the URL of the node has no host")
	case base.User != nil:
		return nil, wrong(next+" The token goes into MICRO_TOKEN.", "the URL of the node has a user in it")
	case base.RawQuery != "" || base.Fragment != "":
		return nil, wrong(next, "the URL of the node has a query or a fragment")
	}
	return base, nil
}

// loopback reports whether a host is this machine. Names below localhost are,
// by RFC 6761.
func loopback(host string) bool {
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.IsLoopback()
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}

// notInHeader reports what a header value must not hold.
func notInHeader(r rune) bool { return r < ' ' || r > '~' }

func wrong(next, format string, args ...any) *fault.Error {
	err := fault.New("client.new", fault.Malformed, format, args...)
	err.Next = next
	return err
}

// String says which node the client talks to.
func (c *Client) String() string { return "client of " + c.where }

// GoString is String: the fields of a client are nobody's business.
func (c *Client) GoString() string { return c.String() }

// Close gives idle connections back. The client can still be used, and
// transfers that are under way go on. Connections of an HTTPClient that came
// with the Options are left alone.
func (c *Client) Close() { c.idle() }
