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

// Reach is by which way of ours an address leads to a provider.
type Reach string

const (
	Overlay Reach = "overlay" // host:port, spoken to in OAP/1 over TLS
	HTTP    Reach = "http"    // a base URL: http://host:port or https://host:port
	Other   Reach = "other"   // none of our ways; the value is the multiaddr as it came
)

// MaxAddr is how many bytes of a multiaddr are looked at.
const MaxAddr = 512

// ParseMultiaddr reads the multiaddrs that lead anywhere for us:
//
//	/ip4|ip6|dns|dns4|dns6/<host>/tcp/<port>/tls         an overlay listener: host:port
//	/…/tcp/<port>/http                                   a gateway: http://host:port
//	/…/tcp/<port>/tls/http, /…/tcp/<port>/https          a gateway: https://host:port
//
// A /p2p/<id> at the end is passed over: who is there will be seen. Every other
// multiaddr is Other; what is no multiaddr at all is Other with no value.
func ParseMultiaddr(text string) (Reach, string) {
	if len(text) > MaxAddr || !strings.HasPrefix(text, "/") || strings.ContainsFunc(text, notPlain) {
		return Other, ""
	}
	words := strings.Split(text[1:], "/")
	if n := len(words); n > 2 && words[n-2] == "p2p" && words[n-1] != "" {
		words = words[:n-2]
	}
	if len(words) < 5 || words[2] != "tcp" {
		return Other, text
	}
	host, ok := readHost(words[0], words[1])
	port, numbered := readPort(words[3])
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
// hostport is not a host that can be reached and a port.
func FormatOverlay(hostport string) (string, bool) {
	return format(hostport, "/tls")
}

// FormatHTTP is the multiaddr of a gateway. A multiaddr has no place for a path,
// so it is false for a URL with one, as for all that is no URL of a gateway.
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

// Take sorts a multiaddr into the addresses of the provider, unless it has it
// or it is none.
func (p *Provider) Take(multiaddr string) {
	reach, value := ParseMultiaddr(multiaddr)
	if value == "" {
		return
	}
	list := map[Reach]*[]string{Overlay: &p.Overlay, HTTP: &p.HTTP, Other: &p.Other}[reach]
	if !slices.Contains(*list, value) {
		*list = append(*list, value)
	}
}

// Multiaddrs are all addresses of the provider, in the form that other networks
// read. One that cannot be written so is left out.
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

// format writes a multiaddr that ends as the way of reaching it wants.
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
	host, known := readHost(kind, host)
	port, numbered := readPort(port)
	if !known || !numbered {
		return "", false
	}
	return "/" + kind + "/" + host + "/tcp/" + port + end, true
}

// readHost checks a host of the kind that the multiaddr says, and gives it its
// one spelling. An IPv4 address in the clothes of an IPv6 one is an IPv4
// address: who decides which addresses may be dialled must see what it is.
func readHost(kind, text string) (string, bool) {
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

// isHost tells whether a text is a name of the DNS, and not an IP address by
// another spelling: no top-level domain begins with a digit, but the numbers
// that some resolvers take for addresses do (127.1, 0x7f000001).
func isHost(host string) bool {
	if len(host) > 253 {
		return false
	}
	labels := strings.Split(host, ".")
	for _, label := range labels {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' || strings.ContainsFunc(label, notInLabel) {
			return false
		}
	}
	top := labels[len(labels)-1]
	return top[0] < '0' || top[0] > '9'
}

func notInLabel(r rune) bool {
	return r != '-' && r != '_' && (r < 'a' || r > 'z') && (r < '0' || r > '9')
}

// readPort takes a port in its one spelling.
func readPort(text string) (string, bool) {
	n, err := strconv.ParseUint(text, 10, 16)
	return text, err == nil && n > 0 && strconv.FormatUint(n, 10) == text
}

// notPlain finds what no multiaddr has: text of strangers goes on to others.
func notPlain(r rune) bool { return r <= ' ' || r > '~' }
