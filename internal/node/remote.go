package node

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"micronode/client"
	"micronode/fault"
	"micronode/internal/capability"
	"micronode/internal/flow"
	"micronode/internal/gateway"
	"micronode/internal/index"
	"micronode/internal/ingress"
	"micronode/internal/mailbox"
	"micronode/internal/observe"
	"micronode/internal/overlay"
	"micronode/internal/registry"
	"micronode/internal/store"
	"micronode/internal/supervise"
)

// remote is a part of this node in another process.
type remote struct {
	// set at construction
	node   *Node
	name   string
	place  gateway.Place
	vital  bool // without it, nothing is served here
	client *client.Client
	table  *observe.Dependency
	look   func(context.Context) error // what else is to be asked of it; nil for nothing
	back   func()                      // is called when it is there again; nil for nobody

	said atomic.Pointer[presence] // what it last said of itself; nil before
	up   atomic.Bool
}

// presence is what a process says of itself to another one of the same node.
type presence struct {
	Parts   []string `json:"parts"`
	Root    string   `json:"root"`              // which secret it has, not the secret
	PeerID  string   `json:"peer_id,omitempty"` // empty if its identity is of no interest
	HTTP    string   `json:"http"`
	TLS     bool     `json:"tls,omitempty"`
	Overlay string   `json:"overlay,omitempty"`
	Missing []string `json:"missing,omitempty"` // why it is not ready, but for other parts
}

const presencePath = "/part"

// elsewhere are the parts in other processes, in the forms in which those here use them.
type elsewhere struct {
	store    *store.Remote
	index    *index.Remote
	overlay  *overlay.Remote
	registry *registry.Remote
	mailbox  *mailbox.Remote
	graph    *index.RemoteGraph
}

// The bounds of what parts ask of each other.
const (
	partConns   = 512
	partTimeout = 30 * time.Second // for a small call, where the caller has no deadline of its own
	lookTime    = 2 * time.Second
	lookPause   = 2 * time.Second        // between two looks at a part that is there
	lookAgain   = 500 * time.Millisecond // at one that is not
)

// partRetry is how a call between parts is repeated: once, and soon. Whoever
// asked has a deadline, and may ask again.
var partRetry = client.Retry{Tries: 2, First: 25 * time.Millisecond, Cap: 100 * time.Millisecond}

// reachParts makes the ways to the parts in other processes. It does not connect:
// parts may start in any order.
func (n *Node) reachParts() error {
	for _, one := range parts {
		place, away := n.layout.away[one.name]
		if !away {
			continue
		}
		to, err := n.dial(one.name, place)
		if err != nil {
			return err
		}
		r := &remote{node: n, name: one.name, place: place, vital: n.layout.vital[one.name], client: to,
			table: n.readiness.Dependency(service, one.name, observe.ForReads)}
		n.remotes = append(n.remotes, r)
		n.use(r)
	}
	return nil
}

// use gives a part elsewhere the form in which those here use it. The gateway
// only passes requests on.
func (n *Node) use(r *remote) {
	used := slices.ContainsFunc(parts, func(one part) bool {
		return n.layout.here[one.name] && (slices.Contains(one.needs, r.name) || slices.Contains(one.asks, r.name))
	})
	if !used {
		return
	}
	switch r.name {
	case "store":
		n.far.store = store.NewRemote(r.client)
		n.store, r.look, r.back = n.far.store, n.far.store.Look, n.storeIsBack
	case "index":
		n.far.index = index.NewRemote(n.inventory, r.client)
		if n.layout.here["search"] {
			r.look = n.far.index.Searchable
		}
	case "overlay":
		n.far.overlay = overlay.NewRemote(n.inventory, r.client)
	case "registry":
		n.far.registry = registry.NewRemote(n.inventory, r.client, n.governed)
		r.look = func(context.Context) error { return n.far.registry.Known() }
	case "mailbox":
		n.far.mailbox = mailbox.NewRemote(r.client)
	case graphPart:
		n.far.graph = index.NewRemoteGraph(r.client)
	}
}

// governed tells the index that the registry has another version.
func (n *Node) governed() {
	if n.index != nil {
		n.index.Governed()
	}
}

// dial makes a client of a part.
func (n *Node) dial(name string, place gateway.Place) (*client.Client, error) {
	transport := place.Transport(partConns)
	n.closers = append(n.closers, transport.CloseIdleConnections)
	return client.New(client.Options{
		URL: place.URL(), HTTPClient: &http.Client{Transport: &courier{node: n, name: name, place: place, next: transport}},
		UserAgent: "micronode/" + n.build.Version, Retry: partRetry, Timeout: partTimeout,
	})
}

// courier carries calls to a part: with a capability where the kernel does not
// vouch for us, and with errors that say which part is away.
type courier struct {
	// set at construction
	node  *Node
	name  string
	place gateway.Place
	next  http.RoundTripper
}

// RoundTrip carries one.
func (c *courier) RoundTrip(r *http.Request) (*http.Response, error) {
	if c.place.Socket() == "" {
		token, err := c.node.vouchers.token(c.node.authority, capability.Admin, "")
		if err != nil {
			return nil, err
		}
		r = r.Clone(r.Context()) // a round tripper must not change what it was given
		r.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := c.next.RoundTrip(r)
	if err != nil {
		return nil, c.explain(r.Context(), err)
	}
	answer.Body = &carried{answer.Body, c, r.Context()}
	return answer, nil
}

// explain says which part failed. If it is the caller who gave up, that is all
// there is to say.
func (c *courier) explain(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return err
	}
	return gateway.Failed(opParts, c.name, c.place, err)
}

// carried is the body of an answer. One that breaks off is the part's doing: of
// another kind than a client of ours that leaves.
type carried struct {
	io.ReadCloser
	by  *courier
	ctx context.Context
}

// Read reads on.
func (c *carried) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		err = c.by.explain(c.ctx, err)
	}
	return n, err
}

// vouchers are the capabilities by which this process speaks to others. Each is
// good for a minute and used for half of it.
type vouchers struct{ known sync.Map } // of *voucher by voucherKey

// voucherKey is what one is good for.
type voucherKey struct {
	scope capability.Scope
	path  string // empty for all
}

type voucher struct {
	token string
	until time.Time
}

const voucherLife = time.Minute

// token gives one that is good for a scope; with a path, there only.
func (v *vouchers) token(by *capability.Authority, scope capability.Scope, path string) (string, error) {
	key, now := voucherKey{scope, path}, time.Now()
	if known, ok := v.known.Load(key); ok && now.Before(known.(*voucher).until) {
		return known.(*voucher).token, nil
	}
	caveats := capability.Caveats{Scopes: []capability.Scope{scope}, Expires: now.Add(voucherLife)}
	if path != "" {
		caveats.Paths = []string{path}
	}
	token, err := by.Mint(caveats)
	if err == nil {
		v.known.Store(key, &voucher{token, now.Add(voucherLife / 2)})
	}
	return token, err
}

// vouch is what the gateway sends along to a part. A capability of the caller's
// own goes on as it is, unless it is bound to the caller's address, which the
// part cannot see; then, and where the caller needed none, this process vouches.
func (n *Node) vouch(place gateway.Place) func(*http.Request, string) (string, error) {
	return func(r *http.Request, scope string) (string, error) {
		if place.Socket() != "" {
			return "", nil // the kernel vouches
		}
		given, found := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if summary, err := capability.Inspect(given); found && err == nil && !slices.ContainsFunc(summary.Caveats, bound) {
			return "", nil
		}
		if scope == "" {
			scope = string(forReads)
		}
		return n.vouchers.token(n.authority, capability.Scope(scope), "")
	}
}

// introduce is how this process shows a part that it is one, too.
func (n *Node) introduce(place gateway.Place) func() (string, error) {
	return func() (string, error) {
		if place.Socket() != "" {
			return "", nil // the kernel vouches
		}
		return n.vouchers.token(n.authority, ingress.VoucherScope, ingress.VoucherPath)
	}
}

// forReads is the scope of a capability with which only reads are meant. A read
// takes any; this one does the least besides.
const forReads = capability.EdgePurge

// bound reports whether a caveat is about the caller's address.
func bound(caveat string) bool { return strings.HasPrefix(caveat, "client") }

// gatewayParts is all parts as the gateway sees them. A process without the
// gateway answers for its own parts only.
func (n *Node) gatewayParts(c Config) (list []gateway.Part) {
	for _, one := range parts {
		switch {
		case n.layout.here[one.name], n.layout.off[one.name] && n.layout.here[gatewayPart]:
			shown := one.face(n)
			if n.layout.split() {
				shown.routes = append(shown.routes, shown.seams...)
			}
			list = append(list, gateway.Part{Routes: shown.routes, Warm: shown.warm})
		case n.layout.here[gatewayPart]:
			place := n.layout.away[one.name]
			spec := gateway.AwaySpec{Name: one.name, Place: place, Vouch: n.vouch(place), Requests: c.Limits.Inflight, Streams: c.Limits.Streams}
			if one.fair {
				spec.Introduce = n.introduce(place)
			}
			away := gateway.NewAway(spec)
			n.closers = append(n.closers, away.Close)
			list = append(list, gateway.Part{Routes: one.table(), Away: away})
		}
	}
	return list
}

// presenceRoute is where another process learns who this one is.
func (n *Node) presenceRoute() []ingress.Route {
	if !n.layout.split() {
		return nil
	}
	return []ingress.Route{{
		Service: service, Methods: []string{http.MethodGet}, Pattern: presencePath, Class: ingress.Control, Scope: string(capability.Admin),
		Handler: func(w http.ResponseWriter, _ *http.Request) error {
			return ingress.WriteJSON(w, http.StatusOK, n.presence())
		},
		Docs: ingress.Docs{Summary: "Which parts of the node run here, for another part of it"},
	}}
}

func (n *Node) presence() presence {
	p := presence{Parts: n.layout.names(), Root: n.root.ID(), HTTP: n.http.Addr().String(), TLS: n.keyring != nil}
	if n.presenceKnown() {
		p.PeerID = n.identity.PeerID()
	}
	p.Overlay = n.overlayAddr()
	p.Missing = slices.DeleteFunc(n.readiness.Evaluate().Missing, func(name string) bool {
		part, ours := strings.CutPrefix(name, service+"/")
		return ours && n.remoteNamed(part) != nil // two that wait for each other would wait for ever
	})
	return p
}

// Serve looks after a part until ctx ends: readiness tells the truth about it
// before somebody's request does.
func (r *remote) Serve(ctx context.Context) error {
	for {
		pause := lookPause
		if !r.check(ctx) {
			pause = lookAgain
		}
		if flow.Sleep(ctx, pause) != nil {
			return nil // told to stop
		}
	}
}

// check asks a part who it is, and tells readiness.
func (r *remote) check(ctx context.Context) bool {
	short, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	var said presence
	err := r.client.Call(short, http.MethodGet, presencePath, nil, &said)
	if err == nil {
		err = r.judge(said)
	}
	if err == nil && r.look != nil {
		err = r.look(short)
	}
	if ctx.Err() != nil {
		return false
	}
	if err != nil {
		r.up.Store(false)
		r.tell(err)
		return false
	}
	if before := r.said.Swap(&said); before == nil || before.HTTP != said.HTTP || before.Overlay != said.Overlay {
		r.node.relocate()
	}
	if !r.up.Swap(true) && r.back != nil {
		r.back()
	}
	r.table.Up()
	return true
}

// judge refuses a process that is not what it should be. It is what happens when
// a configuration was copied, and one line of it forgotten.
func (r *remote) judge(said presence) error {
	wrong := func(next, detail string) error {
		return &fault.Error{Op: opParts, Kind: fault.RejectPolicy, Detail: detail, Next: next}
	}
	switch {
	case !slices.Contains(said.Parts, r.name):
		return wrong("Correct node.parts."+r.name+".", "at "+r.place.String()+" runs "+strings.Join(said.Parts, ", ")+", and not "+r.name)
	case said.Root != r.node.root.ID():
		return wrong("Give both the same auth.root.", "the part "+r.name+" has another auth.root than this process")
	case said.PeerID != "" && r.node.presenceKnown() && said.PeerID != r.node.identity.PeerID():
		return wrong("Give both the same node.identity.", "the part "+r.name+" has the identity of another node, "+said.PeerID)
	case len(said.Missing) > 0:
		return wrong("Ask it for the reasons, at "+r.place.String()+": `micronode status`.", "the part "+r.name+" is not ready itself: "+strings.Join(said.Missing, ", "))
	}
	return nil
}

// presenceKnown reports whether the identity of this process is that of the node.
func (n *Node) presenceKnown() bool {
	return slices.ContainsFunc(n.layout.names(), func(name string) bool { return partNamed(name).known })
}

func (r *remote) tell(err error) {
	reason, next := fault.DetailOf(err), fault.NextOf(err)
	if r.vital {
		r.table.Down(reason, next)
	} else {
		r.table.Degraded(reason, next)
	}
}

// addRemotes adds what looks after the parts elsewhere.
func (n *Node) addRemotes() error {
	var problems []error
	add := func(label, name string, serve, drain func(context.Context) error) {
		problems = append(problems, n.supervisor.Add(supervise.Service{Service: label, Name: name, Stage: stageState, Serve: serve, Drain: drain}))
	}
	for _, r := range n.remotes {
		add(service, "part "+r.name, r.Serve, nil)
	}
	if n.far.index != nil {
		add("index", "index news", n.far.index.Serve, supervise.Closing(n.far.index.Close))
	}
	if n.far.overlay != nil {
		add("overlay", "overlay company", n.far.overlay.Serve, nil)
	}
	if n.far.registry != nil {
		add("registry", "registry register", n.far.registry.Serve, nil)
	}
	if n.letters != nil {
		add("registry", "registry herald", n.serveLetters, supervise.Closing(n.letters.Close))
	}
	return errors.Join(problems...)
}

// remoteNamed finds a part elsewhere, or nil.
func (n *Node) remoteNamed(name string) *remote {
	if i := slices.IndexFunc(n.remotes, func(r *remote) bool { return r.name == name }); i >= 0 {
		return n.remotes[i]
	}
	return nil
}

// describeParts tells where the parts of the node are. A node in one process has
// nothing to tell.
func (n *Node) describeParts() (list []client.Part) {
	if !n.layout.split() {
		return nil
	}
	for _, one := range parts {
		switch r := n.remoteNamed(one.name); {
		case n.layout.here[one.name]:
			list = append(list, client.Part{Name: one.name, Up: true})
		case r != nil:
			list = append(list, client.Part{Name: one.name, At: r.place.String(), Up: r.up.Load()})
		}
	}
	return list
}
