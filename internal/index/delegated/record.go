package delegated

import (
	"crypto/ed25519"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/mr-tron/base58"

	"micronode/internal/index/record"
	"micronode/internal/oap"
)

// Record says that a host has what was asked for. Unknown fields are ignored.
type Record struct {
	Schema    string   `json:"Schema"`
	ID        string   `json:"ID"`
	Addrs     []string `json:"Addrs"`
	Protocols []string `json:"Protocols"`
}

// Response is the list of records as one document.
type Response struct {
	Providers []Record `json:"Providers"`
}

// The schemas that are read. The first one is written; the second is that of
// old servers, and is equivalent.
const (
	peerSchema    = "peer"
	bitswapSchema = "bitswap"
)

// Gateway is the protocol of a host that serves single blocks over HTTP.
const Gateway = "transport-ipfs-gateway-http"

// Limits of an answer.
const (
	maxProviders    = 100
	maxAddrs        = 7   // of one provider; its /p2p address is not counted
	maxScannedAddrs = 64  // addresses of one provider that are scanned for these
	maxID           = 128 // bytes of an ID
)

// p2p is the prefix of a multiaddr that names a host without an address.
const p2p = "/p2p/"

// RecordOf converts a provider to a record. It is false if its libp2p ID is
// unknown: the record would be useless.
func RecordOf(p record.Provider) (Record, bool) {
	id, ok := libp2pID(p)
	if !ok {
		return Record{}, false
	}
	r := Record{Schema: peerSchema, ID: id, Addrs: []string{}, Protocols: []string{}}
	for _, addr := range p.Multiaddrs() {
		if !strings.HasPrefix(addr, p2p) && wellFormed(addr) && !slices.Contains(r.Addrs, addr) {
			r.Addrs = append(r.Addrs, addr)
		}
	}
	for _, base := range p.HTTP {
		if _, ok := record.FormatHTTP(base); ok {
			r.Protocols = []string{Gateway}
			break
		}
	}
	return r, true
}

// WithLibp2pID adds the libp2p ID of a provider to its addresses. The key is
// that of the provider.
func WithLibp2pID(p record.Provider, key ed25519.PublicKey) record.Provider {
	p.Other = append(slices.Clip(p.Other), p2p+record.Libp2pID(key))
	return p
}

// libp2pID finds the libp2p ID of a provider.
func libp2pID(p record.Provider) (string, bool) {
	if isLibp2pID(p.ID) {
		return p.ID, true
	}
	for _, addr := range p.Other {
		if id, ok := strings.CutPrefix(addr, p2p); ok {
			if key, ok := record.KeyOfLibp2p(id); ok && oap.PeerIDOf(key).String() == p.ID {
				return record.Libp2pID(key), true
			}
		}
	}
	return "", false
}

// maxInlineKey is the maximum length of a key that is its own ID, in bytes.
const maxInlineKey = 42

// isLibp2pID reports whether a text is an ID as libp2p prints it: base58 of a
// multihash, which is SHA-256 of a large key or a small key itself.
func isLibp2pID(text string) bool {
	if len(text) > maxID || !strings.HasPrefix(text, "1") && !strings.HasPrefix(text, "Qm") {
		return false
	}
	raw, err := base58.Decode(text)
	if err != nil || len(raw) < 3 || int(raw[1]) != len(raw)-2 {
		return false
	}
	return raw[0] == record.HashSHA256 && raw[1] == 32 || raw[0] == record.HashIdentity && raw[1] <= maxInlineKey
}

// usable reports whether a record can be used, and canonicalises its ID.
func (r *Record) usable() bool {
	known := r.Schema == peerSchema || r.Schema == bitswapSchema
	if !known || r.ID == "" || len(r.ID) > maxID || !record.IsVisibleASCII(r.ID) {
		return false
	}
	if key, ok := record.KeyOfLibp2p(r.ID); ok {
		r.ID = record.Libp2pID(key)
	}
	return true
}

// provider converts a usable record to a provider.
func (r Record) provider() record.Provider {
	p := record.Provider{ID: r.ID, Source: record.Delegated}
	for _, addr := range r.Addrs {
		if !strings.HasPrefix(addr, p2p) { // the ID is in the record already
			p.AddMultiaddr(addr)
		}
	}
	boundAddrs(&p)
	if key, ok := record.KeyOfLibp2p(r.ID); ok {
		p.ID = oap.PeerIDOf(key).String()
		p = WithLibp2pID(p, key)
	}
	return p
}

// boundAddrs keeps the first few addresses, and prefers those that this node
// can dial.
func boundAddrs(p *record.Provider) {
	p.Overlay = p.Overlay[:min(len(p.Overlay), maxAddrs)]
	p.HTTP = p.HTTP[:min(len(p.HTTP), maxAddrs-len(p.Overlay))]
	p.Other = p.Other[:min(len(p.Other), maxAddrs-len(p.Overlay)-len(p.HTTP))]
}

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
	return text != "" && len(text) <= 253 && record.IsVisibleASCII(text)
}
