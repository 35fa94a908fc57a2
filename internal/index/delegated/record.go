package delegated

import (
	"crypto/ed25519"
	"slices"
	"strings"

	"github.com/mr-tron/base58"

	"micronode/internal/index/record"
	"micronode/internal/oap"
)

// Record says that a host has what was asked for. Fields that we do not know
// are passed over.
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

// The schemas that we read. We write the first one; the second is that of old
// servers, and says the same.
const (
	peerSchema    = "peer"
	bitswapSchema = "bitswap"
)

// Gateway is the protocol of a host that gives single blocks by HTTP.
const Gateway = "transport-ipfs-gateway-http"

// The bounds of what is taken of an answer.
const (
	mostProviders = 100
	mostAddrs     = 7   // of one provider; the one that says who it is comes on top
	mostLooked    = 64  // addresses of one provider that are looked at for these
	mostID        = 128 // bytes of an ID
)

// p2p is how a multiaddr names a host without saying where it is.
const p2p = "/p2p/"

// RecordOf is what others are told of a provider. It is false if they could do
// nothing with it: nobody knows by which ID libp2p knows it.
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

// Introduce tells with a provider by which ID libp2p knows it. The key is that
// of the provider.
func Introduce(p record.Provider, key ed25519.PublicKey) record.Provider {
	p.Other = append(slices.Clip(p.Other), p2p+record.Libp2pID(key))
	return p
}

// libp2pID finds by which ID libp2p knows a provider.
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

// Multihashes that IDs of libp2p are made of.
const (
	hashIdentity  = 0x00
	hashSHA256    = 0x12
	mostInlineKey = 42 // bytes of a key that is its own ID
)

// isLibp2pID reports whether a text is an ID as libp2p prints it: base58 of a
// multihash, which is SHA-256 of a large key or a small key itself.
func isLibp2pID(text string) bool {
	if len(text) > mostID || !strings.HasPrefix(text, "1") && !strings.HasPrefix(text, "Qm") {
		return false
	}
	raw, err := base58.Decode(text)
	if err != nil || len(raw) < 3 || int(raw[1]) != len(raw)-2 {
		return false
	}
	return raw[0] == hashSHA256 && raw[1] == 32 || raw[0] == hashIdentity && raw[1] <= mostInlineKey
}

// usable reports whether we can read a record, and gives its ID one spelling.
func (r *Record) usable() bool {
	known := r.Schema == peerSchema || r.Schema == bitswapSchema
	if !known || r.ID == "" || len(r.ID) > mostID || strings.ContainsFunc(r.ID, notPlain) {
		return false
	}
	if key, ok := record.KeyOfLibp2p(r.ID); ok {
		r.ID = record.Libp2pID(key)
	}
	return true
}

// provider is what a usable record tells us.
func (r Record) provider() record.Provider {
	p := record.Provider{ID: r.ID, Source: record.Delegated}
	for _, addr := range r.Addrs {
		if !strings.HasPrefix(addr, p2p) { // its ID alone says who it is
			p.Take(addr)
		}
	}
	bound(&p)
	if key, ok := record.KeyOfLibp2p(r.ID); ok {
		p.ID = oap.PeerIDOf(key).String()
		p = Introduce(p, key)
	}
	return p
}

// bound keeps the first few addresses, and those that lead to it by a way of
// ours before those that do not.
func bound(p *record.Provider) {
	p.Overlay = p.Overlay[:min(len(p.Overlay), mostAddrs)]
	p.HTTP = p.HTTP[:min(len(p.HTTP), mostAddrs-len(p.Overlay))]
	p.Other = p.Other[:min(len(p.Other), mostAddrs-len(p.Overlay)-len(p.HTTP))]
}

// notPlain finds what no ID has.
func notPlain(r rune) bool { return r <= ' ' || r > '~' }
