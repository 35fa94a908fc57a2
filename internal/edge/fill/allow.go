package fill

import (
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/net/idna"

	"micronode/fault"
)

// AllowList is the origins that may be fetched from. It is read-only once it is
// made.
type AllowList struct {
	exact     map[string]bool // host, or host:port where the port is not 443
	wildcards map[string]bool // the same, without the "*." in front
}

// ParseAllow parses the list: host, host:port, or *.domain for every host below
// a domain, but not the domain itself. IP addresses are allowed only as
// literals, one by one.
func ParseAllow(entries []string) (*AllowList, error) {
	list := &AllowList{exact: map[string]bool{}, wildcards: map[string]bool{}}
	for _, entry := range entries {
		name, wild := strings.CutPrefix(entry, "*.")
		host, err := normalHost(name)
		if err == nil && wild && isAddress(host) {
			err = fault.New("edge.allow", fault.Malformed, "an IP address has no subdomains")
		}
		if err != nil {
			return nil, fault.New("edge.allow", fault.Malformed, "%q: %s", entry, fault.DetailOf(err))
		}
		if wild {
			list.wildcards[host] = true
		} else {
			list.exact[host] = true
		}
	}
	return list, nil
}

// Allows reports whether an origin may be fetched from. The host may be any
// text; an invalid one is not allowed.
func (a *AllowList) Allows(host string) bool {
	normal, err := normalHost(host)
	return err == nil && a.allows(normal)
}

// allows looks up a normalised host.
func (a *AllowList) allows(host string) bool {
	if a.exact[host] {
		return true
	}
	if len(a.wildcards) == 0 || isAddress(host) {
		return false
	}
	for {
		_, rest, more := strings.Cut(host, ".")
		if !more {
			return false
		}
		if a.wildcards[rest] {
			return true
		}
		host = rest
	}
}

// idnaProfile normalises names as a browser would before a lookup.
var idnaProfile = idna.New(idna.MapForLookup(), idna.BidiRule(), idna.StrictDomainName(true), idna.Transitional(false))

// normalHost brings host or host:port into the one form in which it is
// compared, stored and requested: lower case, punycode, no dot at the end, no
// port where it is 443. Anything else is rejected.
func normalHost(text string) (string, error) {
	const op = "edge.host"
	name, port, err := splitPort(text)
	if err != nil {
		return "", err
	}
	if literal, err := netip.ParseAddr(strings.Trim(name, "[]")); err == nil {
		if literal.Zone() != "" || strings.HasPrefix(name, "[") != literal.Is6() {
			return "", fault.New(op, fault.Malformed, "an address is written as 192.0.2.1 or [2001:db8::1]")
		}
		literal = literal.Unmap() // one address must not have two names
		if literal.Is6() {
			return "[" + literal.String() + "]" + port, nil
		}
		return literal.String() + port, nil
	}
	ascii, err := idnaProfile.ToASCII(strings.TrimSuffix(name, "."))
	if again, wrong := idnaProfile.ToASCII(ascii); wrong != nil || again != ascii {
		err = fault.Malformed // normalisation must be idempotent
	}
	if err != nil || ascii == "" || len(ascii) > 253 || strings.HasSuffix(ascii, ".") || looksNumeric(ascii) {
		return "", fault.New(op, fault.Malformed, "that is not a host name")
	}
	for label := range strings.SplitSeq(ascii, ".") {
		if label == "" || len(label) > 63 {
			return "", fault.New(op, fault.Malformed, "that is not a host name")
		}
	}
	return ascii + port, nil
}

// splitPort splits off the port and returns it as it is stored: with its colon,
// or empty.
func splitPort(text string) (name, port string, err error) {
	const op = "edge.host"
	name = text
	if at := strings.LastIndexByte(text, ':'); at >= 0 && !strings.HasSuffix(text, "]") {
		name, port = text[:at], text[at+1:]
		number, err := strconv.ParseUint(port, 10, 16)
		if err != nil || number == 0 || port[0] == '+' || strings.ContainsRune(name, ':') && !strings.HasPrefix(name, "[") {
			return "", "", fault.New(op, fault.Malformed, "after the colon there must be a port")
		}
		port = ":" + strconv.FormatUint(number, 10)
		if number == 443 {
			port = ""
		}
	}
	if strings.HasPrefix(name, "[") != strings.HasSuffix(name, "]") || strings.HasPrefix(name, "[") && !strings.ContainsRune(name, ':') {
		return "", "", fault.New(op, fault.Malformed, "brackets are for IPv6 addresses")
	}
	return name, port, nil
}

// looksNumeric finds names that some resolvers take for an address although
// they are not written as one: 127.1, 0x7f.1, 2130706433. As in a browser's
// URL, the last label decides.
func looksNumeric(host string) bool {
	last := host[strings.LastIndexByte(host, '.')+1:]
	if strings.HasPrefix(last, "0x") {
		return true
	}
	return strings.Trim(last, "0123456789") == ""
}

// isAddress tells an IP address from a name, both in normal form.
func isAddress(host string) bool {
	if strings.HasPrefix(host, "[") {
		return true
	}
	name, _, _ := strings.Cut(host, ":")
	_, err := netip.ParseAddr(name)
	return err == nil
}
