package fill

import (
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"micronode/fault"
)

// Request is a client's request. It is not changed and not retained.
type Request struct {
	Host   string // of the origin: host or host:port
	Path   string // escaped, with the slash in front
	Query  string // without the question mark
	Method string // GET or HEAD
	Header http.Header

	// Admit is asked before this request makes the node contact an origin. Nil
	// admits.
	Admit func() error

	Client netip.Addr // who asks, for the share of the origin; invalid for nobody in particular
}

// target is where an object comes from, in the one form of its key.
type target struct {
	host  string // host or host:port, normal
	path  string // escaped, normal
	query string
}

// maxTargetBytes bounds a path and a query together. Origins refuse more.
const maxTargetBytes = 8 << 10

const opTarget = "edge.target"

// newTarget normalises a request, or says what is wrong with it.
func newTarget(host, path, query string) (target, error) {
	if len(path)+len(query) > maxTargetBytes {
		return target{}, badTarget("it is longer than %d bytes", maxTargetBytes)
	}
	host, err := normalHost(host)
	if err != nil {
		return target{}, fault.Wrap(opTarget, err)
	}
	path, err = normalPath(path)
	if err != nil {
		return target{}, err
	}
	for i := range len(query) {
		if c := query[i]; c <= ' ' || c >= 0x7f || c == '#' {
			return target{}, badTarget("the query has a byte that must be escaped")
		}
	}
	return target{host, path, query}, nil
}

// parseURL parses a whole URL, from the configuration or from an origin.
func parseURL(text string) (target, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return target{}, badTarget("it is not a URL")
	case u.Scheme != "https":
		return target{}, badTarget("it is not https")
	case u.User != nil:
		return target{}, badTarget("it names a user")
	case u.Opaque != "" || u.Host == "":
		return target{}, badTarget("it names no host")
	}
	path := u.EscapedPath()
	if path == "" {
		path = "/"
	}
	return newTarget(u.Host, path, u.RawQuery)
}

// normalPath unescapes what need not be escaped and rejects what some programs
// read as a step up, a separator or an end, and others do not.
func normalPath(path string) (string, error) {
	const hex = "0123456789ABCDEF"
	if !strings.HasPrefix(path, "/") {
		return "", badTarget("the path does not begin with a slash")
	}
	var b strings.Builder
	b.Grow(len(path))
	for i := 0; i < len(path); i++ {
		c, escaped := path[i], false
		if c == '%' {
			if i+2 >= len(path) || unhex(path[i+1]) < 0 || unhex(path[i+2]) < 0 {
				return "", badTarget("the path has an invalid percent escape")
			}
			c, escaped = byte(unhex(path[i+1])<<4|unhex(path[i+2])), true
			i += 2
		}
		switch {
		case c < ' ' || c == 0x7f:
			return "", badTarget("the path has a control character")
		case c == '\\':
			return "", badTarget("the path has a backslash")
		case c == '/' && escaped:
			return "", badTarget("the path has an escaped slash")
		case !escaped && (c == '?' || c == '#'):
			return "", badTarget("the path has a byte that ends it")
		case isUnreserved(c) || !escaped && strings.IndexByte("/!$&'()*+,;=:@", c) >= 0:
			b.WriteByte(c) // both forms mean the same, or it was plain and may be
		default:
			b.WriteByte('%')
			b.WriteByte(hex[c>>4])
			b.WriteByte(hex[c&15])
		}
	}
	for element := range strings.SplitSeq(b.String(), "/") {
		if element == "." || element == ".." {
			return "", badTarget("the path has a dot segment")
		}
	}
	return b.String(), nil
}

// isUnreserved reports whether a byte means the same escaped or not (RFC 3986,
// 2.3).
func isUnreserved(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '.' || c == '_' || c == '~'
}

func unhex(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c - 'a' + 10)
	case 'A' <= c && c <= 'F':
		return int(c - 'A' + 10)
	default:
		return -1
	}
}

func badTarget(format string, args ...any) error {
	return fault.New(opTarget, fault.Malformed, format, args...).Advise("Write the path as /edge/assets/host/path.")
}

// key is the cache key of the object.
func (t target) key() string {
	if t.query == "" {
		return "https://" + t.host + t.path
	}
	return "https://" + t.host + t.path + "?" + t.query
}

// redacted is the URL for logs and events. A query may contain a secret.
func (t target) redacted() string {
	if t.query == "" {
		return t.key()
	}
	return "https://" + t.host + t.path + "?…"
}

// url is the URL of the request to the origin.
func (t target) url() *url.URL {
	// The path was checked: it cannot fail to unescape.
	plain, _ := url.PathUnescape(t.path)
	return &url.URL{Scheme: "https", Host: t.host, Path: plain, RawPath: t.path, RawQuery: t.query}
}
