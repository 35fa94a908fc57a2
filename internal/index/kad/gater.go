package kad

import (
	"github.com/libp2p/go-libp2p/core/control"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"

	"micronode/internal/netguard"
)

// gater restricts which addresses libp2p dials. In a DHT every address except
// those of the bootstrap peers comes from untrusted peers.
type gater struct {
	// set at construction
	reach          func() netguard.DialPolicy
	bootstrapAddrs map[peer.ID][]ma.Multiaddr // from the configuration
}

func newGater(p resolvedSpec) *gater {
	g := &gater{reach: p.Reach, bootstrapAddrs: map[peer.ID][]ma.Multiaddr{}}
	if g.reach == nil {
		g.reach = func() netguard.DialPolicy { return netguard.DialPolicy{} }
	}
	for _, one := range p.bootstrap {
		g.bootstrapAddrs[one.ID] = append(g.bootstrapAddrs[one.ID], one.Addrs...)
	}
	return g
}

// InterceptAddrDial decides on each address that is about to be dialled. Names
// are resolved by then.
func (g *gater) InterceptAddrDial(id peer.ID, at ma.Multiaddr) bool {
	ip, err := manet.ToIP(at)
	if err != nil {
		return false
	}
	reach := g.reach()
	if g.isBootstrapAddr(id, at) {
		reach = netguard.AllowAny
	}
	return reach.CheckIP(ip) == nil
}

// isBootstrapAddr reports whether the operator configured this address, or a
// DNS name of the peer, which may resolve to any address.
func (g *gater) isBootstrapAddr(id peer.ID, at ma.Multiaddr) bool {
	for _, one := range g.bootstrapAddrs[id] {
		if _, err := manet.ToIP(one); err != nil || one.Equal(at) {
			return true
		}
	}
	return false
}

// The others accept everything: the resource manager limits which connections
// are accepted, and how many.

func (g *gater) InterceptPeerDial(peer.ID) bool              { return true }
func (g *gater) InterceptAccept(network.ConnMultiaddrs) bool { return true }
func (g *gater) InterceptUpgraded(network.Conn) (bool, control.DisconnectReason) {
	return true, 0
}
func (g *gater) InterceptSecured(network.Direction, peer.ID, network.ConnMultiaddrs) bool {
	return true
}
