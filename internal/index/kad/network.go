package kad

import (
	"context"
	"slices"
	"sync"
	"time"

	dht "github.com/libp2p/go-libp2p-kad-dht"
	pb "github.com/libp2p/go-libp2p-kad-dht/pb"
	"github.com/libp2p/go-libp2p-kad-dht/records"
	libp2precord "github.com/libp2p/go-libp2p-record"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	bhost "github.com/libp2p/go-libp2p/p2p/host/basic"
	"github.com/libp2p/go-libp2p/p2p/net/swarm"

	"micronode/fault"
)

// What is kept for others, and for how long. Nodes announce what they have
// every twelve hours, so a record that is a day old is of a node that has left.
const (
	mostRecords   = 100_000 // provider records in all, about 30 MB
	mostForKey    = 512     // of them, for one key
	mostOfOne     = 20_000  // and of one provider
	mostValues    = 4096    // names, of 4 KiB at most
	providersLive = 24 * time.Hour
	valuesLive    = 36 * time.Hour
	sweepPause    = 10 * time.Minute

	mostChecks = 32 // new peers that are tried at a time
)

// namespace is what the keys of names begin with, as in record.RecordKey.
const namespace = "micronode"

// Network is this node's part in the DHT. It implements the engine of the
// index.
type Network struct {
	// Set at construction.
	own       peer.ID
	host      *bhost.BasicHost
	network   *swarm.Swarm
	dht       *dht.IpfsDHT
	messenger *pb.ProtocolMessenger
	names     *names
	values    *records.ValueStore // the library's rules over the shelf of names
	shelves   struct{ providers, values *shelf }
	bootstrap []peer.AddrInfo

	// Of the task that looks for peers.
	life     context.Context
	end      context.CancelFunc
	searched chan struct{} // closed when it has ended, or if there is none

	closing sync.Once
	counts  counts
}

// Open takes part: it listens, and it starts to look for peers if there are any
// to begin with. It asks nobody before it returns. The network lives until
// Close.
func Open(_ context.Context, spec Spec) (*Network, error) {
	quiet()
	p, err := spec.complete()
	if err != nil {
		return nil, err
	}
	host, network, err := openHost(p)
	if err != nil {
		return nil, err
	}
	n := &Network{own: host.ID(), host: host, network: network, bootstrap: p.bootstrap, names: newNames(p.Now, p.Skew), searched: make(chan struct{})}
	n.life, n.end = context.WithCancel(context.Background())
	if err := n.openDHT(protocol.ID(p.Prefix)); err != nil {
		_ = host.Close() // it has no error to tell
		return nil, fault.WrapKind(opOpen, fault.Internal, err)
	}
	if len(n.bootstrap) == 0 {
		close(n.searched)
	} else if err := p.Tasks.Go(n.search); err != nil {
		close(n.searched)
		_ = n.Close() // the refusal is what matters
		return nil, fault.Wrap(opOpen, err)
	}
	return n, nil
}

func (n *Network) openDHT(prefix protocol.ID) (err error) {
	n.shelves.providers = newShelf(mostRecords, mostForKey, mostOfOne)
	n.shelves.values = newShelf(mostValues, 0, 0)
	rules := libp2precord.NamespacedValidator{namespace: n.names}
	n.values = records.NewValueStore(n.shelves.values, rules, valuesLive)
	n.dht, err = dht.New(n.host,
		dht.Mode(dht.ModeServer), dht.ProtocolPrefix(prefix), dht.Validator(rules),
		dht.ProviderDatastore(n.shelves.providers), dht.ValueDatastore(n.shelves.values),
		dht.MaxRecordAge(valuesLive), dht.ValueGCInterval(sweepPause),
		dht.ProviderManagerOpts(records.ProvideValidity(providersLive), records.ProviderAddrTTL(providersLive), records.CleanupInterval(sweepPause)),
		dht.LookupCheckConcurrency(mostChecks))
	if err != nil {
		return err
	}
	n.messenger, err = pb.NewProtocolMessenger(n.dht.MessageSender())
	return err
}

// ID is this node's in libp2p: 12D3Koo….
func (n *Network) ID() string { return n.own.String() }

// Addrs are the multiaddrs under which others may begin with this node: those
// that it listens on, with its ID.
func (n *Network) Addrs() []string {
	listening, err := n.network.InterfaceListenAddresses()
	if err != nil {
		listening = n.network.ListenAddresses()
	}
	var texts []string
	for _, addr := range listening {
		texts = append(texts, addr.String()+"/p2p/"+n.ID())
	}
	slices.Sort(texts)
	return texts
}

// Size is how many peers the routing table holds. It never waits.
func (n *Network) Size() int { return n.dht.RoutingTable().Size() }

// Close leaves the network, and waits until all that Open began has ended.
func (n *Network) Close() error {
	var err error
	n.closing.Do(func() {
		n.end()
		<-n.searched
		err = fault.Wrap("index.dht.close", n.dht.Close())
		_ = n.host.Close() // it has no error to tell
	})
	return err
}
