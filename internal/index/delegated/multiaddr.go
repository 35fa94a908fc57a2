package delegated

import (
	"net/netip"
	"strconv"
	"strings"
)

// bareProtocols are the protocols of a multiaddr that have no value.
var bareProtocols = map[string]bool{
	"quic": true, "quic-v1": true, "tls": true, "noise": true, "ws": true, "wss": true, "http": true, "https": true,
	"webtransport": true, "webrtc": true, "webrtc-direct": true, "p2p-circuit": true,
}

// valueProtocols are the protocols that have a value, with its check.
var valueProtocols = map[string]func(string) bool{
	"ip4": isIP4, "ip6": isIP6, "tcp": isPort, "udp": isPort, "p2p": isLibp2pID,
	"dns": isName, "dns4": isName, "dns6": isName, "dnsaddr": isName, "sni": isName,
}

// wellFormed reports whether every parser accepts a multiaddr. There are more
// protocols than these, but none that is common; an address with one of them is
// left out rather than risked.
func wellFormed(addr string) bool {
	rest, ok := strings.CutPrefix(addr, "/")
	for ok && rest != "" {
		var word, value string
		word, rest, _ = strings.Cut(rest, "/")
		if bareProtocols[word] {
			continue
		}
		value, rest, _ = strings.Cut(rest, "/")
		check := valueProtocols[word]
		ok = check != nil && check(value)
	}
	return ok && addr != "/" && !strings.HasSuffix(addr, "/")
}

func isIP4(text string) bool {
	ip, err := netip.ParseAddr(text)
	return err == nil && ip.Is4()
}

func isIP6(text string) bool {
	ip, err := netip.ParseAddr(text)
	return err == nil && ip.Is6() && ip.Zone() == ""
}

func isPort(text string) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return err == nil && strconv.FormatUint(n, 10) == text
}

func isName(text string) bool {
	return text != "" && len(text) <= 253 && !strings.ContainsFunc(text, isNotVisibleASCII)
}
