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
)

// part is something that a process can run without the rest of the node. The
// table of them is all that --only, [node.parts] and the gateway know.
type part struct {
	name  string
	place func(Parts) string // where it runs, if that is not here

	// Whom it asks. Without those it needs it serves nobody; without the others
	// it does less, and says so. They are here, or in [node.parts].
	needs, asks []string

	on func(facet.Config) bool // whether it is turned on; nil for always

	known bool // others know it by the node's identity, so all parts must have the same one
	fair  bool // it shares what it does between clients, so a gateway elsewhere tells it for whom it asks

	// What can be asked of it. Table is the list by itself, for a gateway in
	// another process; face is the same list with its handlers, what it keeps
	// ready, and what only other parts ask.
	table func() []ingress.Route
	face  func(*Node) face
}

// face is what a part that runs here shows.
type face struct {
	routes []ingress.Route
	seams  []ingress.Route
	warm   ingress.Shelves
}

// gatewayPart mounts the routes of all the others, so it needs them all.
const gatewayPart = "gateway"

// graphPart is the facet whose owner runs with it: who follows whom is kept by
// nobody else.
const graphPart = "graph"

// parts are all there are, in the order in which their routes are listed.
var parts = []part{
	{
		name: "store", place: func(p Parts) string { return p.Store }, asks: []string{"index"},
		table: func() []ingress.Route { return new(store.Objects).Routes() },
		face: func(n *Node) face {
			return face{n.objects.Routes(), n.objects.Seams(), ingress.Shelves{{Prefix: store.ShelfPrefix, Warm: n.shelf}}}
		},
	},
	{
		name: "edge", place: func(p Parts) string { return p.Edge }, asks: []string{"store", "index"},
		table: func() []ingress.Route { return new(edge.Edge).Routes() },
		face:  func(n *Node) face { return face{routes: n.edge.Routes(), warm: n.edge.Shelves()} },
	},
	{
		name: "overlay", place: func(p Parts) string { return p.Overlay }, needs: []string{"store"}, asks: []string{"index", "registry"}, known: true,
		table: func() []ingress.Route { return new(overlay.Overlay).Routes() },
		face:  func(n *Node) face { return face{routes: n.overlay.Routes(), seams: n.overlay.Seams()} },
	},
	{
		name: "registry", place: func(p Parts) string { return p.Registry }, asks: []string{"overlay"}, known: true,
		table: func() []ingress.Route { return new(registry.Registry).Routes() },
		face:  func(n *Node) face { return face{routes: n.registry.Routes(), warm: n.registry.Shelves()} },
	},
	{
		name: "index", place: func(p Parts) string { return p.Index }, needs: []string{"store", "registry"}, asks: []string{"overlay", gatewayPart}, known: true, fair: true,
		table: func() []ingress.Route { return new(index.Index).Routes() },
		face:  func(n *Node) face { return face{n.index.Routes(), n.index.Seams(), n.index.Shelves()} },
	},
	{
		name: "mailbox", place: func(p Parts) string { return p.Mailbox },
		table: func() []ingress.Route { return new(mailbox.Mailbox).Routes() },
		face:  func(n *Node) face { return face{routes: n.mailbox.Routes(), seams: n.mailbox.Seams()} },
	},
	facetPart("feed", func(p Parts) string { return p.Feed }, func(c facet.Config) bool { return c.Feed.Enabled }, "mailbox", "graph"),
	facetPart(graphPart, func(p Parts) string { return p.Graph }, func(c facet.Config) bool { return c.Graph.Enabled }),
	facetPart("search", func(p Parts) string { return p.Search }, func(c facet.Config) bool { return c.Search.Enabled }, "index"),
	facetPart("media", func(p Parts) string { return p.Media }, func(c facet.Config) bool { return c.Media.Enabled }, "store"),
	{
		name: gatewayPart, place: func(p Parts) string { return p.Gateway }, known: true,
		table: func() []ingress.Route { return nil },
		face:  func(*Node) face { return face{} },
	},
}

// facetPart is a part that is a facet. The graph is the only one whose owner runs
// with it, and so the only one that others ask.
func facetPart(name string, place func(Parts) string, on func(facet.Config) bool, needs ...string) part {
	return part{
		name: name, place: place, on: on, needs: needs,
		table: func() []ingress.Route { return ofFacet(name, new(facet.Facets).Routes()) },
		face: func(n *Node) face {
			shown := face{routes: ofFacet(name, n.facets.Routes())}
			if name == graphPart && n.graph != nil {
				shown.seams = n.graph.Seams()
			}
			return shown
		},
	}
}

// Parts is [node.parts]: where the parts of this node are that run in processes
// of their own. What a process runs itself, it does not look up here, so all of
// them can have the same section.
type Parts struct {
	Store    string `toml:"store" doc:"Where the store runs, for parts in other processes: https://HOST:PORT, or a local socket such as @micronode-1000.store." restart:"true"`
	Gateway  string `toml:"gateway" doc:"Where the gateway runs, written like store." restart:"true"`
	Overlay  string `toml:"overlay" doc:"Where the overlay runs, written like store." restart:"true"`
	Index    string `toml:"index" doc:"Where the index runs, written like store." restart:"true"`
	Edge     string `toml:"edge" doc:"Where the edge runs, written like store." restart:"true"`
	Registry string `toml:"registry" doc:"Where the registry runs, written like store." restart:"true"`
	Mailbox  string `toml:"mailbox" doc:"Where the mailbox runs, written like store." restart:"true"`
	Feed     string `toml:"feed" doc:"Where the facet feed runs, written like store." restart:"true"`
	Graph    string `toml:"graph" doc:"Where the facet graph runs, written like store." restart:"true"`
	Search   string `toml:"search" doc:"Where the facet search runs, written like store." restart:"true"`
	Media    string `toml:"media" doc:"Where the facet media runs, written like store." restart:"true"`
}

// Validate checks the section by itself.
func (p Parts) Validate() error {
	for _, one := range parts {
		text := one.place(p)
		if text == "" {
			continue
		}
		if _, err := gateway.ParsePlace(text); err != nil {
			return config.Wrong(one.name, fault.NextOf(err), "%s", fault.DetailOf(err))
		}
	}
	return nil
}

// PartNames lists what --only takes.
func PartNames() (names []string) {
	for _, one := range parts {
		names = append(names, one.name)
	}
	return names
}

// layout is which parts run here, and where the others are that these need.
type layout struct {
	first string                   // the part that was named first; empty without --only
	here  map[string]bool          // parts of this process
	off   map[string]bool          // parts that are turned off: whoever is asked for one answers how to turn it on
	away  map[string]gateway.Place // parts in others
	vital map[string]bool          // of those, the ones without which nothing is served here
}

// newLayout reads --only. Without it, all parts run here.
func newLayout(only []string, c Config) (layout, error) {
	l := layout{here: map[string]bool{}, off: map[string]bool{}, away: map[string]gateway.Place{}, vital: map[string]bool{}}
	for _, one := range parts {
		l.off[one.name] = one.on != nil && !one.on(c.Facets)
	}
	for _, name := range only {
		switch {
		case !slices.Contains(PartNames(), name):
			return layout{}, unknownPart(name)
		case l.off[name]:
			return layout{}, partOff(name)
		}
		l.here[name] = true
	}
	if len(only) == 0 {
		for _, name := range PartNames() {
			l.here[name] = true
		}
		return l, nil
	}
	l.first = only[0]
	return l, l.find(c.Node.Parts)
}

// find looks up where those are that the parts of this process ask.
func (l *layout) find(where Parts) error {
	var missing []string
	var asker string
	for _, one := range parts {
		if !l.here[one.name] {
			continue
		}
		needs := one.needs
		if one.name == gatewayPart {
			needs = PartNames()
		}
		for _, name := range slices.Concat(needs, one.asks) {
			if l.here[name] || l.off[name] {
				continue
			}
			l.vital[name] = l.vital[name] || slices.Contains(needs, name)
			text := partNamed(name).place(where)
			if text == "" {
				if !slices.Contains(missing, name) {
					missing = append(missing, name)
				}
				asker = one.name
				continue
			}
			place, err := gateway.ParsePlace(text)
			if err != nil {
				return err
			}
			l.away[name] = place
		}
	}
	if len(missing) > 0 {
		return missingParts(asker, missing)
	}
	return nil
}

func partNamed(name string) part {
	return parts[slices.IndexFunc(parts, func(one part) bool { return one.name == name })]
}

// split reports whether the process is one of several.
func (l layout) split() bool { return l.first != "" }

// names lists the parts of this process, in the order of the table.
func (l layout) names() (names []string) {
	for _, one := range parts {
		if l.here[one.name] {
			names = append(names, one.name)
		}
	}
	return names
}

// socket is the name of the local socket: with --only, that of the first part
// that was named.
func (l layout) socket() string { return capability.DefaultSocket(os.Geteuid(), l.first) }

const opParts = "node.parts"

func unknownPart(name string) error {
	err := fault.New(opParts, fault.Malformed, "there is no part %q", shorten(name))
	err.Next = "Name one or more of " + strings.Join(PartNames(), ", ") + ", with commas between them: --only store,gateway."
	if near := nearestPart(name); near != "" {
		err.Detail += "; did you mean " + near + "?"
	}
	return err
}

func partOff(name string) error {
	err := fault.New(opParts, fault.Malformed, "the part %s is turned off", name)
	err.Next = "Set facets." + name + ".enabled = true in the configuration, or MICRO_FACETS__" + strings.ToUpper(name) + "__ENABLED=true, in this process and in that of the gateway."
	return err
}

func shorten(text string) string {
	const most = 40
	if len(text) > most {
		return text[:most] + "…"
	}
	return text
}

// nearestPart is the part that somebody most likely meant: one that begins and
// ends in the same way, but for two letters or less in between.
func nearestPart(name string) string {
	name = strings.ToLower(strings.TrimSpace(name))
	for _, known := range PartNames() {
		least := min(len(name), len(known))
		from, to := 0, 0
		for from < least && name[from] == known[from] {
			from++
		}
		for to < least-from && name[len(name)-1-to] == known[len(known)-1-to] {
			to++
		}
		if from+to >= 3 && max(len(name), len(known))-from-to <= 2 {
			return known
		}
	}
	return ""
}

func missingParts(asker string, missing []string) error {
	slices.Sort(missing)
	err := fault.New(opParts, fault.Malformed, "the part %s cannot work alone: nobody says where to find %s", asker, strings.Join(missing, ", "))
	var lines []string
	for _, name := range missing {
		lines = append(lines, fmt.Sprintf("%s = \"@%s\"", name, capability.DefaultSocket(os.Geteuid(), name)))
	}
	err.Next = "Add them to --only, or to the section [node.parts] of the configuration, as sockets or as https:// URLs: " + strings.Join(lines, ", ") + "."
	return err
}

// checkShared refuses secrets of its own to a process that must be one with
// others: they would not know each other's capabilities, nor be one node to the
// rest of the world.
func (n *Node) checkShared(c Config) error {
	if !n.layout.split() {
		return nil
	}
	if !c.Auth.Root.IsSet() {
		return &fault.Error{Op: opParts, Kind: fault.Malformed, Detail: "the parts of a node know each other by auth.root, and it is not set",
			Next: "Make one secret for all of them, such as `openssl rand -hex 32 > root.key`, and set auth.root = \"file:root.key\", or MICRO_AUTH__ROOT=file:root.key."}
	}
	if n.presenceKnown() && c.Node.Identity == "ephemeral" {
		return &fault.Error{Op: opParts, Kind: fault.Malformed, Detail: "the parts of a node share one identity, and this one would have a new one at each start",
			Next: "Make one with `micronode identity new --out node.key`, and set node.identity = \"file:node.key\" for all of them, or --identity file:node.key."}
	}
	return nil
}

// partDrain is how long a part alone may take to stop, where nobody says
// otherwise.
const partDrain = 3 * time.Second

// load reads the configuration. What is a default for a whole node may be
// another for a part of it: only the gateway has the ports that everybody knows.
func load(options Options) (*config.Loaded[Config], error) {
	loaded, err := Load(options.Profile, options.Sources)
	if err != nil || len(options.Only) == 0 {
		return loaded, err
	}
	c := &loaded.Value
	unsaid := func(key string) bool { return loaded.Origin(key).Layer == config.LayerDefault }
	if unsaid("node.drain") {
		c.Node.Drain = partDrain
	}
	if !slices.Contains(options.Only, gatewayPart) {
		if unsaid("http.addr") {
			c.HTTP.Addr = anyPort
		}
		if unsaid("admin.addr") {
			c.Admin.Addr = anyPort
		}
	}
	return loaded, nil
}

const anyPort = "127.0.0.1:0"
