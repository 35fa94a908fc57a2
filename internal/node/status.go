package node

import (
	"net/http"
	"net/netip"
	"time"

	"micronode/client"
	"micronode/fault"
	"micronode/internal/capability"
	"micronode/internal/ingress"
	"micronode/internal/store"
)

// Info is what there is to know about a node that does not change while it
// runs.
type Info struct {
	PeerID    string
	Ephemeral bool // the peer ID is another at the next start
	Version   string
	Profile   string
	HTTP      string   // URL
	Admin     string   // URL
	Overlay   string   // ID@HOST:PORT, which another node takes as --peer; empty if nobody can call
	DHT       []string // multiaddrs, which another node takes as index.dht.bootstrap; empty if it is off
	Socket    string
	Parts     []string // what runs here, with --only; empty for everything
	Amnesia   bool
	Folder    string   // what is written to; empty in amnesia
	Confined  string   // what the kernel enforces, in words
	Packs     []string // URLs of the TileJSON of what is served
	Origins   []string // URLs under which allow-listed origins are served
	Open      bool
}

// Info tells what the banner shows.
func (n *Node) Info() Info {
	scheme := "http://"
	if n.keyring != nil {
		scheme = "https://"
	}
	gateway := scheme + n.http.Addr().String()
	info := Info{
		PeerID: n.identity.PeerID(), Ephemeral: n.identity.Ephemeral(), Version: n.build.Version, Profile: n.profile,
		HTTP: gateway, Admin: scheme + n.admin.Addr().String(), Socket: n.socket,
		Amnesia: n.amnesiac(), Confined: n.confinement(), Open: n.options.Open,
	}
	if n.layout.split() {
		info.Parts = n.layout.names()
	}
	if at := n.overlayAddr(); at != "" {
		info.Overlay = info.PeerID + "@" + at
	}
	info.DHT = n.dht()
	if n.folder != nil {
		info.Folder = n.folder.Path()
	}
	if n.edge == nil {
		return info
	}
	for _, path := range n.edge.Maps() {
		info.Packs = append(info.Packs, gateway+path)
	}
	for _, path := range n.edge.Origins() {
		info.Origins = append(info.Origins, gateway+path)
	}
	return info
}

// overlayAddr is where the overlay of this process listens, or empty.
func (n *Node) overlayAddr() string {
	if n.overlay == nil || n.overlay.Addr() == nil {
		return ""
	}
	return n.overlay.Addr().String()
}

// dht is where the index of this process is found in the DHT.
func (n *Node) dht() []string {
	if n.index == nil {
		return nil
	}
	return n.index.DHT()
}

// confinement says in words what the kernel enforces.
func (n *Node) confinement() string {
	switch {
	case !n.achieved.Landlock:
		return "not enforced by the kernel: " + n.achieved.Reason
	case n.amnesiac():
		return "the kernel refuses every write to disk"
	default:
		return "the kernel refuses every write outside " + n.folder.Path()
	}
}

func (n *Node) status(w http.ResponseWriter, _ *http.Request) error {
	return ingress.WriteJSON(w, http.StatusOK, n.Status())
}

// Status tells what the node is doing now, in the words of the SDK.
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
	s.Listen.Overlay, s.Listen.DHT, s.Parts = n.overlayAddr(), n.dht(), n.describeParts()
	for _, unit := range n.supervisor.Status() {
		line := client.Service{Name: unit.Name, State: string(unit.State), Restarts: int(unit.Restarts)}
		if unit.LastErr != nil {
			line.LastErr = unit.LastErr.Error()
		}
		s.Services = append(s.Services, line)
	}
	for _, part := range n.inventory.Read() {
		if part.Kind != "snapshot" && part.Kind != "lock" {
			s.Queues = append(s.Queues, client.Queue{Service: part.Service, Name: part.Name, Depth: part.Depth, Cap: part.Cap})
		}
	}
	return s
}

// MintRequest asks for a capability.
type MintRequest struct {
	Scopes []string `json:"scopes"`
	TTL    int64    `json:"ttl_s"`
	Path   string   `json:"path,omitempty"`
	Topic  string   `json:"topic,omitempty"`
	Rate   string   `json:"rate,omitempty"` // 10/1s, or 10/1s burst 20
	IPs    []string `json:"ips,omitempty"`  // addresses or prefixes
}

// Minted is the answer to a MintRequest.
type Minted struct {
	Token   string    `json:"token"`
	Expires time.Time `json:"expires"`
}

// mint makes a capability. Who may ask for one may do everything, so nothing
// is gained by asking for less than one has.
func (n *Node) mint(w http.ResponseWriter, r *http.Request) error {
	var ask MintRequest
	if err := ingress.DecodeJSON(r, &ask); err != nil {
		return err
	}
	caveats, err := ask.caveats(time.Now())
	if err != nil {
		return err
	}
	token, err := n.authority.Mint(caveats)
	if err != nil {
		return err
	}
	w.Header().Set("Cache-Control", "no-store")
	return ingress.WriteJSON(w, http.StatusCreated, Minted{Token: token, Expires: caveats.Expires.UTC()})
}

// longestTTL keeps a capability from outliving whoever remembers that it was
// given.
const longestTTL = 366 * 24 * time.Hour

func (m MintRequest) caveats(now time.Time) (capability.Caveats, error) {
	const op = "token.mint"
	ttl := time.Duration(m.TTL) * time.Second
	if m.TTL < 1 || m.TTL > int64(longestTTL/time.Second) {
		err := fault.New(op, fault.Malformed, "ttl_s must be from 1 to %d seconds", int64(longestTTL/time.Second))
		err.Next = "Say how long the capability is to be good for, with --ttl."
		return capability.Caveats{}, err
	}
	caveats := capability.Caveats{Expires: now.Add(ttl)}
	if m.Path != "" {
		caveats.Paths = []string{m.Path}
	}
	if m.Topic != "" {
		caveats.Topics = []string{m.Topic}
	}
	for _, text := range m.Scopes {
		scope, err := capability.ParseScope(text)
		if err != nil {
			return caveats, err
		}
		caveats.Scopes = append(caveats.Scopes, scope)
	}
	if m.Rate != "" {
		rate, err := capability.ParseRate(m.Rate)
		if err != nil {
			return caveats, err
		}
		caveats.Rate = rate
	}
	for _, text := range m.IPs {
		prefix, err := parsePrefix(text)
		if err != nil {
			return caveats, err
		}
		caveats.Clients = append(caveats.Clients, prefix)
	}
	return caveats, nil
}

func parsePrefix(text string) (netip.Prefix, error) {
	if address, err := netip.ParseAddr(text); err == nil {
		return netip.PrefixFrom(address, address.BitLen()), nil
	}
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		wrong := fault.New("token.mint", fault.Malformed, "%q is neither an IP address nor a prefix", text)
		wrong.Next = "Write 192.0.2.7 or 192.0.2.0/24."
		return prefix, wrong
	}
	return prefix, nil
}
