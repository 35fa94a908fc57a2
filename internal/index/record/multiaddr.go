package record

import (
	"cmp"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// AddrKind is the kind of an address of a provider.
type AddrKind string

const (
	Overlay AddrKind = "overlay" // host:port, OAP/1 over TLS
	HTTP    AddrKind = "http"    // a base URL: http://host:port or https://host:port
	Other   AddrKind = "other"   // not usable by this node; the value is the multiaddr itself
)

// MaxAddr is the maximum length of a multiaddr, in bytes.
const MaxAddr = 512

// ParseMultiaddr parses the multiaddrs that this node can use:
//
//	/ip4|ip6|dns|dns4|dns6/<host>/tcp/<port>/tls         an overlay listener: host:port
//	/…/tcp/<port>/http                                   a gateway: http://host:port
//	/…/tcp/<port>/tls/http, /…/tcp/<port>/https          a gateway: https://host:port
//
// A /p2p/<id> at the end is ignored: the connection will show the ID. Every
// other multiaddr is Other; a text that is not a multiaddr is Other with no
// value.
func ParseMultiaddr(text string) (AddrKind, string) {
	if len(text) > MaxAddr || !strings.HasPrefix(text, "/") || !IsVisibleASCII(text) {
		return Other, ""
	}
	words := strings.Split(text[1:], "/")
	if n := len(words); n > 2 && words[n-2] == "p2p" && words[n-1] != "" {
		words = words[:n-2]
	}
	if len(words) < 5 || words[2] != "tcp" {
		return Other, text
	}
	host, ok := parseHost(words[0], words[1])
	port, numbered := parsePort(words[3])
	if !ok || !numbered {
		return Other, text
	}
	switch at := net.JoinHostPort(host, port); strings.Join(words[4:], "/") {
	case "tls":
		return Overlay, at
	case "http":
		return HTTP, "http://" + at
	case "tls/http", "https":
		return HTTP, "https://" + at
	}
	return Other, text
}

// FormatOverlay is the multiaddr of an overlay listener. It is false if
// hostport is not a reachable host and a port.
func FormatOverlay(hostport string) (string, bool) {
	return format(hostport, "/tls")
}

// FormatHTTP is the multiaddr of a gateway. A multiaddr cannot have a path, so
// it is false for a URL with one, as for anything that is not a gateway's URL.
func FormatHTTP(base string) (string, bool) {
	u, err := url.Parse(base)
	if err != nil || u.User != nil || u.RawQuery != "" || u.Fragment != "" || strings.Trim(u.Path, "/") != "" {
		return "", false
	}
	switch u.Scheme {
	case "http":
		return format(net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "80")), "/http")
	case "https":
		return format(net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "443")), "/tls/http")
	}
	return "", false
}

// AddMultiaddr adds a multiaddr to the addresses of the provider by its kind,
// unless it is present or invalid.
func (p *Provider) AddMultiaddr(multiaddr string) {
	reach, value := ParseMultiaddr(multiaddr)
	if value == "" {
		return
	}
	list := map[AddrKind]*[]string{Overlay: &p.Overlay, HTTP: &p.HTTP, Other: &p.Other}[reach]
	if !slices.Contains(*list, value) {
		*list = append(*list, value)
	}
}

// Multiaddrs are all addresses of the provider as multiaddrs. One that cannot
// be converted is left out.
func (p *Provider) Multiaddrs() []string {
	var all []string
	for _, at := range p.Overlay {
		if text, ok := FormatOverlay(at); ok {
			all = append(all, text)
		}
	}
	for _, at := range p.HTTP {
		if text, ok := FormatHTTP(at); ok {
			all = append(all, text)
		}
	}
	return append(all, p.Other...)
}

// format formats a multiaddr with the given end.
func format(hostport, end string) (string, bool) {
	host, port, err := net.SplitHostPort(hostport)
	if err != nil {
		return "", false
	}
	kind := "dns"
	if ip, err := netip.ParseAddr(host); err == nil {
		host = ip.Unmap().String()
		kind = "ip4"
		if ip.Unmap().Is6() {
			kind = "ip6"
		}
	}
	host, known := parseHost(kind, host)
	port, numbered := parsePort(port)
	if !known || !numbered {
		return "", false
	}
	return "/" + kind + "/" + host + "/tcp/" + port + end, true
}

// parseHost checks a host of the given kind, and returns its canonical
// spelling. An IPv4-mapped IPv6 address becomes an IPv4 address, so that the
// policy for dialling sees what it is.
func parseHost(kind, text string) (string, bool) {
	switch kind {
	case "ip4", "ip6":
		ip, err := netip.ParseAddr(text)
		if err != nil || ip.Zone() != "" || ip.Is4() != (kind == "ip4") {
			return "", false
		}
		return ip.Unmap().String(), true
	case "dns", "dns4", "dns6":
		host := strings.ToLower(text)
		return host, isHost(host)
	}
	return "", false
}

// isHost reports whether a text is a DNS name, and not an IP address in another
// spelling: no top-level domain begins with a digit, but the numbers that some
// resolvers take for addresses do (127.1, 0x7f000001).
func isHost(host string) bool {
	if len(host) > 253 {
		return false
	}
	labels := strings.Split(host, ".")
	for _, label := range labels {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' || strings.ContainsFunc(label, isNotLabelRune) {
			return false
		}
	}
	top := labels[len(labels)-1]
	return top[0] < '0' || top[0] > '9'
}

func isNotLabelRune(r rune) bool {
	return r != '-' && r != '_' && (r < 'a' || r > 'z') && (r < '0' || r > '9')
}

// parsePort accepts a port in its canonical spelling.
func parsePort(text string) (string, bool) {
	n, err := strconv.ParseUint(text, 10, 16)
	return text, err == nil && n > 0 && strconv.FormatUint(n, 10) == text
}

// IsVisibleASCII reports whether a text has only visible ASCII characters, and
// no white space. Untrusted IDs and addresses are passed on to others.
func IsVisibleASCII(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' })
}
