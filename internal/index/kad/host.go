package kad

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	golog "github.com/ipfs/go-log/v2"
	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/event"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/sec"
	"github.com/libp2p/go-libp2p/gologshim"
	bhost "github.com/libp2p/go-libp2p/p2p/host/basic"
	"github.com/libp2p/go-libp2p/p2p/host/eventbus"
	"github.com/libp2p/go-libp2p/p2p/host/peerstore/pstoremem"
	rcmgr "github.com/libp2p/go-libp2p/p2p/host/resource-manager"
	"github.com/libp2p/go-libp2p/p2p/muxer/yamux"
	"github.com/libp2p/go-libp2p/p2p/net/connmgr"
	"github.com/libp2p/go-libp2p/p2p/net/swarm"
	"github.com/libp2p/go-libp2p/p2p/net/upgrader"
	"github.com/libp2p/go-libp2p/p2p/security/noise"
	"github.com/libp2p/go-libp2p/p2p/transport/tcp"
	ma "github.com/multiformats/go-multiaddr"

	"micronode/fault"
	"micronode/internal/ingress"
)

// Limits of a host. These numbers do not grow with the machine: the DHT is one
// part of a small node, and what exceeds them is rejected or pruned.
const (
	maxConns      = 256
	connLowWater  = 96  // pruned down to these,
	connHighWater = 128 // when this is reached
	maxStreams    = 1024
	maxMemory     = 64 << 20
	maxAddrBook   = 100_000 // addresses of peers that are not connected
	maxAddrsOf    = 32      // of them, of one peer
	streamWindow  = 1 << 20

	dialTimeout = 5 * time.Second
)

// limits are the hard limits.
func limits() rcmgr.ConcreteLimitConfig {
	return rcmgr.PartialLimitConfig{
		System: rcmgr.ResourceLimits{
			Conns: maxConns, ConnsInbound: maxConns * 3 / 4, ConnsOutbound: maxConns * 3 / 4, FD: maxConns,
			Streams: 2 * maxStreams, StreamsInbound: maxStreams, StreamsOutbound: maxStreams, Memory: maxMemory,
		},
		Transient: rcmgr.ResourceLimits{ // connections and streams without a negotiated protocol
			Conns: 64, ConnsInbound: 48, ConnsOutbound: 48, FD: 64,
			Streams: 256, StreamsInbound: 128, StreamsOutbound: 256, Memory: maxMemory / 4,
		},
		PeerDefault: rcmgr.ResourceLimits{
			Conns: 8, ConnsInbound: 4, ConnsOutbound: 8, FD: 8,
			Streams: 96, StreamsInbound: 64, StreamsOutbound: 64, Memory: maxMemory / 8,
		},
		Conn: rcmgr.ResourceLimits{Conns: 1, ConnsInbound: 1, ConnsOutbound: 1, FD: 1, Memory: 8 << 20},
	}.Build(rcmgr.InfiniteLimits)
}

// openHost assembles a libp2p host: TCP, Noise, yamux, identify, and nothing
// else. libp2p.New would do it too, but it brings QUIC, WebRTC and a framework
// for dependency injection into the program.
func openHost(p resolvedSpec) (*bhost.BasicHost, *swarm.Swarm, error) {
	bus := eventbus.NewBus()
	network, err := openSwarm(p, bus)
	if err != nil {
		return nil, nil, fault.WrapKind(opOpen, fault.Internal, err)
	}
	pruner, err := connmgr.NewConnManager(connLowWater, connHighWater, connmgr.WithGracePeriod(20*time.Second))
	if err != nil {
		return nil, nil, fault.WrapKind(opOpen, fault.Internal, err)
	}
	host, err := bhost.NewHost(network, &bhost.HostOpts{
		EventBus: bus, ConnManager: pruner, AddrsFactory: p.advertisedAddrs,
		UserAgent: "micronode", ProtocolVersion: strings.TrimPrefix(p.Prefix, "/"), DisableSignedPeerRecord: true,
	})
	if err != nil {
		return nil, nil, fault.WrapKind(opOpen, fault.Internal, err)
	}
	host.Start()
	for _, addr := range p.listen {
		if err := network.AddListenAddr(addr); err != nil {
			_ = host.Close() // it returns no error
			return nil, nil, ingress.ListenError(opOpen, addr.String(), setAddr, err)
		}
	}
	return host, network, nil
}

// openSwarm makes the dialling and listening part. With these arguments, none
// of the constructors fails.
func openSwarm(p resolvedSpec, bus event.Bus) (*swarm.Swarm, error) {
	key, err := crypto.UnmarshalEd25519PrivateKey(p.Key)
	if err != nil {
		return nil, err
	}
	window := *yamux.DefaultTransport
	window.MaxStreamWindowSize = streamWindow
	muxers := []upgrader.StreamMuxer{{ID: yamux.ID, Muxer: &window}}

	id, err1 := peer.IDFromPrivateKey(key)
	peerstore, err2 := pstoremem.NewPeerstore(pstoremem.WithMaxAddresses(maxAddrBook), pstoremem.WithMaxAddressesPerPeer(maxAddrsOf), pstoremem.WithMaxProtocols(32))
	resources, err3 := rcmgr.NewResourceManager(rcmgr.NewFixedLimiter(limits()), rcmgr.WithMetricsDisabled())
	secure, err4 := noise.New(noise.ID, key, muxers)
	upgrade, err5 := upgrader.New([]sec.SecureTransport{secure}, muxers, nil, resources, nil)
	transport, err6 := tcp.NewTCPTransport(upgrade, resources, nil, tcp.DisableReuseport(), tcp.WithConnectionTimeout(dialTimeout))
	if err := errors.Join(err1, err2, err3, err4, err5, err6); err != nil {
		return nil, err
	}
	network, err := swarm.NewSwarm(id, peerstore, bus, swarm.WithResourceManager(resources), swarm.WithDialTimeout(dialTimeout), swarm.WithConnectionGater(newGater(p)),
		swarm.WithUDPBlackHoleSuccessCounter(nil), swarm.WithIPv6BlackHoleSuccessCounter(nil))
	if err != nil {
		return nil, err
	}
	return network, errors.Join(peerstore.AddPrivKey(id, key), peerstore.AddPubKey(id, key.GetPublic()), network.AddTransport(transport))
}

// maxAdvertised limits what is advertised besides the DHT's own addresses.
const maxAdvertised = 16

// advertisedAddrs is what the host advertises: its listen addresses, and those
// of the overlay and the gateway.
func (r resolvedSpec) advertisedAddrs(listening []ma.Multiaddr) []ma.Multiaddr {
	out := slices.Clone(listening)
	if r.Advertise == nil {
		return out
	}
	for _, text := range r.Advertise() {
		if addr, err := ma.NewMultiaddr(text); err == nil && len(out) < len(listening)+maxAdvertised {
			out = append(out, addr)
		}
	}
	return out
}

// silenceLogs silences the library's logs, which would go to standard error
// besides the node's own and in another format. Failures are in the errors that
// it returns. The logs are global to the program, and only this package uses
// them.
var silenceLogs = sync.OnceFunc(func() {
	gologshim.SetDefaultHandler(slog.DiscardHandler)
	_ = golog.SetLogLevel("*", "fatal") // both arguments are valid
})
