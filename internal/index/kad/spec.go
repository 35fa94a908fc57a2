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
	"micronode/internal/netguard"
)

const opOpen = "index.dht.open"

// The settings, as errors name them.
const (
	setAddr      = "index.dht.addr"
	setBootstrap = "index.dht.bootstrap"
)

// defaultPrefix is the default of Spec.Prefix.
const defaultPrefix = "/micronode"

// maxBootstrap limits the list of bootstrap peers.
const maxBootstrap = 64

// Spec configures a network.
type Spec struct {
	// Key is the node's own. Its libp2p ID is derived from it.
	Key ed25519.PrivateKey

	// Listen is where peers of the DHT reach this node: host:port, or a
	// multiaddr such as /ip4/127.0.0.1/tcp/9700. Port 0 picks a free one.
	Listen []string

	// Bootstrap are the bootstrap peers, such as
	// /ip4/192.0.2.7/tcp/9700/p2p/12D3Koo….
	Bootstrap []string

	// Prefix begins the name of the protocol; networks with different prefixes
	// are separate. "/micronode" if empty.
	Prefix string

	// Advertise returns the multiaddrs of the overlay and of the gateway, which
	// are advertised besides the DHT's own. It is called often, and from
	// goroutines of the library, so it must not wait. Nil: there are none.
	Advertise func() []string

	// Reach returns which addresses from other peers may be dialled, besides
	// public ones. It is called often, so it must not wait. Nil: none.
	Reach func() netguard.DialPolicy

	// Tasks runs the one task of this package, searchPeers. It is required only
	// if there are bootstrap peers.
	Tasks hedge.TaskGroup

	// Skew is the maximum clock difference between two nodes.
	Skew time.Duration

	// Now is the clock for the expiry of records; time.Now if nil.
	Now func() time.Time
}

// resolvedSpec is a parsed Spec with its defaults.
type resolvedSpec struct {
	Spec
	listen    []ma.Multiaddr
	bootstrap []peer.AddrInfo
}

// resolve fills in the defaults of a Spec, and rejects invalid values.
func (s Spec) resolve() (resolvedSpec, error) {
	p := resolvedSpec{Spec: s}
	if p.Prefix == "" {
		p.Prefix = defaultPrefix
	}
	if p.Now == nil {
		p.Now = time.Now
	}
	switch {
	case len(s.Key) != ed25519.PrivateKeySize:
		return resolvedSpec{}, fault.New(opOpen, fault.Internal, "a key of %d bytes", len(s.Key))
	case !strings.HasPrefix(p.Prefix, "/") || strings.HasSuffix(p.Prefix, "/"):
		return resolvedSpec{}, fault.New(opOpen, fault.Internal, "%q is not a protocol prefix", p.Prefix)
	case len(s.Bootstrap) > 0 && s.Tasks == nil:
		return resolvedSpec{}, fault.New(opOpen, fault.Internal, "there are peers to begin with, and nothing to run the search for them")
	}
	for _, text := range s.Listen {
		addrs, err := parseListen(text)
		if err != nil {
			return resolvedSpec{}, err
		}
		p.listen = append(p.listen, addrs...)
	}
	var err error
	p.bootstrap, err = parseBootstrap(s.Bootstrap, record.Libp2pID(s.Key.Public().(ed25519.PublicKey)))
	return p, err
}

// parseListen parses one listen address. No host means all of them, for both
// versions of IP.
func parseListen(text string) ([]ma.Multiaddr, error) {
	texts := []string{text}
	if !strings.HasPrefix(text, "/") {
		host, port, err := net.SplitHostPort(text)
		if err != nil {
			return nil, listenAddrError(text)
		}
		if texts, err = listenTexts(host, port); err != nil {
			return nil, listenAddrError(text)
		}
	}
	var addrs []ma.Multiaddr
	for _, one := range texts {
		addr, err := ma.NewMultiaddr(one)
		if err != nil || !isPlainTCP(addr, ma.P_IP4, ma.P_IP6) {
			return nil, listenAddrError(text)
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

func listenAddrError(text string) error {
	return fault.New(opOpen, fault.Malformed, "%q is not a valid listen address", text).
		Advise("Write " + setAddr + " as HOST:PORT with an IP address of this machine, such as 127.0.0.1:9700; port 0 picks a free one.")
}

// parseBootstrap parses the bootstrap peers. This node's own address is
// skipped, so that all nodes of a network may have the same list.
func parseBootstrap(texts []string, own string) ([]peer.AddrInfo, error) {
	if len(texts) > maxBootstrap {
		return nil, bootstrapError("%d peers to begin with; %d are enough for any network", len(texts), maxBootstrap)
	}
	var peers []peer.AddrInfo
	for _, text := range texts {
		addr, err := ma.NewMultiaddr(text)
		if err != nil {
			return nil, bootstrapError("%q is not a multiaddr", text)
		}
		info, err := peer.AddrInfoFromP2pAddr(addr)
		if err != nil || len(info.Addrs) != 1 {
			return nil, bootstrapError("%q does not say which peer is there", text)
		}
		if !isPlainTCP(info.Addrs[0], ma.P_IP4, ma.P_IP6, ma.P_DNS, ma.P_DNS4, ma.P_DNS6) {
			return nil, bootstrapError("%q is not reached by plain TCP", text)
		}
		if info.ID.String() != own {
			peers = append(peers, *info)
		}
	}
	return peers, nil
}

func bootstrapError(format string, args ...any) error {
	return fault.New(opOpen, fault.Malformed, setBootstrap+": "+format, args...).
		Advise("Write each entry of " + setBootstrap + " as /ip4/ADDRESS/tcp/PORT/p2p/12D3Koo…; `micronode status` prints that of a node.")
}

// isPlainTCP reports whether an address is a host of one of the kinds and a TCP
// port, and nothing more.
func isPlainTCP(addr ma.Multiaddr, hosts ...int) bool {
	parts := addr.Protocols()
	return len(parts) == 2 && slices.Contains(hosts, parts[0].Code) && parts[1].Code == ma.P_TCP
}
