package node

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"micronode/client"
	"micronode/fault"
	"micronode/internal/capability"
	"micronode/internal/flow"
	"micronode/internal/gateway"
	"micronode/internal/graph"
	"micronode/internal/index"
	"micronode/internal/ingress"
	"micronode/internal/mailbox"
	"micronode/internal/observe"
	"micronode/internal/overlay"
	"micronode/internal/registry"
	"micronode/internal/search"
	"micronode/internal/store"
	"micronode/internal/supervise"
)

// remotePart is a part of this node in another process.
type remotePart struct {
	// set at construction
	node        *Node
	name        string
	addr        gateway.PartAddr
	required    bool // without it, nothing is served here
	client      *client.Client
	dependency  *observe.Dependency
	probe       func(context.Context) error // a further check; nil for none
	onRecovered func()                      // called when it is up again; may be nil

	lastStatus atomic.Pointer[partStatus] // the last status that it reported; nil before
	up         atomic.Bool
}

// partStatus is what a process reports of itself to another one of the same
// node.
type partStatus struct {
	Parts   []string `json:"parts"`
	Root    string   `json:"root"`              // an ID of its secret, not the secret
	PeerID  string   `json:"peer_id,omitempty"` // empty if its identity does not matter
	HTTP    string   `json:"http"`
	TLS     bool     `json:"tls,omitempty"`
	Overlay string   `json:"overlay,omitempty"`
	Revoked string   `json:"revoked"`           // a hash over the tokens that it knows to be revoked
	Missing []string `json:"missing,omitempty"` // why it is not ready, apart from other parts
}

const partStatusPath = "/part"

// remoteClients are the clients of the parts in other processes.
type remoteClients struct {
	store    *store.Remote
	index    *index.Remote
	overlay  *overlay.Remote
	registry *registry.Remote
	mailbox  *mailbox.Remote
	graph    *graph.Remote
	search   *search.Remote
}

// The index asks a registry in another process whether its names are loaded. It
// finds out by this interface, so the compiler has to be asked whether it fits.
var _ index.RemoteNameSource = (*registry.Remote)(nil)

// The bounds of calls between parts.
const (
	partConns         = 512
	partTimeout       = 30 * time.Second // for a small call, where the caller has no deadline of its own
	partProbeTimeout  = 2 * time.Second
	partProbeInterval = 2 * time.Second        // between two probes of a part that is up
	partProbeRetry    = 500 * time.Millisecond // of one that is down
)

// clientRetry is how calls between parts are retried.
func (r Retry) clientRetry() client.Retry {
	return client.Retry{Tries: r.Tries, First: time.Duration(r.Initial), Cap: time.Duration(r.Cap)}
}

// makeRemotes makes the clients of the parts in other processes. It does not
// connect: parts may start in any order.
func (n *Node) makeRemotes(c Config) error {
	for _, one := range parts {
		addr, away := n.layout.remote[one.name]
		if !away {
			continue
		}
		remoteClient, err := n.dialPart(one.name, addr, c.Node.Retry.clientRetry())
		if err != nil {
			return err
		}
		r := &remotePart{node: n, name: one.name, addr: addr, required: n.layout.required[one.name], client: remoteClient,
			dependency: n.readiness.Dependency(service, one.name, observe.ForReads)}
		n.remotes = append(n.remotes, r)
		n.bindRemote(r)
	}
	return nil
}

// bindRemote gives the local parts the client of a remote one. The gateway only
// forwards requests.
func (n *Node) bindRemote(r *remotePart) {
	used := slices.ContainsFunc(parts, func(one part) bool {
		return n.layout.local[one.name] && (slices.Contains(one.needs, r.name) || slices.Contains(one.uses, r.name))
	})
	if !used {
		return
	}
	switch r.name {
	case "store":
		n.remoteClients.store = store.NewRemote(r.client)
		n.store, r.probe, r.onRecovered = n.remoteClients.store, n.remoteClients.store.Refresh, n.onStoreRecovered
	case "index":
		n.remoteClients.index = index.NewRemote(n.inventory, r.client)
		if n.layout.local["search"] {
			n.remoteClients.search = search.NewRemote(r.client)
			r.probe = n.remoteClients.search.Ready
		}
	case "overlay":
		n.remoteClients.overlay = overlay.NewRemote(n.inventory, r.client)
	case "registry":
		n.remoteClients.registry = registry.NewRemote(n.inventory, r.client, n.onRegistryChange)
		r.probe = func(context.Context) error { return n.remoteClients.registry.Ready() }
	case "mailbox":
		n.remoteClients.mailbox = mailbox.NewRemote(r.client)
	case graphPart:
		n.remoteClients.graph = graph.NewRemote(r.client)
	}
}

// onRegistryChange tells the index that the registry has a new version.
func (n *Node) onRegistryChange() {
	if n.index != nil {
		n.index.RegistryChanged()
	}
}

// dialPart makes a client of a part.
func (n *Node) dialPart(name string, addr gateway.PartAddr, retry client.Retry) (*client.Client, error) {
	transport := addr.Transport(partConns, n.root.Proof)
	n.closeFuncs = append(n.closeFuncs, transport.CloseIdleConnections)
	return client.New(client.Options{
		URL: addr.URL(), HTTPClient: &http.Client{Transport: &partClient{node: n, name: name, addr: addr, scopes: scopeMux(partNamed(name)), next: transport}},
		UserAgent: "micronode/" + n.build.Version, Retry: retry, Timeout: partTimeout,
	})
}

// partClient sends calls to a part: with a capability for each where the kernel
// does not vouch for this process, and with errors that name the part.
type partClient struct {
	// set at construction
	node   *Node
	name   string
	addr   gateway.PartAddr
	scopes *http.ServeMux // of *scopeHandler
	next   http.RoundTripper
}

// scopeHandler stands for a route, and has the scope that it needs.
type scopeHandler struct{ scope capability.Scope }

// ServeHTTP is never called: routes are only looked up.
func (*scopeHandler) ServeHTTP(http.ResponseWriter, *http.Request) {}

// scopeMux maps each route of a part to its scope.
func scopeMux(one part) *http.ServeMux {
	mux := http.NewServeMux()
	for _, route := range one.routeTable() {
		handler := &scopeHandler{capability.Scope(route.Scope)}
		if route.Scope == "" {
			handler.scope = readScope
		}
		for _, method := range route.Methods {
			mux.Handle(method+" "+route.Pattern, handler)
		}
	}
	mux.Handle(partStatusPath, &scopeHandler{capability.Admin})
	mux.Handle(partStatusPath+"/", &scopeHandler{capability.Admin})
	return mux
}

// token is the capability for one call.
func (c *partClient) token(r *http.Request) (string, error) {
	scope := readScope
	if route, _ := c.scopes.Handler(r); route != nil {
		if handler, known := route.(*scopeHandler); known {
			scope = handler.scope
		}
	}
	return c.node.mintPartToken(r.URL.Path, scope)
}

// RoundTrip sends one call.
func (c *partClient) RoundTrip(r *http.Request) (*http.Response, error) {
	if c.addr.Socket() == "" {
		token, err := c.token(r)
		if err != nil {
			return nil, err
		}
		r = r.Clone(r.Context()) // a RoundTripper must not change its request
		r.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := c.next.RoundTrip(r)
	if err != nil {
		return nil, c.explain(r.Context(), err)
	}
	response.Body = &partBody{response.Body, c, r.Context()}
	return response, nil
}

// explain adds which part failed, unless the caller has cancelled.
func (c *partClient) explain(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return err
	}
	if gateway.IsImpostor(err) {
		c.node.countImpostor()
	}
	return gateway.ExplainFailure(partsOp, c.name, c.addr, err)
}

// partBody is the body of an answer. If it breaks off, the part has failed: an
// error of another kind than that of a client of ours that leaves.
type partBody struct {
	io.ReadCloser
	via *partClient
	ctx context.Context
}

// Read reads, and explains an error.
func (b *partBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		err = b.via.explain(b.ctx, err)
	}
	return n, err
}

// partTokenLife is the life of the capabilities for calls to other processes:
// enough for one call, and for clocks that differ.
const partTokenLife = time.Minute

// mintPartToken mints a capability for some scopes, and where possible for one
// path only.
func (n *Node) mintPartToken(path string, scopes ...capability.Scope) (string, error) {
	caveats := capability.Caveats{Scopes: scopes, Expires: time.Now().Add(partTokenLife)}
	if capability.IsPlainPath(path) {
		caveats.Paths = []string{path}
	}
	return n.authority.MintVoucher(caveats)
}

// requestToken returns the function that mints the gateway's capability for a
// request to a part: for the scope that was accepted, and nothing else. The
// caller's own stays here.
func (n *Node) requestToken(addr gateway.PartAddr) func(*http.Request, string) (string, error) {
	return func(r *http.Request, scope string) (string, error) {
		if scope == "" {
			scope = string(readScope)
		}
		scopes, err := n.callerScopes(r, capability.Scope(scope))
		switch {
		case err != nil:
			return "", err
		case addr.Socket() != "" && scopes[0] == capability.Scope(scope):
			return "", nil // the kernel vouches
		}
		return n.mintPartToken(r.URL.Path, scopes...)
	}
}

// callerScopes is what the caller may do of a route's scope: all of it, unless
// its capability is narrowed to one thing.
func (n *Node) callerScopes(r *http.Request, scope capability.Scope) ([]capability.Scope, error) {
	token := ingress.Bearer(r.Header)
	if token == "" || n.options.Open || !scope.CanNarrow() {
		return []capability.Scope{scope}, nil
	}
	return n.authority.RemainingScopes(token, scope)
}

// partToken returns the function that mints the proof to a part that this
// process is one, too.
func (n *Node) partToken(addr gateway.PartAddr) func() (string, error) {
	return func() (string, error) {
		if addr.Socket() != "" {
			return "", nil // the kernel vouches
		}
		return n.mintPartToken(ingress.VoucherPath, ingress.VoucherScope)
	}
}

// readScope is the scope of a capability that is meant for reads. A read
// accepts any scope; this one allows the least besides.
const readScope = capability.EdgePurge

// gatewayParts are all parts as the gateway sees them. A process without the
// gateway has its own parts only.
func (n *Node) gatewayParts(c Config) (list []gateway.Part) {
	for _, one := range parts {
		switch {
		case n.layout.local[one.name], n.layout.disabled[one.name] && n.layout.local[gatewayPart]:
			surface := one.surface(n)
			if n.layout.isSplit() {
				surface.routes = append(surface.routes, surface.partRoutes...)
			}
			list = append(list, gateway.Part{Routes: surface.routes, Warm: surface.warm})
		case n.layout.local[gatewayPart]:
			addr := n.layout.remote[one.name]
			spec := gateway.RemotePartSpec{Name: one.name, Addr: addr, Prove: n.root.Proof, OnImpostor: n.countImpostor, RequestToken: n.requestToken(addr), MaxRequests: c.Limits.Inflight, MaxStreams: c.Limits.Streams}
			if one.perClient {
				spec.PartToken = n.partToken(addr)
			}
			away := gateway.NewRemotePart(spec)
			n.closeFuncs = append(n.closeFuncs, away.Close)
			list = append(list, gateway.Part{Routes: one.routeTable(), Remote: away})
		}
	}
	return list
}

// countImpostor counts servers at a part's address that did not prove to be it.
func (n *Node) countImpostor() { n.metrics.For(service).Rejected.WithLabelValues("impostor").Inc() }

// partRoutes is where another process reads the status of this one.
func (n *Node) partRoutes() []ingress.Route {
	if !n.layout.isSplit() {
		return nil
	}
	return []ingress.Route{gateway.ProofRoute(service, n.root.Proof), n.revokedRoute(), {
		Service: service, Methods: []string{http.MethodGet}, Pattern: partStatusPath, Class: ingress.Control, Scope: string(capability.Admin),
		Handler: func(w http.ResponseWriter, _ *http.Request) error {
			return ingress.WriteJSON(w, http.StatusOK, n.partStatus())
		},
		Docs: ingress.Docs{Summary: "The parts that run in this process, for another part of the node"},
	}}
}

func (n *Node) partStatus() partStatus {
	p := partStatus{Parts: n.layout.names(), Root: n.root.ID(), HTTP: n.http.Addr().String(), TLS: n.tlsSource != nil, Revoked: n.authority.RevokedDigest()}
	if n.usesIdentity() {
		p.PeerID = n.identity.PeerID()
	}
	p.Overlay = n.overlayAddr()
	p.Missing = slices.DeleteFunc(n.readiness.Evaluate().Missing, func(name string) bool {
		part, ours := strings.CutPrefix(name, service+"/")
		return ours && n.remoteNamed(part) != nil // two parts that wait for each other would wait for ever
	})
	return p
}

// Serve probes a part until ctx ends, so that readiness is right before a
// request fails.
func (r *remotePart) Serve(ctx context.Context) error {
	for {
		pause := partProbeInterval
		if !r.probeStatus(ctx) {
			pause = partProbeRetry
		}
		if flow.Sleep(ctx, pause) != nil {
			return nil // stopped
		}
	}
}

// probeStatus asks a part for its status, and updates readiness.
func (r *remotePart) probeStatus(ctx context.Context) bool {
	short, cancel := context.WithTimeout(ctx, partProbeTimeout)
	defer cancel()
	var status partStatus
	err := r.client.Call(short, http.MethodGet, partStatusPath, nil, &status)
	if err == nil {
		syncErr := r.syncRevocations(short, status) // also with one that is not ready
		if err = r.validateStatus(status); err == nil {
			err = syncErr
		}
	}
	if err == nil && r.probe != nil {
		err = r.probe(short)
	}
	if ctx.Err() != nil {
		return false
	}
	if err != nil {
		r.up.Store(false)
		r.reportDown(err)
		return false
	}
	if before := r.lastStatus.Swap(&status); before == nil || before.HTTP != status.HTTP || before.Overlay != status.Overlay {
		r.node.refreshSelf()
	}
	if !r.up.Swap(true) && r.onRecovered != nil {
		r.onRecovered()
	}
	r.dependency.Up()
	return true
}

// validateStatus rejects a process that is not the expected one. That happens
// when a configuration was copied and not adapted.
func (r *remotePart) validateStatus(status partStatus) error {
	wrong := func(next, detail string) error {
		return &fault.Error{Op: partsOp, Kind: fault.RejectPolicy, Detail: detail, Next: next}
	}
	switch {
	case !slices.Contains(status.Parts, r.name):
		return wrong("Correct node.parts."+r.name+".", "at "+r.addr.String()+" runs "+strings.Join(status.Parts, ", ")+", and not "+r.name)
	case status.Root != r.node.root.ID():
		return wrong("Give both the same auth.root.", "the part "+r.name+" has another auth.root than this process")
	case status.PeerID != "" && r.node.usesIdentity() && status.PeerID != r.node.identity.PeerID():
		return wrong("Give both the same node.identity.", "the part "+r.name+" has the identity of another node, "+status.PeerID)
	case len(status.Missing) > 0:
		return wrong("Ask it for the reasons, at "+r.addr.String()+": `micronode status`.", "the part "+r.name+" is not ready itself: "+strings.Join(status.Missing, ", "))
	}
	return nil
}

// usesIdentity reports whether the identity of this process is that of the node.
func (n *Node) usesIdentity() bool {
	return slices.ContainsFunc(n.layout.names(), func(name string) bool { return partNamed(name).usesIdentity })
}

func (r *remotePart) reportDown(err error) {
	reason, next := fault.DetailOf(err), fault.NextOf(err)
	if r.required {
		r.dependency.Down(reason, next)
	} else {
		r.dependency.Degraded(reason, next)
	}
}

// addRemotes adds the probes of the remote parts.
func (n *Node) addRemotes() error {
	var errs []error
	add := func(label, name string, serve, drain func(context.Context) error) {
		errs = append(errs, n.supervisor.Add(supervise.Service{Service: label, Name: name, Stage: stageState, Serve: serve, Drain: drain}))
	}
	for _, r := range n.remotes {
		add(service, "part "+r.name, r.Serve, nil)
	}
	if n.remoteClients.index != nil {
		add("index", "index news", n.remoteClients.index.Serve, supervise.CloseOnDrain(n.remoteClients.index.Close))
	}
	if n.remoteClients.overlay != nil {
		add("overlay", "overlay company", n.remoteClients.overlay.Serve, nil)
	}
	if n.remoteClients.registry != nil {
		add("registry", "registry register", n.remoteClients.registry.Serve, nil)
	}
	if n.commitMessages != nil {
		add("registry", "registry herald", n.serveCommitMessages, supervise.CloseOnDrain(n.commitMessages.Close))
	}
	return errors.Join(errs...)
}

// remoteNamed returns a remote part, or nil.
func (n *Node) remoteNamed(name string) *remotePart {
	if i := slices.IndexFunc(n.remotes, func(r *remotePart) bool { return r.name == name }); i >= 0 {
		return n.remotes[i]
	}
	return nil
}

// clientParts lists where the parts of the node run. It is empty for a node in
// one process.
func (n *Node) clientParts() (list []client.Part) {
	if !n.layout.isSplit() {
		return nil
	}
	for _, one := range parts {
		switch r := n.remoteNamed(one.name); {
		case n.layout.local[one.name]:
			list = append(list, client.Part{Name: one.name, Up: true})
		case r != nil:
			list = append(list, client.Part{Name: one.name, At: r.addr.String(), Up: r.up.Load()})
		}
	}
	return list
}
