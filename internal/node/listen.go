package node

import (
	"context"
	"errors"
	"net/http"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"micronode/client"
	"micronode/fault"
	"micronode/internal/capability"
	"micronode/internal/config"
	"micronode/internal/edge"
	"micronode/internal/gateway"
	"micronode/internal/ingress"
	"micronode/internal/observe"
	"micronode/internal/store"
	"micronode/internal/supervise"
)

// listen makes the two HTTP servers and opens their listeners: the gateway on
// TCP and on the local socket, the admin plane on an address of its own.
func (n *Node) listen(ctx context.Context, loaded *config.Loaded[Config]) error {
	c := loaded.Value
	if err := n.openTLS(c); err != nil {
		return err
	}
	if err := n.openGateway(ctx, loaded); err != nil {
		return err
	}
	for _, open := range []func(context.Context, Config) error{n.openPlain, n.openLAN} {
		if err := open(ctx, c); err != nil {
			return err
		}
	}
	n.updateSelf(c)
	return n.openAdmin(ctx, loaded)
}

// listenTCP opens a listener. If its address is only the default, and another
// program has it, the next free port is used, and the banner says so.
func (n *Node) listenTCP(ctx context.Context, loaded *config.Loaded[Config], server *ingress.Server, key string, o ingress.ListenOptions) (l *ingress.Listener, err error) {
	candidates := ingress.NextPorts(o.Addr)
	if loaded.Origin(key).Layer != config.LayerDefault || o.Name == "http" && len(loaded.Value.HTTP.ACME.Domains) > 0 { // another port is of no use to --domain
		candidates = candidates[:1]
	}
	taken := o.Addr
	for i, addr := range candidates {
		o.Addr = addr
		l, err = server.Listen(ctx, o)
		if ingress.IsTaken(err) {
			continue
		}
		if err == nil && i > 0 {
			n.notes = append(n.notes, taken+" is taken, so "+key+" is "+l.Addr().String())
		}
		break
	}
	return l, err
}

func (n *Node) openTLS(c Config) error {
	if len(c.HTTP.ACME.Domains) > 0 {
		return n.openCertificates(c)
	}
	if !c.HTTP.TLSFiles().IsSet() {
		return nil
	}
	first, err := ingress.LoadTLS(c.HTTP.TLSFiles())
	if err != nil {
		return err
	}
	n.tlsSource = ingress.NewTLSConfigSource(n.inventory, service, first)
	return nil
}

func (n *Node) openGateway(ctx context.Context, loaded *config.Loaded[Config]) error {
	c := loaded.Value
	var table *ingress.Table
	openAPI := ingress.OpenAPIRoute("gateway", n.build.Version, func() *ingress.Table { return table })
	table, warm, err := gateway.Mount(n.gatewayParts(c), slices.Concat(n.partRoutes(), n.ownRoutes(), []ingress.Route{openAPI})...)
	if err != nil {
		return err
	}
	tasks, err := n.newHandlerGroup("gateway", stageIntake, c)
	if err != nil {
		return err
	}
	n.gateway, err = ingress.New(ingress.Options{
		Service: "gateway", Name: "http", Table: table, Times: c.HTTP, Limits: c.Limits, Authorise: n.authorise,
		Inventory: n.inventory, Metrics: n.metrics, Logger: n.log, Refusals: &n.refusals, OnRequestDone: n.logRequest,
		Warm: warm, Tasks: tasks, Sites: n.findSite, Bandwidth: n.bandwidth,
	})
	if err != nil {
		return err
	}
	n.setSites(c)
	n.http, err = n.listenTCP(ctx, loaded, n.gateway, "http.addr", ingress.ListenOptions{
		Name: "http", Addr: c.HTTP.Addr, Hosts: ownHosts(c), TLS: n.tlsSource, Warm: c.HTTP.Warm, ProxyProtocol: c.HTTP.ProxyProtocol,
		ProxiesOnly: ingress.Exposure{Addr: c.HTTP.Addr, Files: c.HTTP.TLSFiles(), ACME: len(c.HTTP.ACME.Domains) > 0}.IsPlain(),
	})
	if err != nil {
		return err
	}
	socket, err := capability.ListenLocal(n.socket, n.countForeignUser)
	if err != nil {
		return err
	}
	if err := n.admitGroup(socket, c.Node.SocketGroup); err != nil {
		return errors.Join(err, socket.Close())
	}
	n.local = n.gateway.Attach(socket, ingress.ListenOptions{Name: "local", Local: true})
	return nil
}

// admitGroup opens the local socket to a group. Commands talk to the process of
// the gateway; the sockets of the others are for parts of this node.
func (n *Node) admitGroup(socket *capability.LocalListener, name string) error {
	if name == "" || !n.layout.local[gatewayPart] {
		return nil
	}
	number := name
	if _, err := strconv.ParseUint(name, 10, 32); err != nil {
		group, err := user.LookupGroup(name)
		if err != nil {
			return fault.New("node.socket_group", fault.RejectPolicy, "there is no group %q on this machine", name).
				Advise("Add it, for example with groupadd --system " + name + ", or write its number: groups of a directory service have no name in a static program.").Because(err)
		}
		number = group.Gid
	}
	id, err := strconv.ParseUint(number, 10, 32)
	if err != nil {
		return fault.New("node.socket_group", fault.RejectPolicy, "the group %q has no number on this system", name).Advise("Leave out node.socket_group.")
	}
	return socket.Admit(uint32(id))
}

// setSites says which hosts are sites, wherever the edge runs.
func (n *Node) setSites(c Config) {
	hosts := edge.NewSiteHosts(c.Edge.Sites, n.identity.PeerID())
	n.siteHosts.Store(&hosts)
}

func (n *Node) findSite(host string) (string, bool) { return n.siteHosts.Load().Find(host) }

func (n *Node) openAdmin(ctx context.Context, loaded *config.Loaded[Config]) error {
	c := loaded.Value
	table, err := ingress.NewTable(n.adminRoutes("")...)
	if err != nil {
		return err
	}
	tasks, err := n.newHandlerGroup(service, stageAdmin, c)
	if err != nil {
		return err
	}
	plane, err := ingress.New(ingress.Options{
		Service: service, Name: "admin", Table: table, Times: c.HTTP, Limits: c.Limits, Authorise: n.authorise,
		Inventory: n.inventory, Metrics: n.metrics, Logger: n.log, Refusals: &n.refusals, Exempt: true, Tasks: tasks,
	})
	if err != nil {
		return err
	}
	options := ingress.ListenOptions{Name: "admin", Addr: c.Admin.Addr, Hosts: c.Admin.Hosts}
	if adminSpeaksTLS(c) {
		options.TLS = n.tlsSource
	}
	n.admin, err = n.listenTCP(ctx, loaded, plane, "admin.addr", options)
	return err
}

// adminSpeaksTLS reports whether the admin plane has TLS: its own choice, or by
// default where certificates are read from files.
func adminSpeaksTLS(c Config) bool {
	return c.Admin.TLS == "on" || c.Admin.TLS == "auto" && c.HTTP.CertFile != ""
}

// newHandlerGroup is the group of the handlers that have a task: those of
// HTTP/2, and those that overran their deadline. The server bounds their
// number.
func (n *Node) newHandlerGroup(service, stage string, c Config) (*supervise.Group, error) {
	most := c.Limits.MaxConns + c.Limits.Inflight + c.Limits.Streams
	return n.supervisor.NewGroup(supervise.GroupSpec{Service: service, Kind: "handler", Stage: stage, Max: most, Finish: true})
}

// socketFolders are the folders in which the local socket makes a file: none,
// if it is abstract.
func socketFolders(socket string) []string {
	if !strings.Contains(socket, "/") {
		return nil
	}
	return []string{filepath.Dir(socket)}
}

// countForeignUser counts rejected connections of other users to the local
// socket.
func (n *Node) countForeignUser(uint32) {
	n.metrics.For("gateway").Rejected.WithLabelValues("foreign_user").Inc()
}

// authorise decides on every request. The local socket belongs to the node's
// own user and may do everything. Reads are open to clients with a certificate,
// where http.public opens their group, and on loopback those that do not show
// the inside of the node; everything else needs a capability that covers it.
func (n *Node) authorise(_ context.Context, auth ingress.AuthRequest) error {
	read := auth.Scope == ""
	switch {
	case n.options.Open, auth.Local && !(auth.Recheck && auth.Token != ""): // the gateway forwards a token where the caller's is narrowed
		return nil
	case read && (auth.Verified || auth.Public || auth.Loopback && !auth.Inside):
		return nil
	case auth.Token == "":
		err := fault.New("node.authorise", fault.Unauthorized, "%s %s needs a capability", auth.Method, auth.Path)
		if auth.Inside {
			err.Detail += ", because it shows the inside of the node"
			err.Next = "Type the command on the node's machine, as its user: it then uses the local socket. From elsewhere, send a capability as `Authorization: Bearer …`; `micronode token mint` makes one, and commands take it from MICRO_TOKEN."
		}
		if !read {
			err.Detail += " with the scope " + auth.Scope
			err.Next = "Mint one on the node's machine with `micronode token mint --scope " + auth.Scope + " --ttl 1h`, and send it as `Authorization: Bearer …`."
		}
		return err
	}
	scope := capability.Any
	if !read {
		scope = capability.Scope(auth.Scope)
	}
	request := capability.Request{Scope: scope, AllowNarrowed: auth.Narrow, Path: auth.Path, Topic: auth.Topic, ClientIP: auth.ClientIP}
	if auth.Recheck {
		return n.authority.Check(auth.Token, request)
	}
	return n.authority.Verify(auth.Token, request)
}

// ownRoutes are the node's own routes on the gateway and the local socket.
func (n *Node) ownRoutes() []ingress.Route {
	status := ingress.Route{
		Service: service, Methods: []string{http.MethodGet}, Pattern: "/admin/status", Handler: n.handleStatus, Class: ingress.Control,
		Docs: ingress.Docs{Summary: "The state of the node", Responses: []ingress.Response{{Status: http.StatusOK, Body: client.Status{}}}},
	}
	return slices.Concat([]ingress.Route{status}, n.tokenRoutes(), n.busRoutes(), n.pageRoutes(), n.adminRoutes(string(capability.Admin)))
}

// adminRoutes is the admin plane as routes. Health and version are open
// everywhere; the rest needs the scope. It is empty on the plane's own listener,
// where the metrics are open on loopback and the inventory asks for a
// capability. Profiles always need one with the scope: they show memory.
func (n *Node) adminRoutes(scope string) []ingress.Route {
	plane := &observe.Admin{Sources: n.sources(), Metrics: n.metrics, Build: n.build, Allow: func(*http.Request) bool { return true }}
	handler := func(w http.ResponseWriter, r *http.Request) error {
		plane.ServeHTTP(w, r)
		return nil
	}
	route := func(pattern, summary string, answers ...ingress.Response) ingress.Route {
		return ingress.Route{Service: service, Methods: []string{http.MethodGet}, Pattern: pattern, Handler: handler,
			Class: ingress.Control, Docs: ingress.Docs{Summary: summary, Responses: answers}}
	}
	open := func(pattern, summary string, answers ...ingress.Response) ingress.Route {
		r := route(pattern, summary, answers...)
		r.Open, r.Vital = true, true
		return r
	}
	guarded := func(pattern, summary string, answers ...ingress.Response) ingress.Route {
		r := route(pattern, summary, answers...)
		r.Scope = scope
		return r
	}
	ok := http.StatusOK
	metrics := guarded("/metrics", "Metrics for Prometheus", ingress.Response{Status: ok, Type: "text/plain", Doc: "In the text format, or another format that the client accepts."},
		ingress.Response{Status: ok, Type: "application/openmetrics-text"})
	if scope == "" {
		metrics.Public = ingress.OnThisMachine
	}
	profiles := route("/debug/pprof/", "Profiles of the process", ingress.Response{Status: ok, Type: "*/*", Doc: "In the format of Go's profiler."})
	profiles.Docs.Kinds = []fault.Kind{fault.NotFound}
	profiles.Scope, profiles.Class, profiles.Deadline = string(capability.Admin), ingress.Transfer, 70*time.Second
	ready := open("/readyz", "Readiness, with reasons and next steps", ingress.Response{Status: ok, Body: observe.Verdict{}, Doc: "It is."},
		ingress.Response{Status: http.StatusServiceUnavailable, Body: observe.Verdict{}, Doc: "Not ready, with the reasons."})
	ready.Docs.Params = []ingress.Param{{Name: "for", In: "query", Type: "string", Doc: "read checks readiness for reads only."}}
	return []ingress.Route{
		open("/healthz", "Liveness of the process", ingress.Response{Status: ok, Body: observe.HealthResponse{}}),
		ready,
		open("/version", "Version and build", ingress.Response{Status: ok, Body: observe.Build{}}),
		metrics,
		guarded("/debug/inventory", "Every queue and task, live", ingress.Response{Status: ok, Body: observe.InventoryResponse{}}),
		profiles,
	}
}

// registerStoreMetrics exports the size of the store. The figures are read at
// each scrape.
func (n *Node) registerStoreMetrics() {
	gauge := func(name, help string, read func(store.Usage) int64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(read(n.store.Usage())) })
	}
	counter := func(name, help string, read func(store.Counts) uint64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, func() float64 { return float64(read(n.store.Counts())) })
	}
	n.metrics.For("store").Register(
		gauge("store_objects", "Objects that can be opened.", func(u store.Usage) int64 { return u.Objects }),
		gauge("store_bytes", "The sum of their sizes.", func(u store.Usage) int64 { return u.Bytes }),
		gauge("store_held_bytes", "Bytes that count against the budget.", func(u store.Usage) int64 { return u.Held }),
		gauge("store_budget_bytes", "The budget.", func(u store.Usage) int64 { return u.Budget }),
		counter("store_evictions_total", "Cached objects that were evicted.", func(c store.Counts) uint64 { return c.Evictions }),
		counter("store_refusals_total", "Objects that were refused for lack of space or memory.", func(c store.Counts) uint64 { return c.Refusals + n.memory.refusals() }),
		counter("integrity_fail_total", "Objects whose bytes did not match their address.", func(c store.Counts) uint64 { return c.IntegrityFails + c.Mismatches }),
	)
}
