package fill

import (
	"net/http"
	"net/url"
	"strings"

	"micronode/fault"
)

// Request is what somebody wants. It is not changed and not kept.
type Request struct {
	Host   string // of the origin: host or host:port
	Path   string // escaped, with the slash in front
	Query  string // without the question mark
	Method string // GET or HEAD
	Header http.Header
}

// target is where an object comes from, in the one form that it is kept under.
type target struct {
	host  string // host or host:port, normal
	path  string // escaped, normal
	query string
}

// longest is what a path and a query may have together. Origins refuse more.
const longest = 8 << 10

const opTarget = "edge.target"

// newTarget brings a request into the form that it is kept under, or says what
// is wrong with it.
func newTarget(host, path, query string) (target, error) {
	if len(path)+len(query) > longest {
		return target{}, badTarget("it is longer than %d bytes", longest)
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

// parseURL reads a whole URL, such as an operator writes or an origin sends.
func parseURL(text string) (target, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return target{}, badTarget("it is no URL")
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

// normalPath unescapes what need not be escaped and refuses what one program
// takes for a step up, a separator or an end, and another one does not.
func normalPath(path string) (string, error) {
	if !strings.HasPrefix(path, "/") {
		return "", badTarget("the path does not begin with a slash")
	}
	var b strings.Builder
	b.Grow(len(path))
	for i := 0; i < len(path); i++ {
		c, escaped := path[i], false
		if c == '%' {
			if i+2 >= len(path) || unhex(path[i+1]) < 0 || unhex(path[i+2]) < 0 {
				return "", badTarget("the path has a percent sign that escapes nothing")
			}
			c, escaped = byte(unhex(path[i+1])<<4|unhex(path[i+2])), true
			i += 2
		}
		if why := forbiddenByte(c, escaped); why != "" {
			return "", badTarget("the path has %s", why)
		}
		appendByte(&b, c, escaped)
	}
	for element := range strings.SplitSeq(b.String(), "/") {
		if element == "." || element == ".." {
			return "", badTarget("the path has a dot segment")
		}
	}
	return b.String(), nil
}

// forbiddenByte says why a byte may not be in a path.
func forbiddenByte(c byte, escaped bool) string {
	switch {
	case c < ' ' || c == 0x7f:
		return "a control character"
	case c == '\\':
		return "a backslash"
	case c == '/' && escaped:
		return "an escaped slash"
	case !escaped && (c == '?' || c == '#'):
		return "a byte that ends it"
	default:
		return ""
	}
}

// appendByte writes a byte of a path: plain if both forms mean the same, or if
// it was plain and may be; escaped otherwise.
func appendByte(b *strings.Builder, c byte, escaped bool) {
	const hex = "0123456789ABCDEF"
	if unreserved(c) || !escaped && strings.IndexByte("/!$&'()*+,;=:@", c) >= 0 {
		b.WriteByte(c)
		return
	}
	b.WriteByte('%')
	b.WriteByte(hex[c>>4])
	b.WriteByte(hex[c&15])
}

// unreserved are the bytes that mean the same escaped or not (RFC 3986, 2.3).
func unreserved(c byte) bool {
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
	err := fault.New(opTarget, fault.Malformed, format, args...)
	err.Next = "Write the address of the object plainly: /edge/assets/host/path."
	return err
}

// key is what the object is kept under.
func (t target) key() string {
	if t.query == "" {
		return "https://" + t.host + t.path
	}
	return "https://" + t.host + t.path + "?" + t.query
}

// shown is the URL for logs and events. What is in a query may be a secret.
func (t target) shown() string {
	if t.query == "" {
		return t.key()
	}
	return "https://" + t.host + t.path + "?…"
}

// url is what the origin is asked for.
func (t target) url() *url.URL {
	// The path was checked: it cannot fail to unescape.
	plain, _ := url.PathUnescape(t.path)
	return &url.URL{Scheme: "https", Host: t.host, Path: plain, RawPath: t.path, RawQuery: t.query}
}
