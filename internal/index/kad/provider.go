package kad

import (
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/multiformats/go-multihash"

	"micronode/b3"
	"micronode/internal/index/record"
	"micronode/internal/oap"
)

// How much of an answer is read.
const (
	mostProviders = 100
	mostAddrs     = 8  // of one provider
	mostLooked    = 64 // addresses of one provider that are looked at for these eight
	mostID        = 64 // bytes of an ID; one of RSA has 34, one of Ed25519 38
)

// hashBLAKE3 is the code of the hash in multihashes, with the length of a
// digest behind it.
const hashBLAKE3 = 0x1e

// multihashOf is under what an object is provided: the hash as all of IPFS
// writes it.
func multihashOf(address b3.Address) multihash.Multihash {
	return append(multihash.Multihash{hashBLAKE3, byte(len(address))}, address[:]...)
}

// providers reads the providers of an answer, as far as they make sense and
// are not this node itself.
func (n *Network) providers(found []*peer.AddrInfo) []record.Provider {
	var list []record.Provider
	for _, info := range found[:min(len(found), mostProviders)] {
		if p, ok := provider(*info); ok && info.ID != n.own {
			list = append(list, p)
		}
	}
	return list
}

// provider reads one. What leads to it by a way of ours comes before what does
// not, and neither of the two ways crowds out the other.
func provider(info peer.AddrInfo) (record.Provider, bool) {
	if len(info.ID) > mostID {
		return record.Provider{}, false
	}
	if _, err := peer.IDFromBytes([]byte(info.ID)); err != nil {
		return record.Provider{}, false
	}
	p := record.Provider{ID: nodeOf(info.ID), Source: record.DHT}
	for _, addr := range info.Addrs[:min(len(info.Addrs), mostLooked)] {
		p.Take(addr.String())
	}
	p.Overlay = p.Overlay[:min(len(p.Overlay), mostAddrs-min(len(p.HTTP), mostAddrs/2))]
	p.HTTP = p.HTTP[:min(len(p.HTTP), mostAddrs-len(p.Overlay))]
	p.Other = p.Other[:min(len(p.Other), mostAddrs-len(p.Overlay)-len(p.HTTP))]
	if text := info.ID.String(); p.ID != text {
		p.Other = append(p.Other, "/p2p/"+text) // for those who ask us and know it by no other name
	}
	return p, true
}

// nodeOf is the ID by which the rest of the node knows a peer: that of the
// overlay if the ID holds an Ed25519 key, and the text as it is if not.
func nodeOf(id peer.ID) string {
	text := id.String()
	if key, ok := record.KeyOfLibp2p(text); ok {
		return oap.PeerIDOf(key).String()
	}
	return text
}
