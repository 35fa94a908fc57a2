package kad

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/event"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/sec"
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

// What a host may use. These numbers do not grow with the machine: the DHT is
// one part of a small node, and what is beyond them is refused or pruned.
const (
	mostConns    = 256
	keptConns    = 96  // pruned down to these,
	manyConns    = 128 // from here on
	mostStreams  = 1024
	mostMemory   = 64 << 20
	mostAddrBook = 100_000 // addresses of peers that we are not connected to
	mostAddrsOf  = 32      // of them, those of one peer
	streamWindow = 1 << 20

	dialTime = 5 * time.Second
)

// limits are the hard ones.
func limits() rcmgr.ConcreteLimitConfig {
	return rcmgr.PartialLimitConfig{
		System: rcmgr.ResourceLimits{
			Conns: mostConns, ConnsInbound: mostConns * 3 / 4, ConnsOutbound: mostConns * 3 / 4, FD: mostConns,
			Streams: 2 * mostStreams, StreamsInbound: mostStreams, StreamsOutbound: mostStreams, Memory: mostMemory,
		},
		Transient: rcmgr.ResourceLimits{ // connections and streams that have not said yet what they are for
			Conns: 64, ConnsInbound: 48, ConnsOutbound: 48, FD: 64,
			Streams: 256, StreamsInbound: 128, StreamsOutbound: 256, Memory: mostMemory / 4,
		},
		PeerDefault: rcmgr.ResourceLimits{
			Conns: 8, ConnsInbound: 4, ConnsOutbound: 8, FD: 8,
			Streams: 96, StreamsInbound: 64, StreamsOutbound: 64, Memory: mostMemory / 8,
		},
		Conn: rcmgr.ResourceLimits{Conns: 1, ConnsInbound: 1, ConnsOutbound: 1, FD: 1, Memory: 8 << 20},
	}.Build(rcmgr.InfiniteLimits)
}

// openHost puts a libp2p host together: TCP, Noise, yamux, identify, and
// nothing else. libp2p.New would do it too, but it brings QUIC, WebRTC and a
// framework for dependency injection into the program.
func openHost(p plan) (*bhost.BasicHost, *swarm.Swarm, error) {
	bus := eventbus.NewBus()
	network, err := openSwarm(p, bus)
	if err != nil {
		return nil, nil, fault.WrapKind(opOpen, fault.Internal, err)
	}
	pruner, err := connmgr.NewConnManager(keptConns, manyConns, connmgr.WithGracePeriod(20*time.Second))
	if err != nil {
		return nil, nil, fault.WrapKind(opOpen, fault.Internal, err)
	}
	host, err := bhost.NewHost(network, &bhost.HostOpts{
		EventBus: bus, ConnManager: pruner, AddrsFactory: p.addresses,
		UserAgent: "micronode", ProtocolVersion: strings.TrimPrefix(p.Prefix, "/"), DisableSignedPeerRecord: true,
	})
	if err != nil {
		return nil, nil, fault.WrapKind(opOpen, fault.Internal, err)
	}
	host.Start()
	for _, addr := range p.listen {
		if err := network.AddListenAddr(addr); err != nil {
			_ = host.Close() // it has no error to tell
			return nil, nil, ingress.CannotListen(opOpen, addr.String(), setAddr, err)
		}
	}
	return host, network, nil
}

// openSwarm makes what dials and listens. With what they are given here, none
// of the constructors fails.
func openSwarm(p plan, bus event.Bus) (*swarm.Swarm, error) {
	key, err := crypto.UnmarshalEd25519PrivateKey(p.Key)
	if err != nil {
		return nil, err
	}
	window := *yamux.DefaultTransport
	window.MaxStreamWindowSize = streamWindow
	muxers := []upgrader.StreamMuxer{{ID: yamux.ID, Muxer: &window}}

	id, err1 := peer.IDFromPrivateKey(key)
	book, err2 := pstoremem.NewPeerstore(pstoremem.WithMaxAddresses(mostAddrBook), pstoremem.WithMaxAddressesPerPeer(mostAddrsOf), pstoremem.WithMaxProtocols(32))
	guard, err3 := rcmgr.NewResourceManager(rcmgr.NewFixedLimiter(limits()), rcmgr.WithMetricsDisabled())
	secure, err4 := noise.New(noise.ID, key, muxers)
	upgrade, err5 := upgrader.New([]sec.SecureTransport{secure}, muxers, nil, guard, nil)
	transport, err6 := tcp.NewTCPTransport(upgrade, guard, nil, tcp.DisableReuseport(), tcp.WithConnectionTimeout(dialTime))
	if err := errors.Join(err1, err2, err3, err4, err5, err6); err != nil {
		return nil, err
	}
	network, err := swarm.NewSwarm(id, book, bus, swarm.WithResourceManager(guard), swarm.WithDialTimeout(dialTime),
		swarm.WithUDPBlackHoleSuccessCounter(nil), swarm.WithIPv6BlackHoleSuccessCounter(nil))
	if err != nil {
		return nil, err
	}
	return network, errors.Join(book.AddPrivKey(id, key), book.AddPubKey(id, key.GetPublic()), network.AddTransport(transport))
}

// mostAdvertised bounds what is told to others beside the DHT's own addresses.
const mostAdvertised = 16

// addresses is what the host tells others: where it listens, and where the
// overlay and the gateway do.
func (p plan) addresses(listening []ma.Multiaddr) []ma.Multiaddr {
	told := slices.Clone(listening)
	if p.Advertise == nil {
		return told
	}
	for _, text := range p.Advertise() {
		if addr, err := ma.NewMultiaddr(text); err == nil && len(told) < len(listening)+mostAdvertised {
			told = append(told, addr)
		}
	}
	return told
}
