package node

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"micronode/fault"
	"micronode/internal/capability"
	"micronode/internal/config"
	"micronode/internal/edge"
	"micronode/internal/facet"
	"micronode/internal/gateway"
	"micronode/internal/index"
	"micronode/internal/ingress"
	"micronode/internal/mailbox"
	"micronode/internal/overlay"
	"micronode/internal/registry"
	"micronode/internal/store"
	"micronode/internal/typo"
)

// part is something that a process can run without the rest of the node. The
// table of parts is all that --only, [node.parts] and the gateway know.
type part struct {
	name string
	addr func(Parts) string // its address, if it is remote

	// The parts that it calls. Without those in needs it answers nothing;
	// without those in uses it does less, and reports so. They are local, or in
	// [node.parts].
	needs, uses []string

	enabled func(facet.Config) bool // whether it is turned on; nil for always

	usesIdentity bool // other nodes know it by the node's identity, so all parts must have the same one
	perClient    bool // it shares its work fairly between clients, or remembers who sent what, so a remote gateway forwards the client

	// Its routes. routeTable is the list by itself, for a gateway in another
	// process; surface is the same list with its handlers, its prepared
	// answers, and the routes for other parts only.
	routeTable func() []ingress.Route
	surface    func(*Node) partSurface
}

// partSurface is what a local part offers.
type partSurface struct {
	routes     []ingress.Route
	partRoutes []ingress.Route
	warm       ingress.WarmRoutes
}

// gatewayPart mounts the routes of all the others, so it needs them all.
const gatewayPart = "gateway"

// graphPart is the facet that runs together with its data: the graph has no
// other owner.
const graphPart = "graph"

// parts are all parts, in the order in which their routes are listed.
var parts = []part{
	{
		name: "store", addr: func(p Parts) string { return p.Store }, uses: []string{"index"},
		routeTable: func() []ingress.Route { return new(store.ObjectHandler).Routes() },
		surface: func(n *Node) partSurface {
			return partSurface{n.objects.Routes(), n.objects.PartRoutes(), ingress.WarmRoutes{{Prefix: store.ObjectPrefix, Source: n.objectCache}}}
		},
	},
	{
		name: "edge", addr: func(p Parts) string { return p.Edge }, uses: []string{"store", "index"},
		routeTable: func() []ingress.Route { return new(edge.Edge).Routes() },
		surface:    func(n *Node) partSurface { return partSurface{routes: n.edge.Routes(), warm: n.edge.WarmRoutes()} },
	},
	{
		name: "overlay", addr: func(p Parts) string { return p.Overlay }, needs: []string{"store"}, uses: []string{"index", "registry"}, usesIdentity: true,
		routeTable: func() []ingress.Route { return new(overlay.Overlay).Routes() },
		surface: func(n *Node) partSurface {
			return partSurface{routes: n.overlay.Routes(), partRoutes: n.overlay.PartRoutes()}
		},
	},
	{
		name: "registry", addr: func(p Parts) string { return p.Registry }, uses: []string{"overlay"}, usesIdentity: true,
		routeTable: func() []ingress.Route { return new(registry.Registry).Routes() },
		surface: func(n *Node) partSurface {
			return partSurface{routes: n.registry.Routes(), warm: n.registry.WarmRoutes()}
		},
	},
	{
		name: "index", addr: func(p Parts) string { return p.Index }, needs: []string{"store", "registry"}, uses: []string{"overlay", gatewayPart}, usesIdentity: true, perClient: true,
		routeTable: func() []ingress.Route { return new(index.Index).Routes() },
		surface: func(n *Node) partSurface {
			return partSurface{n.index.Routes(), append(n.index.PartRoutes(), n.library.PartRoutes()...), n.index.WarmRoutes()}
		},
	},
	{
		name: "mailbox", addr: func(p Parts) string { return p.Mailbox }, perClient: true,
		routeTable: func() []ingress.Route { return new(mailbox.Mailbox).Routes() },
		surface: func(n *Node) partSurface {
			return partSurface{routes: n.mailbox.Routes(), partRoutes: n.mailbox.PartRoutes()}
		},
	},
	facetPart("feed", func(p Parts) string { return p.Feed }, func(c facet.Config) bool { return c.Feed.Enabled }, "mailbox", "graph"),
	facetPart(graphPart, func(p Parts) string { return p.Graph }, func(c facet.Config) bool { return c.Graph.Enabled }),
	facetPart("search", func(p Parts) string { return p.Search }, func(c facet.Config) bool { return c.Search.Enabled }, "index"),
	facetPart("media", func(p Parts) string { return p.Media }, func(c facet.Config) bool { return c.Media.Enabled }, "store"),
	{
		name: gatewayPart, addr: func(p Parts) string { return p.Gateway }, usesIdentity: true,
		routeTable: func() []ingress.Route { return nil },
		surface:    func(*Node) partSurface { return partSurface{} },
	},
}

// facetPart is a part that is a facet. The graph is the only one that runs
// together with its data, and so the only one that other parts call.
func facetPart(name string, addr func(Parts) string, enabled func(facet.Config) bool, needs ...string) part {
	return part{
		name: name, addr: addr, enabled: enabled, needs: needs, perClient: name == "feed", // whose idempotency keys are those of senders
		routeTable: func() []ingress.Route { return facetRoutes(name, new(facet.Facets).Routes()) },
		surface: func(n *Node) partSurface {
			surface := partSurface{routes: facetRoutes(name, n.facets.Routes())}
			if name == graphPart && n.graph != nil {
				surface.partRoutes = n.graph.PartRoutes()
			}
			return surface
		},
	}
}

// Parts is [node.parts]: the addresses of the parts that run in processes of
// their own. A process ignores the entries of its own parts, so all of them can
// have the same section.
type Parts struct {
	Store    string `toml:"store" doc:"The address of the store, for parts in other processes: https://HOST:PORT, or a local socket such as @micronode-1000.store." restart:"true"`
	Gateway  string `toml:"gateway" doc:"The address of the gateway, written like store." restart:"true"`
	Overlay  string `toml:"overlay" doc:"The address of the overlay, written like store." restart:"true"`
	Index    string `toml:"index" doc:"The address of the index, written like store." restart:"true"`
	Edge     string `toml:"edge" doc:"The address of the edge, written like store." restart:"true"`
	Registry string `toml:"registry" doc:"The address of the registry, written like store." restart:"true"`
	Mailbox  string `toml:"mailbox" doc:"The address of the mailbox, written like store." restart:"true"`
	Feed     string `toml:"feed" doc:"The address of the facet feed, written like store." restart:"true"`
	Graph    string `toml:"graph" doc:"The address of the facet graph, written like store." restart:"true"`
	Search   string `toml:"search" doc:"The address of the facet search, written like store." restart:"true"`
	Media    string `toml:"media" doc:"The address of the facet media, written like store." restart:"true"`
}

// Validate checks the section by itself.
func (p Parts) Validate() error {
	for _, one := range parts {
		addr := one.addr(p)
		if addr == "" {
			continue
		}
		if _, err := gateway.ParsePartAddr(addr); err != nil {
			return config.Invalid(one.name, fault.NextOf(err), "%s", fault.DetailOf(err))
		}
	}
	return nil
}

// PartNames lists the values of --only.
func PartNames() (names []string) {
	for _, one := range parts {
		names = append(names, one.name)
	}
	return names
}

// layout is which parts run here, and the addresses of the others that these
// need.
type layout struct {
	firstPart string                      // the first part of --only; empty without it
	local     map[string]bool             // parts of this process
	disabled  map[string]bool             // parts that are turned off: their routes answer how to turn them on
	remote    map[string]gateway.PartAddr // parts in other processes
	required  map[string]bool             // those of remote without which nothing is served here
}

// newLayout reads --only. Without it, all parts run here.
func newLayout(only []string, c Config) (layout, error) {
	l := layout{local: map[string]bool{}, disabled: map[string]bool{}, remote: map[string]gateway.PartAddr{}, required: map[string]bool{}}
	for _, one := range parts {
		l.disabled[one.name] = one.enabled != nil && !one.enabled(c.Facets)
	}
	for _, name := range only {
		switch {
		case !slices.Contains(PartNames(), name):
			return layout{}, unknownPart(name)
		case l.disabled[name]:
			return layout{}, partDisabled(name)
		}
		l.local[name] = true
	}
	if len(only) == 0 {
		for _, name := range PartNames() {
			l.local[name] = true
		}
		return l, nil
	}
	l.firstPart = only[0]
	return l, l.resolveRemotes(c.Node.Parts)
}

// resolveRemotes looks up the addresses of the parts that those of this process
// call.
func (l *layout) resolveRemotes(addrs Parts) error {
	var missing []string
	var dependent string
	for _, one := range parts {
		if !l.local[one.name] {
			continue
		}
		needs := one.needs
		if one.name == gatewayPart {
			needs = PartNames()
		}
		for _, name := range slices.Concat(needs, one.uses) {
			if l.local[name] || l.disabled[name] {
				continue
			}
			l.required[name] = l.required[name] || slices.Contains(needs, name)
			text := partNamed(name).addr(addrs)
			if text == "" {
				if !slices.Contains(missing, name) {
					missing = append(missing, name)
				}
				dependent = one.name
				continue
			}
			addr, err := gateway.ParsePartAddr(text)
			if err != nil {
				return err
			}
			l.remote[name] = addr
		}
	}
	if len(missing) > 0 {
		return missingParts(dependent, missing)
	}
	return nil
}

func partNamed(name string) part {
	return parts[slices.IndexFunc(parts, func(one part) bool { return one.name == name })]
}

// isSplit reports whether the process is one of several.
func (l layout) isSplit() bool { return l.firstPart != "" }

// names lists the parts of this process, in the order of the table.
func (l layout) names() (names []string) {
	for _, one := range parts {
		if l.local[one.name] {
			names = append(names, one.name)
		}
	}
	return names
}

// socket is the name of the local socket: with --only, that of the first part
// in it.
func (l layout) socket() string { return capability.DefaultSocket(os.Geteuid(), l.firstPart) }

const partsOp = "node.parts"

func unknownPart(name string) error {
	err := fault.New(partsOp, fault.Malformed, "there is no part %q", shorten(name)).
		Advise("Name one or more of " + strings.Join(PartNames(), ", ") + ", separated by commas: --only store,gateway.")
	if near := nearestPart(name); near != "" {
		err.Detail += "; did you mean " + near + "?"
	}
	return err
}

func partDisabled(name string) error {
	return fault.New(partsOp, fault.Malformed, "the part %s is turned off", name).
		Advise("Set facets." + name + ".enabled = true in the configuration, or MICRO_FACETS__" + strings.ToUpper(name) + "__ENABLED=true, in this process and in that of the gateway.")
}

func shorten(text string) string {
	const most = 40
	if len(text) > most {
		return text[:most] + "…"
	}
	return text
}

// nearestPart is the part that was most likely meant: the one with the fewest
// typing errors in its name, two at most, and three letters right.
func nearestPart(name string) (nearest string) {
	name, least := strings.ToLower(strings.TrimSpace(name)), 3
	for _, known := range PartNames() {
		slips := typo.Distance(name, known)
		if slips < least && max(len(name), len(known))-slips >= 3 {
			nearest, least = known, slips
		}
	}
	return nearest
}

func missingParts(dependent string, missing []string) error {
	slices.Sort(missing)
	err := fault.New(partsOp, fault.Malformed, "the part %s needs the address of %s", dependent, strings.Join(missing, ", "))
	var lines []string
	for _, name := range missing {
		lines = append(lines, fmt.Sprintf("%s = \"@%s\"", name, capability.DefaultSocket(os.Geteuid(), name)))
	}
	err.Next = "Add them to --only, or to the section [node.parts] of the configuration, as sockets or as https:// URLs: " + strings.Join(lines, ", ") + "."
	return err
}

// checkSharedSecrets rejects generated secrets in a process of a split node:
// the processes would reject each other's capabilities, and have different
// identities for the rest of the network.
func (n *Node) checkSharedSecrets(c Config) error {
	if !n.layout.isSplit() {
		return nil
	}
	if !c.Auth.Root.IsSet() {
		return &fault.Error{Op: partsOp, Kind: fault.Malformed, Detail: "the parts of a node authenticate each other by auth.root, and it is not set",
			Next: "Create one secret for all of them, such as `openssl rand -hex 32 > root.key`, and set auth.root = \"file:root.key\", or MICRO_AUTH__ROOT=file:root.key."}
	}
	if n.usesIdentity() && c.Node.Identity == "ephemeral" {
		return &fault.Error{Op: partsOp, Kind: fault.Malformed, Detail: "the parts of a node share one identity, and this process has an ephemeral one",
			Next: "Create one with `micronode identity new --out node.key`, and set node.identity = \"file:node.key\" for all of them, or --identity file:node.key."}
	}
	return nil
}

// partDrain is the default drain time of a part alone.
const partDrain = 3 * time.Second

// load reads the configuration. Some defaults of a part differ from those of a
// whole node: only the gateway has the well-known ports.
func load(options Options) (*config.Loaded[Config], error) {
	loaded, err := Load(options.Profile, options.Sources)
	if err == nil {
		setPublicDefaults(loaded)
	}
	if err != nil || len(options.Only) == 0 {
		return loaded, err
	}
	c := &loaded.Value
	isDefault := func(key string) bool { return loaded.Origin(key).Layer == config.LayerDefault }
	if isDefault("node.drain") {
		c.Node.Drain = partDrain
	}
	if !slices.Contains(options.Only, gatewayPart) {
		if isDefault("http.addr") {
			c.HTTP.Addr = anyPort
		}
		if isDefault("admin.addr") {
			c.Admin.Addr = anyPort
		}
	}
	return loaded, nil
}

const anyPort = "127.0.0.1:0"
