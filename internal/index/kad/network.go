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

// Limits of the records stored for others, and their lifetime. Nodes announce
// what they have every twelve hours, so a record that is a day old is of a node
// that has left.
const (
	maxRecords     = 100_000 // provider records in total, about 30 MB
	maxPerKey      = 512     // of them, for one key
	maxPerProvider = 20_000  // and of one provider
	maxValues      = 4096    // name records, of 4 KiB at most
	providerTTL    = 24 * time.Hour
	valueTTL       = 36 * time.Hour
	sweepInterval  = 10 * time.Minute

	maxChecks = 32 // new peers that are checked concurrently
)

// namespace is the prefix of the keys of names, as in record.RecordKey.
const namespace = "micronode"

// Network is this node's part of the DHT. It implements the engine of the
// index.
type Network struct {
	// Set at construction.
	selfID    peer.ID
	host      *bhost.BasicHost
	network   *swarm.Swarm
	dht       *dht.IpfsDHT
	messenger *pb.ProtocolMessenger
	validator *nameValidator
	values    *records.ValueStore // the library's rules over the store of name records
	stores    struct{ providers, values *recordStore }
	bootstrap []peer.AddrInfo

	// Of the task searchPeers.
	ctx        context.Context
	cancel     context.CancelFunc
	searchDone chan struct{} // closed when it has ended, or if there is none

	closing sync.Once
	counts  statsCounter
}

// Open joins the DHT: it listens, and it starts searchPeers if there are
// bootstrap peers. It sends nothing before it returns. The network lives until
// Close.
func Open(_ context.Context, spec Spec) (*Network, error) {
	silenceLogs()
	p, err := spec.resolve()
	if err != nil {
		return nil, err
	}
	host, network, err := openHost(p)
	if err != nil {
		return nil, err
	}
	n := &Network{selfID: host.ID(), host: host, network: network, bootstrap: p.bootstrap, validator: newNameValidator(p.Now, p.Skew), searchDone: make(chan struct{})}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	if err := n.openDHT(protocol.ID(p.Prefix)); err != nil {
		_ = host.Close() // it returns no error
		return nil, fault.WrapKind(opOpen, fault.Internal, err)
	}
	if len(n.bootstrap) == 0 {
		close(n.searchDone)
	} else if err := p.Tasks.Go(n.searchPeers); err != nil {
		close(n.searchDone)
		_ = n.Close() // the first error is what matters
		return nil, fault.Wrap(opOpen, err)
	}
	return n, nil
}

func (n *Network) openDHT(prefix protocol.ID) (err error) {
	n.stores.providers = newRecordStore(maxRecords, maxPerKey, maxPerProvider)
	n.stores.values = newRecordStore(maxValues, 0, 0)
	rules := libp2precord.NamespacedValidator{namespace: n.validator}
	n.values = records.NewValueStore(n.stores.values, rules, valueTTL)
	n.dht, err = dht.New(n.host,
		dht.Mode(dht.ModeServer), dht.ProtocolPrefix(prefix), dht.Validator(rules),
		dht.ProviderDatastore(n.stores.providers), dht.ValueDatastore(n.stores.values),
		dht.MaxRecordAge(valueTTL), dht.ValueGCInterval(sweepInterval),
		dht.ProviderManagerOpts(records.ProvideValidity(providerTTL), records.ProviderAddrTTL(providerTTL), records.CleanupInterval(sweepInterval)),
		dht.LookupCheckConcurrency(maxChecks))
	if err != nil {
		return err
	}
	n.messenger, err = pb.NewProtocolMessenger(n.dht.MessageSender())
	return err
}

// ID is this node's libp2p ID: 12D3Koo….
func (n *Network) ID() string { return n.selfID.String() }

// Addrs are the bootstrap addresses of this node: those that it listens on,
// with its ID.
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

// Close leaves the network, and waits until everything that Open started has
// ended.
func (n *Network) Close() error {
	var err error
	n.closing.Do(func() {
		n.cancel()
		<-n.searchDone
		err = fault.Wrap("index.dht.close", n.dht.Close())
		_ = n.host.Close() // it returns no error
	})
	return err
}
