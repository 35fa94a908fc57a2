package node

import (
	"context"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"micronode/client"
	"micronode/fault"
	"micronode/internal/capability"
	"micronode/internal/gateway"
	"micronode/internal/ingress"
	"micronode/internal/observe"
	"micronode/internal/store"
)

// listen makes the two HTTP servers and opens their listeners: the gateway on
// TCP and on the local socket, the admin plane on an address of its own.
func (n *Node) listen(ctx context.Context, c Config) error {
	if err := n.openKeyring(c); err != nil {
		return err
	}
	if err := n.openGateway(ctx, c); err != nil {
		return err
	}
	n.locate(c)
	return n.openAdmin(ctx, c)
}

func (n *Node) openKeyring(c Config) error {
	if !c.HTTP.Files().Set() {
		return nil
	}
	first, err := ingress.LoadTLS(c.HTTP.Files())
	if err != nil {
		return err
	}
	n.keyring = ingress.NewKeyring(n.inventory, service, first)
	return nil
}

func (n *Node) openGateway(ctx context.Context, c Config) error {
	var table *ingress.Table
	described := ingress.OpenAPIRoute("gateway", n.build.Version, func() *ingress.Table { return table })
	table, warm, err := gateway.Mount(n.gatewayParts(c), slices.Concat(n.presenceRoute(), n.routes(), []ingress.Route{described})...)
	if err != nil {
		return err
	}
	n.gateway, err = ingress.New(ingress.Options{
		Service: "gateway", Name: "http", Table: table, Times: c.HTTP, Limits: c.Limits, Authorise: n.authorise,
		Inventory: n.inventory, Metrics: n.metrics, Logger: n.log, OnAnswer: n.answered,
		Warm: warm,
	})
	if err != nil {
		return err
	}
	n.http, err = n.gateway.Listen(ctx, ingress.ListenOptions{
		Name: "http", Addr: c.HTTP.Addr, Hosts: c.HTTP.Hosts, TLS: n.keyring, Warm: c.HTTP.Warm,
	})
	if err != nil {
		return err
	}
	socket, err := capability.ListenLocal(n.socket, n.refusedLocal)
	if err != nil {
		return err
	}
	n.local = n.gateway.Attach(socket, ingress.ListenOptions{Name: "local", Local: true})
	return nil
}

func (n *Node) openAdmin(ctx context.Context, c Config) error {
	table, err := ingress.NewTable(n.adminRoutes("")...)
	if err != nil {
		return err
	}
	plane, err := ingress.New(ingress.Options{
		Service: service, Name: "admin", Table: table, Times: c.HTTP, Limits: c.Limits, Authorise: n.authorise,
		Inventory: n.inventory, Metrics: n.metrics, Logger: n.log, Exempt: true,
	})
	if err != nil {
		return err
	}
	n.admin, err = plane.Listen(ctx, ingress.ListenOptions{Name: "admin", Addr: c.Admin.Addr, Hosts: c.Admin.Hosts, TLS: n.keyring})
	return err
}

// socketFolders is where the local socket needs to make a file: nowhere, if it
// is an abstract one.
func socketFolders(socket string) []string {
	if !strings.Contains(socket, "/") {
		return nil
	}
	return []string{filepath.Dir(socket)}
}

// refusedLocal counts those who tried the local socket of somebody else.
func (n *Node) refusedLocal(uint32) {
	n.metrics.For("gateway").Rejected.WithLabelValues("foreign_user").Inc()
}

// authorise decides who may do what. The local socket is our own user and may
// do everything. Reads are open on loopback and to clients with a certificate;
// everything else needs a capability that covers it.
func (n *Node) authorise(_ context.Context, ask ingress.Ask) error {
	read := ask.Scope == ""
	switch {
	case ask.Local, n.options.Open:
		return nil
	case read && (ask.Loopback || ask.Verified):
		return nil
	case ask.Token == "":
		err := fault.New("node.authorise", fault.Unauthorized, "%s %s needs a capability", ask.Method, ask.Path)
		if !read {
			err.Detail += " with the scope " + ask.Scope
			err.Next = "Make one on the node's machine with `micronode token mint --scope " + ask.Scope + " --ttl 1h`, and send it as `Authorization: Bearer …`."
		}
		return err
	}
	scope := capability.Any
	if !read {
		scope = capability.Scope(ask.Scope)
	}
	return n.authority.Verify(ask.Token, capability.Request{Scope: scope, Path: ask.Path, Topic: ask.Topic, ClientIP: ask.ClientIP})
}

// routes is what the node itself answers on the gateway and the local socket.
func (n *Node) routes() []ingress.Route {
	status := ingress.Route{
		Service: service, Methods: []string{http.MethodGet}, Pattern: "/admin/status", Handler: n.status, Class: ingress.Control,
		Docs: ingress.Docs{Summary: "What the node is doing", Responses: []ingress.Response{{Status: http.StatusOK, Body: client.Status{}}}},
	}
	mint := ingress.Route{
		Service: service, Methods: []string{http.MethodPost}, Pattern: "/admin/token", Handler: n.mint, Class: ingress.Control,
		Scope: string(capability.Admin), BodyCap: 64 << 10,
		Docs: ingress.Docs{Summary: "Mint a capability", Request: MintRequest{}, Responses: []ingress.Response{{Status: http.StatusCreated, Body: Minted{}}}},
	}
	return append([]ingress.Route{status, mint}, n.adminRoutes(string(capability.Admin))...)
}

// adminRoutes is the admin plane as routes. What is for everybody is open
// everywhere; the rest needs the scope, which is empty on the plane's own
// listener. Profiles always need a capability: they show memory.
func (n *Node) adminRoutes(scope string) []ingress.Route {
	plane := &observe.Admin{Sources: n.sources(), Metrics: n.metrics, Build: n.build, Allow: func(*http.Request) bool { return true }}
	handler := func(w http.ResponseWriter, r *http.Request) error {
		plane.ServeHTTP(w, r)
		return nil
	}
	route := func(pattern, summary string) ingress.Route {
		return ingress.Route{Service: service, Methods: []string{http.MethodGet}, Pattern: pattern, Handler: handler,
			Class: ingress.Control, Docs: ingress.Docs{Summary: summary}}
	}
	open := func(pattern, summary string) ingress.Route {
		r := route(pattern, summary)
		r.Open = true
		return r
	}
	guarded := func(pattern, summary string) ingress.Route {
		r := route(pattern, summary)
		r.Scope = scope
		return r
	}
	profiles := route("/debug/pprof/", "Profiles of the process")
	profiles.Scope, profiles.Class, profiles.Deadline = string(capability.Admin), ingress.Transfer, 70*time.Second
	return []ingress.Route{
		open("/healthz", "Is the process alive"),
		open("/readyz", "Is it ready, and if not, what to do"),
		open("/version", "What is running"),
		guarded("/metrics", "Metrics for Prometheus"),
		guarded("/debug/inventory", "Every queue, lock and task, live"),
		profiles,
	}
}

// registerStoreMetrics shows what the store holds. The figures are read when
// somebody asks for them.
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
		gauge("store_held_bytes", "What counts against the budget.", func(u store.Usage) int64 { return u.Held }),
		gauge("store_budget_bytes", "The budget.", func(u store.Usage) int64 { return u.Budget }),
		counter("store_evictions_total", "Cached objects that were given up for room.", func(c store.Counts) uint64 { return c.Evictions }),
		counter("integrity_fail_total", "Objects whose bytes did not match their address.", func(c store.Counts) uint64 { return c.IntegrityFails + c.Mismatches }),
	)
}
