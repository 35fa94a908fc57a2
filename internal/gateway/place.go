package gateway

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"micronode/fault"
	"micronode/internal/capability"
	"micronode/internal/config"
)

// Place is where a part runs: at a URL, or behind a local socket of the same
// user.
type Place struct {
	text   string
	base   *url.URL
	socket string // empty if it is a URL
}

const howToWrite = "Write https://HOST:PORT, http://127.0.0.1:PORT on this machine, or a local socket: @micronode-1000.index, or a path with a slash."

// ParsePlace reads a place as people write it. Without TLS, capabilities could be
// read on the way, so that must not leave the machine.
func ParsePlace(text string) (Place, error) {
	if !strings.Contains(text, "://") {
		return parseSocket(text)
	}
	base, err := url.Parse(text)
	if err != nil {
		return Place{}, noPlace("the URL does not parse") // it is not repeated: it may hold a password
	}
	switch {
	case base.Scheme != "http" && base.Scheme != "https":
		return Place{}, noPlace("%s:// is no way to reach a part", base.Scheme)
	case base.Hostname() == "":
		return Place{}, noPlace("the URL has no host")
	case base.User != nil:
		return Place{}, noPlace("there is a user in the URL; parts know each other by auth.root")
	case strings.Trim(base.Path, "/") != "" || base.RawQuery != "" || base.Fragment != "":
		return Place{}, noPlace("the URL has more than a host and a port")
	case base.Scheme == "http" && !config.OnThisMachine(base.Hostname()):
		return Place{}, noPlace("%s is not this machine, and without TLS anybody on the way could read the capabilities", base.Host)
	}
	base.Path = ""
	return Place{text: base.String(), base: base}, nil
}

// parseSocket reads the name of a local socket.
func parseSocket(text string) (Place, error) {
	const most = 107 // what the kernel has room for
	bare := strings.TrimPrefix(text, "@")
	switch {
	case bare == "":
		return Place{}, noPlace("it is empty")
	case !strings.Contains(bare, "/") && bare == text:
		return Place{}, noPlace("%q is neither a URL nor a socket", text)
	case strings.Contains(bare, "/") && bare != text:
		return Place{}, noPlace("it has an @ and a slash; a socket is either abstract or a path")
	case len(bare) > most || strings.ContainsRune(bare, 0):
		return Place{}, noPlace("the kernel has no room for a socket of that name")
	}
	return Place{text: text, socket: text, base: &url.URL{Scheme: "http", Host: "localhost"}}, nil
}

func noPlace(format string, args ...any) error {
	err := fault.New("gateway.place", fault.Malformed, format, args...)
	err.Next = howToWrite
	return err
}

// String is the place as it was written.
func (p Place) String() string { return p.text }

// Socket is the name of the local socket, or empty.
func (p Place) Socket() string { return p.socket }

// URL is the base of all URLs there. Behind a socket, its host means nothing.
func (p Place) URL() string { return p.base.String() }

// The bounds of connections to a part.
const (
	dialTime  = 2 * time.Second
	idleTime  = 30 * time.Second // less than the 60 s of a part, so that it is rarely the part that closes as a request goes out
	idleConns = 64
)

// Transport makes connections to the place, at most so many at a time. A socket
// must belong to this process's own user. Nothing is compressed or inflated on
// the way: bytes pass as they are.
func (p Place) Transport(most int) *http.Transport {
	dialer := &net.Dialer{Timeout: dialTime, KeepAlive: time.Minute}
	dial := dialer.DialContext
	if p.socket != "" {
		dial = func(ctx context.Context, _, _ string) (net.Conn, error) { return capability.DialLocal(ctx, p.socket) }
	}
	return &http.Transport{
		DialContext: dial, DisableCompression: true, MaxConnsPerHost: most, MaxIdleConns: idleConns, MaxIdleConnsPerHost: idleConns,
		IdleConnTimeout: idleTime, TLSHandshakeTimeout: dialTime, ExpectContinueTimeout: time.Second, MaxResponseHeaderBytes: 64 << 10,
	}
}
