package node

import (
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
	"micronode/internal/flow"
	"micronode/internal/index"
	"micronode/internal/oap"
	"micronode/internal/overlay"
	"micronode/internal/registry"
	"micronode/internal/supervise"
)

// indexStages is where the parts of the index run.
var indexStages = index.Stages{State: stageState, Workers: stageWorkers}

// openIndex makes the index.
func (n *Node) openIndex(ctx context.Context, c Config) (err error) {
	if err := n.openLibrary(c.Facets.Search); err != nil {
		return err
	}
	spec := index.Spec{
		Config: c.Index, Library: n.library, Key: n.identity.private, Skew: time.Duration(c.Node.ClockSkew), Store: n.store,
		Registry: n.governors(), Overlay: n.neighbours(), Self: n.whereabouts,
		Metrics: n.metrics, Readiness: n.readiness, Tracer: n.tracing.Tracer(),
	}
	if n.folder != nil {
		spec.Keeper, spec.Seen, spec.Deeds = nameFolder{n.folder}, n.folder.in(seenFile), n.folder.in(deedsFile)
	}
	n.index, err = index.New(ctx, n.inventory, n.supervisor, indexStages, spec)
	return err
}

// joinDHT takes part in the DHT, if there is one to join. That comes after the
// node listens: the first thing that others learn there is where it does.
func (n *Node) joinDHT(ctx context.Context, c Config) error {
	if !c.Index.DHT.On() {
		return nil
	}
	tasks, err := n.supervisor.NewGroup(supervise.GroupSpec{Service: "index", Kind: "dht", Stage: stageState, Max: 1})
	if err != nil {
		return err
	}
	advertise := func() []string {
		at := n.whereabouts()
		return at.Multiaddrs()
	}
	engine, err := openKad(ctx, c.Index.DHT, n.identity.private, time.Duration(c.Node.ClockSkew), advertise, tasks)
	if err == nil {
		n.index.Join(engine)
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

// governors is the registry, here or elsewhere, as others in the node use it.
type governors interface {
	index.NameSource
	Nodes(ctx context.Context, since flow.Version) ([]registry.Node, flow.Version, error)
}

func (n *Node) governors() governors {
	if n.registry != nil {
		return n.registry
	}
	return n.far.registry
}

// neighbours is the overlay, here or elsewhere, as the index uses it.
func (n *Node) neighbours() index.Neighbours {
	if n.overlay != nil {
		return neighbourhood{n.overlay, func(ctx context.Context, address b3.Address, from oap.PeerID) (io.ReadCloser, error) {
			return n.overlay.Open(ctx, address, &from)
		}}
	}
	return neighbourhood{n.far.overlay, n.far.overlay.Open}
}

// heardIndex writes down what the index did. Objects and names come and go;
// only what somebody may have to act on is worth a warning.
func (n *Node) heardIndex(event index.Event) {
	n.named(event)
	level := slog.LevelInfo
	switch event.Type {
	case index.BreakerOpened, index.Lied, index.Failed, index.NameShadowed:
		level = slog.LevelWarn
	case index.NamePublished:
		level = slog.LevelDebug
	}
	n.tell(level, string(event.Type), "of", event.Key, "detail", event.Detail) // not "key", which would be taken for a secret one
}

// whereabouts is where others can reach this node. It is known once it listens.
func (n *Node) whereabouts() index.Provider {
	if at := n.reachable.Load(); at != nil {
		return *at
	}
	return index.Provider{}
}

// locate finds out where others can reach this node. Several parts may have
// moved at the same time, so what was found while somebody else found something
// is looked for again.
func (n *Node) locate(c Config) {
	for {
		before, at := n.reachable.Load(), n.place(c)
		if n.reachable.CompareAndSwap(before, &at) {
			return
		}
	}
}

// place is where others can reach this node: where it says, or else where it
// listens.
func (n *Node) place(c Config) index.Provider {
	at := index.Provider{ID: n.identity.PeerID(), Region: c.Index.Region}
	for _, one := range c.Node.Advertise {
		if strings.Contains(one, "://") {
			at.HTTP = append(at.HTTP, one)
		} else {
			at.Overlay = append(at.Overlay, one)
		}
	}
	overlay, gateway := n.listeners()
	if len(at.Overlay) == 0 {
		at.Overlay = dialable(overlay.Overlay)
	}
	if len(at.HTTP) == 0 {
		scheme := "http://"
		if gateway.TLS {
			scheme = "https://"
		}
		for _, hostport := range dialable(gateway.HTTP) {
			at.HTTP = append(at.HTTP, scheme+hostport)
		}
	}
	return at
}

// listeners are the processes where others reach this node: its overlay and its
// gateway. One that has not been heard of yet listens nowhere.
func (n *Node) listeners() (overlay, gateway presence) {
	find := func(part string) presence {
		if n.layout.here[part] {
			return n.presence()
		}
		if r := n.remoteNamed(part); r != nil {
			if said := r.said.Load(); said != nil {
				return *said
			}
		}
		return presence{}
	}
	return find("overlay"), find(gatewayPart)
}

// relocate finds out anew where others can reach this node, after another process
// of it has said where it listens.
func (n *Node) relocate() { n.locate(n.config.Current().Value) }

// mostAddresses is how many addresses of its own a node tells.
const mostAddresses = 8

// dialable is what others can dial to reach a listener. One that listens on all
// addresses is reached on each of the machine's own, but for those that mean
// something else on another machine.
func dialable(listener string) (list []string) {
	at, err := netip.ParseAddrPort(listener)
	if err != nil {
		return nil
	}
	if !at.Addr().IsUnspecified() {
		return []string{at.String()}
	}
	port := at.String()[strings.LastIndexByte(at.String(), ':')+1:]
	own, _ := net.InterfaceAddrs() // a machine that does not say has none to tell
	for _, one := range own {
		prefix, err := netip.ParsePrefix(one.String())
		if ip := prefix.Addr(); err == nil && ip.IsGlobalUnicast() && len(list) < mostAddresses {
			list = append(list, net.JoinHostPort(ip.String(), port))
		}
	}
	return list
}

// neighbourhood is the overlay as the index sees it.
type neighbourhood struct {
	overlay interface {
		Neighbours() []overlay.Neighbour
		Ask(ctx context.Context, peer oap.PeerID, q overlay.Question) (overlay.Found, error)
	}
	open func(ctx context.Context, address b3.Address, from oap.PeerID) (io.ReadCloser, error)
}

// Neighbours lists the peers that there is a session with.
func (h neighbourhood) Neighbours() (list []index.Neighbour) {
	for _, one := range h.overlay.Neighbours() {
		list = append(list, index.Neighbour{ID: one.ID, Addr: one.Addr, RTT: one.RTT})
	}
	return list
}

// Open begins to fetch an object from a peer.
func (h neighbourhood) Open(ctx context.Context, address b3.Address, from oap.PeerID) (io.ReadCloser, error) {
	return h.open(ctx, address, from)
}

// Ask asks a peer what it knows.
func (h neighbourhood) Ask(ctx context.Context, peer oap.PeerID, q index.Question) (index.Answer, error) {
	found, err := h.overlay.Ask(ctx, peer, overlay.Question{Obj: q.String(), Most: mostFound})
	if err != nil {
		return index.Answer{}, err
	}
	return heard(found, time.Now())
}

// mostFound is how many providers a peer is asked for.
const mostFound = 32

// heard is what a peer said, as the index understands it.
func heard(found overlay.Found, now time.Time) (answer index.Answer, err error) {
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

// answerPeer says what this node knows of what a peer asks for.
func (n *Node) answerPeer(ctx context.Context, asked overlay.Question) (found overlay.Found) {
	id, err := index.ParseID(asked.Obj)
	if err != nil {
		return overlay.Found{} // what nobody can mean, nobody has
	}
	now := time.Now()
	answer, err := n.answer(ctx, id)
	if err != nil {
		return overlay.Found{} // the index is away: who asks may ask somebody else
	}
	for _, p := range answer.Providers[:min(len(answer.Providers), asked.Most)] {
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

// answer asks the index, here or elsewhere. One that is not open yet knows
// nothing.
func (n *Node) answer(ctx context.Context, id index.ID) (index.Answer, error) {
	switch {
	case n.index != nil:
		return n.index.Answer(id.Question(n.overlay.ID())), nil
	case n.far.index != nil:
		return n.far.index.Answer(ctx, id)
	}
	return index.Answer{}, nil
}

// members is the nodes of the registry, as peers of the overlay.
type members struct{ registry governors }

// Peers waits until the list is another, and gives it.
func (m members) Peers(ctx context.Context, since flow.Version) (contacts []overlay.Contact, now flow.Version, err error) {
	nodes, now, err := m.registry.Nodes(ctx, since)
	for _, one := range nodes {
		contacts = append(contacts, overlay.Contact{ID: one.PeerID, Addrs: one.Addrs})
	}
	return contacts, now, err
}

// nameFolder keeps the names of a node in its folder, a file each.
type nameFolder struct{ folder *Folder }

const nameSuffix = ".name"

// Load reads all of them.
func (f nameFolder) Load() (records [][]byte, err error) {
	path := f.folder.in(namesFolder)
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, unusable(path, err)
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, unusable(path, err)
	}
	entries = slices.DeleteFunc(entries, func(e os.DirEntry) bool { return !strings.HasSuffix(e.Name(), nameSuffix) })
	for _, entry := range entries {
		raw, err := os.ReadFile(f.folder.in(namesFolder, entry.Name()))
		if err != nil {
			return nil, unusable(path, err)
		}
		records = append(records, raw)
	}
	return records, nil
}

// Save keeps a name, whole or not at all, and returns when it is on the disk.
func (f nameFolder) Save(key string, record []byte) error {
	return f.folder.write(namesFolder+"/"+key+nameSuffix, record)
}

// Remove forgets one.
func (f nameFolder) Remove(key string) error {
	path := f.folder.in(namesFolder)
	if err := os.Remove(f.folder.in(namesFolder, key+nameSuffix)); err != nil && !os.IsNotExist(err) {
		return unusable(path, err)
	}
	return syncFolder(path)
}
