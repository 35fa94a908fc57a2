package node

import (
	"net/http"
	"time"

	"micronode/client"
	"micronode/internal/ingress"
	"micronode/internal/store"
)

// Info is what does not change while a node runs.
type Info struct {
	PeerID    string
	Ephemeral bool // the peer ID changes at the next start
	Version   string
	Profile   string
	HTTP      string   // URL
	Admin     string   // URL
	Overlay   string   // ID@HOST:PORT, which another node takes as --peer; empty if it does not listen
	DHT       []string // multiaddrs, which another node takes as index.dht.bootstrap; empty if it is off
	Socket    string
	Parts     []string // the parts that run here, with --only; empty for all
	Amnesia   bool
	Folder    string   // the folder that is written to; empty in amnesia
	Confined  string   // what the kernel enforces, in words
	Packs     []string // URLs of the TileJSON of the mounted packs
	Origins   []string // URLs under which allow-listed origins are served
	Open      bool
	Notes     []string // what the start found and changed, such as a port that was taken
	Domains   []string // URLs under which everybody sees the gateway
	LAN       []string // URLs of the gateway in private networks, for reads
	Public    []string // groups of reads that are open to strangers
}

// Info returns what the banner shows.
func (n *Node) Info() Info {
	scheme := "http://"
	if n.tlsSource != nil {
		scheme = "https://"
	}
	gateway := scheme + n.http.Addr().String()
	info := Info{
		PeerID: n.identity.PeerID(), Ephemeral: n.identity.Ephemeral(), Version: n.build.Version, Profile: n.profile,
		HTTP: gateway, Admin: n.adminURL(), Socket: n.socket,
		Amnesia: n.amnesiac(), Confined: n.confinement(), Open: n.options.Open, Notes: n.notes, Public: n.public,
	}
	if n.layout.isSplit() {
		info.Parts = n.layout.names()
	}
	if at := n.overlayAddr(); at != "" {
		info.Overlay = info.PeerID + "@" + at
	}
	info.DHT = n.dht()
	info.Domains, info.LAN = n.publicURLs()
	if len(info.Domains) > 0 {
		gateway = info.Domains[0]
	}
	if n.folder != nil {
		info.Folder = n.folder.Path()
	}
	if n.edge == nil {
		return info
	}
	for _, path := range n.edge.TileJSONPaths() {
		info.Packs = append(info.Packs, gateway+path)
	}
	for _, path := range n.edge.OriginPaths() {
		info.Origins = append(info.Origins, gateway+path)
	}
	return info
}

func (n *Node) adminURL() string {
	if adminSpeaksTLS(n.config.Current().Value) {
		return "https://" + n.admin.Addr().String()
	}
	return "http://" + n.admin.Addr().String()
}

// overlayAddr is the address of the overlay in this process, or empty.
func (n *Node) overlayAddr() string {
	if n.overlay == nil || n.overlay.Addr() == nil {
		return ""
	}
	return n.overlay.Addr().String()
}

// dht are the addresses of this process's index in the DHT.
func (n *Node) dht() []string {
	if n.index == nil {
		return nil
	}
	return n.index.DHTAddrs()
}

// confinement describes what the kernel enforces.
func (n *Node) confinement() string {
	switch {
	case !n.confined.Landlock:
		return "not enforced by the kernel: " + n.confined.Reason
	case n.amnesiac():
		return "the kernel refuses every write to disk"
	default:
		return "the kernel refuses every write outside " + n.folder.Path()
	}
}

func (n *Node) handleStatus(w http.ResponseWriter, _ *http.Request) error {
	return ingress.WriteJSON(w, http.StatusOK, n.Status())
}

// Status returns what the node is doing now, in the types of the SDK.
func (n *Node) Status() client.Status {
	verdict := n.readiness.Evaluate()
	var usage store.Usage
	if n.store != nil {
		usage = n.store.Usage()
	}
	s := client.Status{
		PeerID: n.identity.PeerID(), Version: n.build.Version, Profile: n.profile, Amnesia: n.amnesiac(), Confined: n.confinement(),
		Listen: client.Listen{HTTP: n.http.Addr().String(), Admin: n.admin.Addr().String()},
		Ready:  verdict.Ready, WriteReady: verdict.WriteReady, Degraded: verdict.Degraded,
		Store: client.Store{Objects: usage.Objects, Bytes: usage.Bytes, Budget: usage.Budget},
	}
	s.Public, s.Refused, s.Bandwidth = n.public, n.refusals.Recent(time.Now()), n.clientBandwidth()
	if list := n.certificateList.Load(); list != nil {
		s.Certificates = *list
	}
	for _, one := range n.gateway.RefusedOrigins() {
		s.RefusedOrigins = append(s.RefusedOrigins, client.RefusedOrigin{Origin: one.Origin, Route: one.Route, Times: one.Times, Last: one.Last.UTC().Format(time.RFC3339), Next: one.Next})
	}
	used, _ := n.memory.used() // zero where it cannot be measured
	s.Memory = client.Memory{Used: int64(used), Limit: int64(n.memory.limit.bytes), From: n.memory.limit.source}
	s.Listen.Overlay, s.Listen.DHT, s.Parts = n.overlayAddr(), n.dht(), n.clientParts()
	if n.overlay != nil {
		s.Knocks, s.Nearby = n.overlay.Knocks(), n.overlay.Nearby()
	}
	for _, unit := range n.supervisor.Status() {
		line := client.Service{Name: unit.Name, State: string(unit.State), Restarts: int(unit.Restarts)}
		if unit.LastErr != nil {
			line.LastErr = unit.LastErr.Error()
		}
		s.Services = append(s.Services, line)
	}
	for _, part := range n.inventory.Read() {
		if part.Kind != "snapshot" {
			s.Queues = append(s.Queues, client.Queue{Service: part.Service, Name: part.Name, Depth: part.Depth, Cap: part.Cap})
		}
	}
	return s
}
