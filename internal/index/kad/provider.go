package kad

import (
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/multiformats/go-multihash"

	"micronode/b3"
	"micronode/internal/index/record"
	"micronode/internal/oap"
)

// Limits of an answer.
const (
	maxProviders = 100
	maxAddrs     = 8  // of one provider
	maxLooked    = 64 // addresses of one provider that are scanned for these eight
	maxID        = 64 // bytes of an ID; one of RSA has 34, one of Ed25519 38
)

// multihashOf is the DHT key of an object: the multihash that IPFS uses. The
// length of the digest follows the code of the hash.
func multihashOf(address b3.Address) multihash.Multihash {
	return append(multihash.Multihash{record.HashBLAKE3, byte(len(address))}, address[:]...)
}

// parseProviders parses the providers of an answer, without invalid ones and
// this node itself.
func (n *Network) parseProviders(found []*peer.AddrInfo) []record.Provider {
	var list []record.Provider
	for _, info := range found[:min(len(found), maxProviders)] {
		if p, ok := parseProvider(*info); ok && info.ID != n.selfID {
			list = append(list, p)
		}
	}
	return list
}

// parseProvider parses one provider. Addresses that this node can use take
// precedence, and neither of their two kinds displaces the other.
func parseProvider(info peer.AddrInfo) (record.Provider, bool) {
	if len(info.ID) > maxID {
		return record.Provider{}, false
	}
	if _, err := peer.IDFromBytes([]byte(info.ID)); err != nil {
		return record.Provider{}, false
	}
	p := record.Provider{ID: peerIDOf(info.ID), Source: record.DHT}
	for _, addr := range info.Addrs[:min(len(info.Addrs), maxLooked)] {
		p.AddMultiaddr(addr.String())
	}
	p.Overlay = p.Overlay[:min(len(p.Overlay), maxAddrs-min(len(p.HTTP), maxAddrs/2))]
	p.HTTP = p.HTTP[:min(len(p.HTTP), maxAddrs-len(p.Overlay))]
	p.Other = p.Other[:min(len(p.Other), maxAddrs-len(p.Overlay)-len(p.HTTP))]
	if text := info.ID.String(); p.ID != text {
		p.Other = append(p.Other, "/p2p/"+text) // for others that know it only by this ID
	}
	return p, true
}

// peerIDOf is the ID by which the rest of the node knows a peer: that of the
// overlay if the ID holds an Ed25519 key, otherwise the text itself.
func peerIDOf(id peer.ID) string {
	text := id.String()
	if key, ok := record.KeyOfLibp2p(text); ok {
		return oap.PeerIDOf(key).String()
	}
	return text
}
