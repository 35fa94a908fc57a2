package ingress

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"micronode/internal/config"
)

// A proxy in front of the node is one address with many clients. What it says of
// them counts only if the operator has listed its address: anybody can write
// these headers. A request that came through it is a stranger's, also where the
// proxy is on this machine: it has the rights of its capability and of
// http.public, and none that come with loopback.

// proxied is what a trusted proxy says of a request.
type proxied struct {
	client netip.Addr
	scheme string // empty if it does not say
	host   string // empty if it does not say
}

const (
	forwardedKey      = "Forwarded"
	forwardedForKey   = "X-Forwarded-For"
	forwardedProtoKey = "X-Forwarded-Proto"
	forwardedHostKey  = "X-Forwarded-Host"
)

// passedOnHeaders are what proxies add to a request.
var passedOnHeaders = []string{forwardedKey, forwardedForKey, "X-Real-Ip", "Via"}

// isPassedOn reports whether a request says that a proxy passed it on: its client
// is then not known to be on this machine. A client that sets such a header
// itself only loses rights.
func isPassedOn(header http.Header) bool {
	for _, name := range passedOnHeaders {
		if len(header[name]) > 0 {
			return true
		}
	}
	return false
}

// maxHops is how many proxies may be in a row.
const maxHops = 32

// A forwarded host goes into URLs and decides which site is shown, and caches in
// front of the node keep both. Most proxies pass X-Forwarded-Host on as the
// client wrote it. So it counts only if it is a host of this node, and only if
// the proxy did not pass on the Host that the client used.

// newKnownHosts are the hosts under which clients see the node, as the settings
// write them, and those of them that are names for nothing else.
func newKnownHosts(times HTTP) (known, ownNames map[string]bool) {
	known, ownNames = map[string]bool{}, map[string]bool{}
	for _, one := range times.Hosts {
		known[strings.ToLower(one)] = true
	}
	for _, one := range times.ACME.Domains {
		known[one], ownNames[one] = true, true
	}
	if at, err := url.Parse(times.PublicURL); err == nil && at.Host != "" {
		known[strings.ToLower(at.Host)], ownNames[hostname(at.Host)] = true, true
	}
	return known, ownNames
}

// believeHost drops the host that a trusted proxy says, unless it is one of this
// node. host is that of the request itself.
func (c *call) believeHost(host string) {
	said := c.proxied.host
	if said == "" {
		return
	}
	c.proxied.host = ""
	switch {
	case strings.EqualFold(said, host), c.policy.ownNames[hostname(host)], c.server.isSiteOfSettings(hostname(host)):
		return // the client's own Host has come through
	case c.policy.knownHosts[strings.ToLower(said)], c.server.isSiteOfSettings(hostname(said)):
		c.proxied.host = said
	default:
		c.server.noteUnknownHost(said, host)
	}
}

// isSiteOfSettings reports whether a host is that of a site and is in the
// settings. Those below localhost are any address and any name: whose page is
// shown there is for a browser on this machine to say.
func (s *Server) isSiteOfSettings(host string) bool {
	if s.sites == nil || strings.HasSuffix(host, ".localhost") {
		return false
	}
	_, ok := s.sites(host)
	return ok
}

// trusts reports whether the operator has listed an address as a proxy.
func (p *policy) trusts(ip netip.Addr) bool {
	for _, one := range p.proxies {
		if one.Contains(ip) {
			return true
		}
	}
	return false
}

// readForwarded reads what a trusted peer says of a request, and reports whether
// it says anything. X-Forwarded-For is what most proxies write, and Forwarded
// what RFC 7239 calls it. A proxy that writes one of them most often passes the
// other on as the client wrote it; so where both are there and differ, neither
// counts and the client is the proxy itself.
func (p *policy) readForwarded(header http.Header, peer netip.Addr) (proxied, bool) {
	informal, standard := header[forwardedForKey], header[forwardedKey]
	if len(informal) == 0 && len(standard) == 0 {
		return proxied{}, false
	}
	said := proxied{client: peer, scheme: parseScheme(lastElement(header[forwardedProtoKey])), host: parseHost(lastElement(header[forwardedHostKey]))}
	var hops []string
	for _, value := range informal {
		hops = append(hops, strings.Split(value, ",")...)
	}
	if len(informal) > 0 {
		said.client, _ = p.clientAmong(hops, peer)
	}
	if len(standard) > 0 {
		elements := parseForwarded(standard)
		hops = hops[:0]
		for _, element := range elements {
			hops = append(hops, element["for"])
		}
		client, at := p.clientAmong(hops, peer)
		switch {
		case len(informal) > 0 && client != said.client:
			said.client = peer
		case len(informal) == 0:
			said.client = client
			if at < len(elements) {
				said.scheme, said.host = parseScheme(elements[at]["proto"]), parseHost(elements[at]["host"])
			}
		}
	}
	return said, true
}

// clientAmong finds the client in the list of hops, which begins with the one
// farthest away: the last that is not a trusted proxy. What is written before
// it is only what the client says. It also returns where it is; behind the end
// if there is none.
func (p *policy) clientAmong(hops []string, peer netip.Addr) (client netip.Addr, at int) {
	client, at = peer, len(hops)
	for i := len(hops) - 1; i >= max(0, len(hops)-maxHops); i-- {
		ip, ok := parseHop(hops[i])
		if !ok {
			return client, at // unknown, or an obfuscated name: the proxy before it is all that is known
		}
		if client, at = ip, i; !p.trusts(ip) {
			break
		}
	}
	return client, at
}

// parseHop parses an address as proxies write it: with a port or without, and
// an IPv6 address with brackets or without.
func parseHop(text string) (netip.Addr, bool) {
	text = strings.TrimSpace(text)
	if host, _, err := net.SplitHostPort(text); err == nil {
		text = host
	}
	ip, err := netip.ParseAddr(strings.Trim(text, "[]"))
	return ip.Unmap().WithZone(""), err == nil
}

// parseForwarded parses the elements of Forwarded (RFC 7239), with the names of
// their parameters in lower case. What does not parse is left out.
func parseForwarded(values []string) (elements []map[string]string) {
	for element := range splitQuoted(strings.Join(values, ","), ',') {
		one := map[string]string{}
		for pair := range splitQuoted(element, ';') {
			name, value, _ := strings.Cut(pair, "=")
			value = strings.TrimSpace(value)
			if len(value) >= 2 && value[0] == '"' && value[len(value)-1] == '"' {
				value = strings.ReplaceAll(value[1:len(value)-1], `\`, "")
			}
			one[strings.ToLower(strings.TrimSpace(name))] = value
		}
		elements = append(elements, one)
	}
	return elements
}

// splitQuoted splits at a separator outside of quoted strings.
func splitQuoted(text string, separator byte) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		quoted, begin := false, 0
		for i := 0; i < len(text); i++ {
			switch {
			case quoted && text[i] == '\\':
				i++
			case text[i] == '"':
				quoted = !quoted
			case text[i] == separator && !quoted:
				if !yield(text[begin:i]) {
					return
				}
				begin = i + 1
			}
		}
		yield(text[begin:])
	}
}

// lastElement is the last element of a list in a header: what the nearest proxy
// has written.
func lastElement(values []string) string {
	if len(values) == 0 {
		return ""
	}
	last := values[len(values)-1]
	return strings.TrimSpace(last[strings.LastIndexByte(last, ',')+1:])
}

func parseScheme(text string) string {
	if text = strings.ToLower(text); text == "http" || text == "https" {
		return text
	}
	return ""
}

// parseHost returns a host with its port, or nothing if it is not one. It goes
// into URLs.
func parseHost(text string) string {
	if text == "" || len(text) > 255 || strings.ContainsFunc(text, func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("-._:[]", r))
	}) {
		return ""
	}
	if at, err := url.Parse("http://" + text); err != nil || at.Host != text {
		return ""
	}
	return text
}

// parseProxies parses addresses and networks.
func parseProxies(texts []string) ([]netip.Prefix, error) {
	var list []netip.Prefix
	for _, one := range texts {
		network, err := netip.ParsePrefix(one)
		if ip, alone := netip.ParseAddr(one); err != nil && alone == nil {
			ip = ip.Unmap().WithZone("")
			network, err = netip.PrefixFrom(ip, ip.BitLen()), nil
		}
		if err != nil {
			return nil, config.Invalid("trusted_proxies", "Write addresses and networks, like 127.0.0.1, 10.0.0.0/8 or 2001:db8::/32.", "%q is neither an address nor a network", one)
		}
		list = append(list, network.Masked())
	}
	return list, nil
}

// checkPublicURL returns what is wrong with the setting http.public_url.
func checkPublicURL(text string) error {
	if text == "" {
		return nil
	}
	at, err := url.Parse(text)
	if err != nil || at.Scheme != "http" && at.Scheme != "https" || at.Hostname() == "" || at.User != nil || at.RawQuery != "" || at.Fragment != "" || parseHost(at.Host) == "" {
		return config.Invalid("public_url", "Write it like https://maps.example.org, with a path if the proxy serves the node below one.", "%q is not the URL of a server", text)
	}
	return nil
}

// BaseHeader is how the gateway tells a part under which URL the client sees
// the node. It is believed if the sender is a part of the node.
const BaseHeader = "Micronode-Base"

// BaseURL is the URL under which the client of a request sees this node,
// without a slash at its end: as http.public_url says, or a trusted proxy, or
// the request itself. (On loopback the Host was checked before.)
func BaseURL(r *http.Request) string {
	c := callOf(r.Context())
	if c == nil {
		return requestBase(r)
	}
	if given := r.Header[BaseHeader]; len(given) == 1 && c.isFromPart(r) && checkPublicURL(given[0]) == nil {
		return given[0]
	}
	if c.policy.baseURL != "" {
		return c.policy.baseURL
	}
	base, host := requestBase(r), r.Host
	if c.proxied.host != "" {
		host = c.proxied.host
	}
	switch {
	case c.proxied.scheme != "":
		return c.proxied.scheme + "://" + host
	case host != r.Host:
		return strings.TrimSuffix(base, r.Host) + host
	default:
		return base
	}
}

// requestBase is what the request itself says.
func requestBase(r *http.Request) string {
	if r.TLS != nil {
		return "https://" + r.Host
	}
	return "http://" + r.Host
}

// Location is the value of Location for a path of this node. It has no scheme
// and no host: the client completes it with those that it used.
func Location(r *http.Request, path string) string {
	base, err := url.Parse(BaseURL(r))
	if err != nil {
		return path
	}
	return base.EscapedPath() + path
}
