package kad

import (
	"crypto/ed25519"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"

	"micronode/fault"
	"micronode/internal/index/hedge"
	"micronode/internal/index/record"
)

const opOpen = "index.dht.open"

// The settings, as errors name them.
const (
	setAddr      = "index.dht.addr"
	setBootstrap = "index.dht.bootstrap"
)

// defaultPrefix holds where a Spec says nothing.
const defaultPrefix = "/micronode"

// mostBootstrap bounds the list of peers to begin with.
const mostBootstrap = 64

// Spec says how to take part.
type Spec struct {
	// Key is the node's own. Its libp2p ID is made of it.
	Key ed25519.PrivateKey

	// Listen is where peers of the DHT reach this node: host:port, or a
	// multiaddr such as /ip4/127.0.0.1/tcp/9700. Port 0 picks a free one.
	Listen []string

	// Bootstrap are the peers to begin with, such as
	// /ip4/192.0.2.7/tcp/9700/p2p/12D3Koo….
	Bootstrap []string

	// Prefix begins the name of the protocol; networks with different prefixes
	// do not see each other. "/micronode" if empty.
	Prefix string

	// Advertise gives the multiaddrs of the overlay and of the gateway, which
	// are told to others beside the DHT's own. It is called often, and from
	// goroutines of the library, so it must not wait. Nil: there are none.
	Advertise func() []string

	// Tasks runs the one task of this package, which looks for peers. It is
	// needed only if there are peers to begin with.
	Tasks hedge.Racers

	// Skew is by how much the clocks of two nodes may differ.
	Skew time.Duration

	// Now is the clock for the life of records; time.Now if nil.
	Now func() time.Time
}

// plan is a Spec that was understood.
type plan struct {
	Spec
	listen    []ma.Multiaddr
	bootstrap []peer.AddrInfo
}

// complete fills in what a Spec leaves open, and refuses what cannot be meant.
func (s Spec) complete() (plan, error) {
	p := plan{Spec: s}
	if p.Prefix == "" {
		p.Prefix = defaultPrefix
	}
	if p.Now == nil {
		p.Now = time.Now
	}
	switch {
	case len(s.Key) != ed25519.PrivateKeySize:
		return plan{}, fault.New(opOpen, fault.Internal, "a key of %d bytes", len(s.Key))
	case !strings.HasPrefix(p.Prefix, "/") || strings.HasSuffix(p.Prefix, "/"):
		return plan{}, fault.New(opOpen, fault.Internal, "%q is no prefix of a protocol", p.Prefix)
	case len(s.Bootstrap) > 0 && s.Tasks == nil:
		return plan{}, fault.New(opOpen, fault.Internal, "there are peers to begin with, and nothing to run the search for them")
	}
	for _, text := range s.Listen {
		addrs, err := parseListen(text)
		if err != nil {
			return plan{}, err
		}
		p.listen = append(p.listen, addrs...)
	}
	var err error
	p.bootstrap, err = parseBootstrap(s.Bootstrap, record.Libp2pID(s.Key.Public().(ed25519.PublicKey)))
	return p, err
}

// parseListen reads one address to listen on. No host means all of them, for
// both versions of IP.
func parseListen(text string) ([]ma.Multiaddr, error) {
	texts := []string{text}
	if !strings.HasPrefix(text, "/") {
		host, port, err := net.SplitHostPort(text)
		if err != nil {
			return nil, notListen(text)
		}
		if texts, err = listenTexts(host, port); err != nil {
			return nil, notListen(text)
		}
	}
	var addrs []ma.Multiaddr
	for _, one := range texts {
		addr, err := ma.NewMultiaddr(one)
		if err != nil || !isPlainTCP(addr, ma.P_IP4, ma.P_IP6) {
			return nil, notListen(text)
		}
		addrs = append(addrs, addr)
	}
	return addrs, nil
}

func listenTexts(host, port string) ([]string, error) {
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return nil, err
	}
	switch host {
	case "":
		return []string{"/ip4/0.0.0.0/tcp/" + port, "/ip6/::/tcp/" + port}, nil
	case "localhost":
		host = "127.0.0.1"
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return nil, err
	}
	if ip = ip.Unmap(); ip.Is4() {
		return []string{"/ip4/" + ip.String() + "/tcp/" + port}, nil
	}
	return []string{"/ip6/" + ip.String() + "/tcp/" + port}, nil
}

func notListen(text string) error {
	err := fault.New(opOpen, fault.Malformed, "%q is no address to listen on", text)
	err.Next = "Write " + setAddr + " as HOST:PORT with an IP address of this machine, such as 127.0.0.1:9700; port 0 picks a free one."
	return err
}

// parseBootstrap reads the peers to begin with. This node's own address is
// passed over, so that all nodes of a network may have the same list.
func parseBootstrap(texts []string, own string) ([]peer.AddrInfo, error) {
	if len(texts) > mostBootstrap {
		return nil, notBootstrap("%d peers to begin with; %d are enough for any network", len(texts), mostBootstrap)
	}
	var peers []peer.AddrInfo
	for _, text := range texts {
		addr, err := ma.NewMultiaddr(text)
		if err != nil {
			return nil, notBootstrap("%q is no multiaddr", text)
		}
		info, err := peer.AddrInfoFromP2pAddr(addr)
		if err != nil || len(info.Addrs) != 1 {
			return nil, notBootstrap("%q does not say which peer is there", text)
		}
		if !isPlainTCP(info.Addrs[0], ma.P_IP4, ma.P_IP6, ma.P_DNS, ma.P_DNS4, ma.P_DNS6) {
			return nil, notBootstrap("%q is not reached by plain TCP", text)
		}
		if info.ID.String() != own {
			peers = append(peers, *info)
		}
	}
	return peers, nil
}

func notBootstrap(format string, args ...any) error {
	err := fault.New(opOpen, fault.Malformed, setBootstrap+": "+format, args...)
	err.Next = "Write each entry of " + setBootstrap + " as /ip4/ADDRESS/tcp/PORT/p2p/12D3Koo…; `micronode status` prints that of a node."
	return err
}

// isPlainTCP tells whether an address is a host of one of the kinds and a TCP
// port, and nothing more.
func isPlainTCP(addr ma.Multiaddr, hosts ...int) bool {
	parts := addr.Protocols()
	return len(parts) == 2 && slices.Contains(hosts, parts[0].Code) && parts[1].Code == ma.P_TCP
}
