package netguard

import (
	"context"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"syscall"

	"code.dny.dev/ssrf"

	"micronode/fault"
)

const op = "dial"

// DialPolicy says which addresses may be dialled beside public ones.
type DialPolicy struct {
	Loopback bool // those of this machine
	Private  bool // those of a private network, and of carriers (RFC 6598)
	Any      bool // all but the forbidden ones: for what the operator named
}

// AllowAny is for addresses that the operator has named.
var AllowAny = DialPolicy{Loopback: true, Private: true, Any: true}

// forbidden are the networks that are never dialled, whatever the operator has
// set. Beside the link-local ones, these are where clouds give credentials to
// any request from within, and addresses that stand for no host at all.
var forbidden = prefixes(
	"0.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "240.0.0.0/4",
	"::/128", "fe80::/10", "ff00::/8",
	"100.100.100.200/32", // Alibaba Cloud
	"168.63.129.16/32",   // Azure
	"192.0.0.192/32",     // Oracle Cloud
	"fd00:ec2::/32",      // AWS
	"fd20:ce::/32",       // Google Cloud
	"fd00:42::42/128",    // Scaleway
)

// private are the networks that are not part of the public Internet.
var private = prefixes("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7")

var public = ssrf.New(ssrf.WithAnyPort())

func prefixes(texts ...string) (list []netip.Prefix) {
	for _, text := range texts {
		list = append(list, netip.MustParsePrefix(text))
	}
	return list
}

func containsAny(list []netip.Prefix, addr netip.Addr) bool {
	for _, one := range list {
		if one.Contains(addr) {
			return true
		}
	}
	return false
}

// Check refuses an address that must not be dialled, and says why.
func (d DialPolicy) Check(addr netip.Addr) error {
	addr = addr.Unmap().WithZone("")
	hidden, hides := embeddedIPv4(addr)
	switch {
	case !addr.IsValid() || containsAny(forbidden, addr) || hides && containsAny(forbidden, hidden):
		return refusal(addr, "this address is never dialled; no setting allows it", "Name another address.")
	case d.Any:
		return nil
	case hides:
		return refusal(addr, "it stands for an address of another family", "Name that address itself.")
	case addr.IsLoopback():
		return allowIf(d.Loopback, addr, "a loopback")
	case containsAny(private, addr):
		return allowIf(d.Private, addr, "a private")
	}
	if err := public.SafeAddr(addr); err != nil {
		return refusal(addr, "it is not a public address", "Name a public address.")
	}
	return nil
}

func allowIf(allowed bool, addr netip.Addr, sort string) error {
	if allowed {
		return nil
	}
	return refusal(addr, "it is "+sort+" address, and addresses from other nodes may not point there", "To allow it, the operator sets allow_private in the section of the part that dials.")
}

// refusal is the error of an address that is not dialled.
func refusal(addr netip.Addr, why, next string) error {
	return &fault.Error{Op: op, Kind: fault.RejectPolicy, Err: ssrf.ErrProhibitedIP, Detail: addr.String() + " is not dialled: " + why, Next: next}
}

// CheckIP is Check for a net.IP.
func (d DialPolicy) CheckIP(ip net.IP) error {
	addr, _ := netip.AddrFromSlice(ip) // an invalid one is refused
	return d.Check(addr)
}

// AllowsHost reports whether a host that a stranger named is worth keeping. A
// name is: the address that it resolves to is checked when it is dialled. Only
// names that are local by definition are refused.
func (d DialPolicy) AllowsHost(host string) bool {
	addr, err := netip.ParseAddr(host)
	if err != nil {
		local := host == "localhost" || strings.HasSuffix(host, ".localhost")
		return host != "" && (!local || d.Loopback)
	}
	addr = addr.Unmap().WithZone("")
	hidden, hides := embeddedIPv4(addr)
	switch {
	case containsAny(forbidden, addr) || hides && containsAny(forbidden, hidden):
		return false
	case hides:
		return d.Any
	case addr.IsLoopback():
		return d.Loopback
	case containsAny(private, addr):
		return d.Private
	default:
		return addr.IsGlobalUnicast()
	}
}

// embeddedIPv4 finds the IPv4 address that is embedded in an IPv6 address: a
// gateway on the way may unwrap it and deliver there.
func embeddedIPv4(addr netip.Addr) (netip.Addr, bool) {
	if !addr.Is6() || addr.IsLoopback() || addr.IsUnspecified() {
		return netip.Addr{}, false
	}
	b := addr.As16()
	last := netip.AddrFrom4([4]byte(b[12:]))
	switch {
	case containsAny(embeddedInLastFour, addr): // compatible, translated, NAT64
		return last, true
	case localNAT64.Contains(addr):
		return netip.AddrFrom4([4]byte{b[6], b[7], b[9], b[10]}), true
	case sixToFour.Contains(addr):
		return netip.AddrFrom4([4]byte(b[2:6])), true
	case teredo.Contains(addr):
		return netip.AddrFrom4([4]byte{^b[12], ^b[13], ^b[14], ^b[15]}), true
	case b[8]&^2 == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe: // ISATAP
		return last, true
	}
	return netip.Addr{}, false
}

var (
	embeddedInLastFour = prefixes("::/96", "::ffff:0:0:0/96", "64:ff9b::/96")
	localNAT64         = netip.MustParsePrefix("64:ff9b:1::/48")
	sixToFour          = netip.MustParsePrefix("2002::/16")
	teredo             = netip.MustParsePrefix("2001::/32")
)

// Control is for the field of that name of a net.Dialer. It checks the address
// that is really dialled, so a name cannot resolve to another one afterwards.
func Control(policy func() DialPolicy) func(network, address string, c syscall.RawConn) error {
	return func(_, address string, _ syscall.RawConn) error { return policy().checkDial(address) }
}

// ControlContext is the same with a hook: decide is called before each
// connection, with the error if the policy refuses the address.
func ControlContext(policy func() DialPolicy, decide func(ctx context.Context, refused error) error) func(ctx context.Context, network, address string, c syscall.RawConn) error {
	return func(ctx context.Context, _, address string, _ syscall.RawConn) error {
		return decide(ctx, policy().checkDial(address))
	}
}

// checkDial checks the address in the form in which a dialer has it.
func (d DialPolicy) checkDial(address string) error {
	addr, err := netip.ParseAddrPort(address)
	if err != nil {
		return fault.New(op, fault.RejectPolicy, "%q is not the address of a host", address)
	}
	return d.Check(addr.Addr())
}

// PolicyFor derives which addresses from strangers may be dialled by a node
// that the operator has configured with these hosts: peers, routers, and where
// it listens for peers of its own. Loopback is allowed if one of them is on
// this machine, private addresses if one is in a private network. One host that
// is public, or a name, which may resolve to another address tomorrow, allows
// neither: the node is then on the open network. Without hosts nothing is
// allowed.
func PolicyFor(hosts []string) (r DialPolicy) {
	for _, host := range hosts {
		addr, err := netip.ParseAddr(host)
		addr = addr.Unmap()
		switch {
		case host == "localhost" || err == nil && addr.IsLoopback():
			r.Loopback = true
		case err == nil && containsAny(private, addr) && !containsAny(forbidden, addr):
			r.Private = true
		default:
			return DialPolicy{}
		}
	}
	return r
}

// HostOf is the host of HOST:PORT or of a URL; empty if there is none.
func HostOf(address string) string {
	if strings.Contains(address, "://") {
		if parsed, err := url.Parse(address); err == nil {
			return parsed.Hostname()
		}
		return ""
	}
	host, _, _ := net.SplitHostPort(address) // without a port there is no host either
	return host
}
