package ingress

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"micronode/fault"
)

// A foreign page can make a browser on this machine send requests to a loopback
// listener: directly, which shows in Origin, or by a name that suddenly
// resolves to 127.0.0.1 (DNS rebinding), which shows in Host. So a loopback
// listener answers only to its own names.

// hostSet is the set of names that a listener answers to. A nil one answers to
// every name.
type hostSet struct {
	names map[string]bool // in lower case, without ports and brackets
	exact map[string]bool // as most clients write them: with our port, or without any
}

// newHostSet is the set for a listener. Only loopback needs one: elsewhere,
// access depends on certificates and tokens, which a browser does not send by
// itself.
func newHostSet(addr net.Addr, configured string, extra []string) *hostSet {
	h := &hostSet{names: map[string]bool{}, exact: map[string]bool{}}
	suffix := ":" + port(addr.String())
	for _, one := range append([]string{"localhost", "127.0.0.1", "::1", addr.String(), configured}, extra...) {
		name := hostname(one)
		if name == "" {
			continue
		}
		h.names[name] = true
		if strings.Contains(name, ":") {
			name = "[" + name + "]"
		}
		h.exact[name], h.exact[name+suffix] = true, true
	}
	return h
}

// hostname is the name in a Host value: without port and brackets, in lower
// case.
func hostname(hostport string) string {
	host := hostport
	if name, _, err := net.SplitHostPort(hostport); err == nil {
		host = name
	}
	return strings.ToLower(strings.Trim(host, "[]"))
}

// port is that of a Host value, or empty.
func port(hostport string) string {
	_, p, err := net.SplitHostPort(hostport)
	if err != nil {
		return ""
	}
	return p
}

// checkHost rejects a foreign Host, and a foreign Origin. A request through a
// proxy has the Host that its client wrote, and no more rights than a
// stranger's from elsewhere.
func (c *call) checkHost(r *http.Request) error {
	if c.site {
		return c.checkSiteOrigin(r)
	}
	h := c.listener.hosts
	if h == nil || c.forwarded {
		return nil
	}
	if !h.exact[r.Host] && !h.names[hostname(r.Host)] {
		c.server.reject("host")
		return fault.New("http.host", fault.RejectPolicy, "this listener does not serve that Host").
			Advise("Use localhost or the address of the listener. The operator can add the name to http.hosts.")
	}
	if origins := r.Header[originKey]; len(origins) > 0 && !(len(origins) == 1 && (h.isOwnOrigin(origins[0], r) || c.policy.cors.allows(origins[0], r.Method) || c.server.isPublicRead(r))) {
		c.server.reject("origin")
		return fault.New("http.host", fault.RejectPolicy, "requests from pages of another origin are refused").
			Advise("Serve the page from this node, or use a client that is not a browser. The operator can add the origin to http.cors.")
	}
	return nil
}

// isOwnOrigin reports whether an origin is the one that the request is sent to. Our
// names all stand for one machine, so they may differ; the port may not.
func (h *hostSet) isOwnOrigin(origin string, r *http.Request) bool {
	from, err := url.Parse(origin)
	if err != nil || from.Scheme != "http" && from.Scheme != "https" {
		return false
	}
	return h.names[strings.ToLower(from.Hostname())] && from.Port() == port(r.Host)
}

// isLoopback reports whether only this machine can reach an address.
func isLoopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

// ipOf is the IP of a connection's address, or the zero Addr.
func ipOf(addr net.Addr) netip.Addr {
	if tcp, ok := addr.(*net.TCPAddr); ok {
		return tcp.AddrPort().Addr().Unmap()
	}
	if addr == nil {
		return netip.Addr{}
	}
	parsed, err := netip.ParseAddrPort(addr.String())
	if err != nil {
		return netip.Addr{}
	}
	return parsed.Addr().Unmap()
}
