package node

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/index"
	"micronode/internal/oap"
	"micronode/internal/overlay"
	"micronode/internal/registry"
	"micronode/internal/supervise"
)

// indexStages are the stages of the index's services.
var indexStages = index.Stages{State: stageState, Workers: stageWorkers}

// openIndex makes the index.
func (n *Node) openIndex(ctx context.Context, c Config) (err error) {
	if err := n.openLibrary(c.Facets.Search); err != nil {
		return err
	}
	spec := index.Spec{
		Config: c.Index, Key: n.identity.private, Skew: time.Duration(c.Node.ClockSkew), Store: n.store,
		Registry: n.registryReader(), Overlay: n.overlayPeers(), Self: n.selfProvider, Peers: n.namedPeers,
		Bandwidth: n.bandwidth, Metrics: n.metrics, Readiness: n.readiness, Tracer: n.tracing.Tracer(),
	}
	spec.Kept, spec.Removed = n.keptObjects, n.onCollected
	if n.library != nil {
		spec.Objects = n.library // not a non-nil interface around nil
	}
	if n.folder != nil {
		spec.NameStore, spec.SeenPath, spec.IdempotencyPath = nameStore{n.folder}, n.folder.join(seenFile), n.folder.join(idempotencyFile)
	}
	n.index, err = index.New(ctx, n.inventory, n.supervisor, indexStages, spec)
	if err == nil {
		n.purger.Register(n.index.Trim)
	}
	return err
}

// keptObjects lists the objects that stay although no name of this node stands
// for them: those of the registry, of open proposals, and of shares.
func (n *Node) keptObjects(ctx context.Context) ([]b3.Address, error) {
	var registry, shares keeper = n.remoteClients.registry, n.remoteClients.overlay
	if n.registry != nil {
		registry = n.registry
	}
	if n.overlay != nil {
		shares = n.overlay
	}
	all, err := registry.KeptObjects(ctx)
	if err != nil {
		return nil, err
	}
	shared, err := shares.KeptObjects(ctx)
	return append(all, shared...), err
}

// keeper is a part that keeps objects.
type keeper interface {
	KeptObjects(ctx context.Context) ([]b3.Address, error)
}

// onCollected forgets an object that the index removed.
func (n *Node) onCollected(address b3.Address) {
	if n.objectCache != nil {
		n.objectCache.Drop(address)
	}
	if n.library != nil {
		n.library.ObjectRemoved(address)
	}
}

// namedPeers are the addresses of the peers that the operator named.
func (n *Node) namedPeers() (addrs []string) {
	for _, one := range n.config.Current().Value.Overlay.Peers {
		_, addr, _ := strings.Cut(one, "@")
		addrs = append(addrs, addr)
	}
	return addrs
}

// joinDHT joins the DHT, if it is on. That comes after the node listens: the
// node's address is the first thing that others learn there.
func (n *Node) joinDHT(ctx context.Context, c Config) error {
	if !c.Index.DHT.On() {
		return nil
	}
	tasks, err := n.supervisor.NewGroup(supervise.GroupSpec{Service: "index", Kind: "dht", Stage: stageState, Max: 1})
	if err != nil {
		return err
	}
	advertise := func() []string {
		at := n.selfProvider()
		return at.Multiaddrs()
	}
	engine, err := openKad(ctx, c.Index.DHT, n.identity.private, time.Duration(c.Node.ClockSkew), advertise, n.index.Reach, tasks)
	if err == nil {
		n.index.JoinDHT(engine)
	}
	return err
}

// closeIndex leaves the DHT.
func (n *Node) closeIndex() error {
	if n.index == nil {
		return nil
	}
	return n.index.Close()
}

// registryReader is the registry, local or remote, as other parts of the node
// use it.
type registryReader interface {
	index.NameSource
	Nodes(ctx context.Context, since flow.Version) ([]registry.Node, flow.Version, error)
}

func (n *Node) registryReader() registryReader {
	if n.registry != nil {
		return n.registry
	}
	return n.remoteClients.registry
}

// overlayPeers is the overlay, local or remote, as the index uses it.
func (n *Node) overlayPeers() index.PeerSet {
	if n.overlay != nil {
		return peerSet{n.overlay, func(ctx context.Context, address b3.Address, from oap.PeerID) (io.ReadCloser, error) {
			return n.overlay.Open(ctx, address, &from)
		}}
	}
	return peerSet{n.remoteClients.overlay, n.remoteClients.overlay.Open}
}

// onIndexEvent logs the events of the index. Objects and names come and go;
// only what the operator may have to act on is a warning.
func (n *Node) onIndexEvent(event index.Event) {
	n.onNameEvent(event)
	level := slog.LevelInfo
	switch event.Type {
	case index.BreakerOpened, index.Lied, index.Failed, index.NameShadowed, index.KeptAll:
		level = slog.LevelWarn
	case index.NamePublished:
		level = slog.LevelDebug
	}
	n.logAsync(level, string(event.Type), "of", event.Key, "detail", event.Detail) // not "key", which would be redacted as a secret
}

// selfProvider is the node's own provider record. It is known once the node
// listens.
func (n *Node) selfProvider() index.Provider {
	if at := n.self.Load(); at != nil {
		return *at
	}
	return index.Provider{}
}

// updateSelf computes where others can reach this node. Several parts may have
// moved at the same time, so it retries if another goroutine has stored a
// result meanwhile.
func (n *Node) updateSelf(c Config) {
	for {
		before := n.self.Load()
		at, err := n.buildSelf(c)
		if n.self.CompareAndSwap(before, &at) {
			n.noteAddresses(err)
			return
		}
	}
}

// noteAddresses says in the readiness table that nobody is told where this node
// is. It serves all the same, so it stays ready.
func (n *Node) noteAddresses(err error) {
	switch {
	case n.addresses == nil: // a node that is not made completely
	case err == nil:
		n.addresses.Up()
	default:
		n.addresses.UpWithRemark("no address is published for the listeners on all addresses: "+fault.DetailOf(err), "Set node.advertise. "+fault.NextOf(err))
	}
}

// buildSelf is where others can reach this node: the configured addresses, or
// else those of its listeners.
func (n *Node) buildSelf(c Config) (at index.Provider, err error) {
	at = index.Provider{ID: n.identity.PeerID(), Region: c.Index.Region}
	for _, one := range c.Node.Advertise {
		if strings.Contains(one, "://") {
			at.HTTP = append(at.HTTP, one)
		} else {
			at.Overlay = append(at.Overlay, one)
		}
	}
	overlay, gateway := n.listenerStatus()
	var failed error
	if len(at.Overlay) == 0 {
		at.Overlay, err = n.dialable(overlay.Overlay)
	}
	if len(at.HTTP) == 0 {
		scheme := "http://"
		if gateway.TLS {
			scheme = "https://"
		}
		var list []string
		list, failed = n.dialable(gateway.HTTP)
		for _, hostport := range list {
			at.HTTP = append(at.HTTP, scheme+hostport)
		}
	}
	return at, cmp.Or(err, failed)
}

// listenerStatus is the status of the processes that others reach: the overlay
// and the gateway. One that has not reported yet listens nowhere.
func (n *Node) listenerStatus() (overlay, gateway partStatus) {
	find := func(part string) partStatus {
		if n.layout.local[part] {
			return n.partStatus()
		}
		if r := n.remoteNamed(part); r != nil {
			if said := r.lastStatus.Load(); said != nil {
				return *said
			}
		}
		return partStatus{}
	}
	return find("overlay"), find(gatewayPart)
}

// refreshSelf computes again where others can reach this node, after another
// process of it has reported where it listens.
func (n *Node) refreshSelf() { n.updateSelf(n.config.Current().Value) }

// maxSelfAddrs is how many of its own addresses a node publishes.
const maxSelfAddrs = 8

// dialable are the addresses by which others can reach a listener. One that
// listens on all addresses is reached on each of the machine's own, except
// those that mean something else on another machine.
func (n *Node) dialable(listener string) (list []string, err error) {
	at, err := netip.ParseAddrPort(listener)
	if err != nil {
		return nil, nil // not on TCP: nobody dials it
	}
	if !at.Addr().IsUnspecified() {
		return []string{at.String()}, nil
	}
	port := at.String()[strings.LastIndexByte(at.String(), ':')+1:]
	machine, err := n.machineAddrs("node.advertise")
	for _, one := range machine {
		prefix, err := netip.ParsePrefix(one.String())
		if ip := prefix.Addr(); err == nil && ip.IsGlobalUnicast() && len(list) < maxSelfAddrs {
			list = append(list, net.JoinHostPort(ip.String(), port))
		}
	}
	return list, err
}

// machineAddrs are the addresses of this machine. The kernel of Linux tells
// them by a netlink socket, which a service may be forbidden.
func (n *Node) machineAddrs(op string) ([]net.Addr, error) {
	read := n.options.Addresses
	if read == nil {
		read = net.InterfaceAddrs
	}
	list, err := read()
	if err != nil {
		return nil, fault.New(op, fault.NotReady, "the addresses of this machine cannot be read").
			Advise("If a service starts the node, allow it AF_NETLINK: in a unit, RestrictAddressFamilies has it.").Because(err)
	}
	return list, nil
}

// peerSet is the overlay as the index sees it.
type peerSet struct {
	overlay interface {
		ConnectedPeers() []overlay.ConnectedPeer
		Ask(ctx context.Context, peer oap.PeerID, q overlay.Question) (overlay.Found, error)
		OpenPart(ctx context.Context, address b3.Address, peer oap.PeerID, view oap.View, from, length int64) (io.ReadCloser, error)
	}
	open func(ctx context.Context, address b3.Address, from oap.PeerID) (io.ReadCloser, error)
}

// ConnectedPeers lists the peers with a session.
func (p peerSet) ConnectedPeers() (list []index.ConnectedPeer) {
	for _, one := range p.overlay.ConnectedPeers() {
		list = append(list, index.ConnectedPeer(one))
	}
	return list
}

// Open starts to fetch an object from a peer.
func (p peerSet) Open(ctx context.Context, address b3.Address, from oap.PeerID) (io.ReadCloser, error) {
	return p.open(ctx, address, from)
}

// OpenPart starts to fetch a part of an object from a peer.
func (p peerSet) OpenPart(ctx context.Context, address b3.Address, peer oap.PeerID, view oap.View, from, length int64) (io.ReadCloser, error) {
	return p.overlay.OpenPart(ctx, address, peer, view, from, length)
}

// Ask sends a peer a question.
func (p peerSet) Ask(ctx context.Context, peer oap.PeerID, q index.Question) (index.Answer, error) {
	found, err := p.overlay.Ask(ctx, peer, overlay.Question{Obj: q.String(), Most: maxFoundProviders})
	if err != nil {
		return index.Answer{}, err
	}
	return decodeFound(found, time.Now())
}

// maxFoundProviders is how many providers a peer is asked for.
const maxFoundProviders = 32

// decodeFound converts a peer's answer for the index.
func decodeFound(found overlay.Found, now time.Time) (answer index.Answer, err error) {
	for _, one := range found.Providers {
		answer.Providers = append(answer.Providers, index.Provider{
			ID: one.ID, Overlay: one.Overlay, HTTP: one.HTTP, Region: one.Region, Seen: now.Add(-one.Age), Source: index.FromPeer,
		})
	}
	if len(found.Record) > 0 {
		name, err := index.DecodeName(found.Record)
		if err != nil {
			return index.Answer{}, err
		}
		answer.Name = &name
	}
	return answer, nil
}

// answerPeer answers a peer's question from what this node knows.
func (n *Node) answerPeer(ctx context.Context, question overlay.Question) (found overlay.Found) {
	id, err := index.ParseID(question.Obj)
	if err != nil {
		return overlay.Found{} // an invalid ID has no providers
	}
	now := time.Now()
	answer, err := n.answer(ctx, id)
	if err != nil {
		return overlay.Found{} // the index is down: the peer may ask other nodes
	}
	for _, p := range answer.Providers[:min(len(answer.Providers), question.Most)] {
		one := overlay.FoundProvider{ID: p.ID, Overlay: p.Overlay, HTTP: p.HTTP, Region: p.Region}
		if !p.Seen.IsZero() {
			one.Age = max(0, now.Sub(p.Seen))
		}
		found.Providers = append(found.Providers, one)
	}
	if answer.Name != nil {
		found.Record = answer.Name.Encode()
	}
	return found
}

// answer asks the index, local or remote. One that is not open yet knows
// nothing.
func (n *Node) answer(ctx context.Context, id index.ID) (index.Answer, error) {
	switch {
	case n.index != nil:
		return n.index.Answer(id.Question(n.overlay.ID())), nil
	case n.remoteClients.index != nil:
		return n.remoteClients.index.Answer(ctx, id)
	}
	return index.Answer{}, nil
}

// registryPeers are the nodes of the registry, as peers of the overlay.
type registryPeers struct{ registry registryReader }

// Peers waits until the list changes, and returns it.
func (r registryPeers) Peers(ctx context.Context, since flow.Version) (contacts []overlay.Contact, now flow.Version, err error) {
	nodes, now, err := r.registry.Nodes(ctx, since)
	for _, one := range nodes {
		contacts = append(contacts, overlay.Contact{ID: one.PeerID, Addrs: one.Addrs})
	}
	return contacts, now, err
}

// nameStore keeps the names of a node in its folder, a file each.
type nameStore struct{ folder *Folder }

const nameSuffix = ".name"

// Load reads all of them.
func (n nameStore) Load() (records [][]byte, err error) {
	path := n.folder.join(namesFolder)
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, folderError(path, err)
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, folderError(path, err)
	}
	entries = slices.DeleteFunc(entries, func(e os.DirEntry) bool { return !strings.HasSuffix(e.Name(), nameSuffix) })
	for _, entry := range entries {
		raw, err := os.ReadFile(n.folder.join(namesFolder, entry.Name()))
		if err != nil {
			return nil, folderError(path, err)
		}
		records = append(records, raw)
	}
	return records, nil
}

// Save keeps a name atomically, and returns when it is on the disk.
func (n nameStore) Save(key string, record []byte) error {
	return n.folder.write(namesFolder+"/"+key+nameSuffix, record)
}

// Remove deletes one.
func (n nameStore) Remove(key string) error {
	path := n.folder.join(namesFolder)
	if err := os.Remove(n.folder.join(namesFolder, key+nameSuffix)); err != nil && !os.IsNotExist(err) {
		return folderError(path, err)
	}
	return syncFolder(path)
}
