package node

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"time"

	dto "github.com/prometheus/client_model/go"

	"micronode/client"
	"micronode/fault"
	"micronode/internal/capability"
	"micronode/internal/config"
	"micronode/internal/flow"
	"micronode/internal/ingress"
	"micronode/internal/observe"
	"micronode/internal/page"
)

// pageRoutes is what the page of the node needs beside the routes of the
// services: its files, its links, one stream, and the settings.
func (n *Node) pageRoutes() []ingress.Route {
	settings := ingress.Route{Service: service, Methods: []string{http.MethodGet}, Pattern: "/admin/config", Handler: n.handleSettings, Class: ingress.Control, Scope: string(capability.Admin),
		Docs: ingress.Docs{Summary: "The settings in force, with the origin of each", Description: "Secrets are not shown.",
			Responses: []ingress.Response{{Status: http.StatusOK, Body: Settings{}}}}}
	if !n.page.Built() {
		return []ingress.Route{settings}
	}
	return append(n.page.Routes(), settings,
		ingress.Route{Service: service, Methods: []string{http.MethodPost}, Pattern: "/admin/ui/link", Handler: n.handlePageLink, Class: ingress.Control, Scope: string(capability.Admin), BodyCap: 4 << 10,
			Docs: ingress.Docs{Summary: "Make a link that opens the page with a capability, once", Request: client.PageLinkRequest{},
				Responses: []ingress.Response{{Status: http.StatusCreated, Body: client.PageLink{}}}, Kinds: []fault.Kind{fault.Busy}}},
		ingress.Route{Service: service, Methods: []string{http.MethodGet}, Pattern: "/admin/ui/stream", Handler: n.handlePageStream, Class: ingress.Stream, Scope: string(capability.Admin), Concurrency: pageStreams,
			Docs: ingress.Docs{Summary: "Stream what the page shows",
				Description: "Server-sent events: node for each of the last 50 events, and for each event from now on; snapshot every two seconds, with the state and the counters of the node; lagged if events were lost.",
				Responses:   []ingress.Response{{Status: http.StatusOK, Type: "text/event-stream", Doc: "Events, until the client leaves."}}}},
	)
}

// Settings is the configuration in force.
type Settings struct {
	Profile  string         `json:"profile"`
	Settings []config.Entry `json:"settings"`
}

func (n *Node) handleSettings(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Cache-Control", "no-store")
	return ingress.WriteJSON(w, http.StatusOK, Settings{n.profile, n.config.Current().Entries()})
}

// handlePageLink makes a link to the page. Its capability is made as that of
// POST /admin/token.
func (n *Node) handlePageLink(w http.ResponseWriter, r *http.Request) error {
	var request client.PageLinkRequest
	if err := ingress.DecodeJSON(r, &request); err != nil {
		return err
	}
	if len(request.Scopes) == 0 {
		request.Scopes = []string{string(capability.Admin)}
	}
	caveats, err := MintRequest{Scopes: request.Scopes, TTL: request.TTL}.caveats(time.Now())
	if err != nil {
		return err
	}
	token, err := n.mintFor(r, caveats)
	if err != nil {
		return err
	}
	code, until, err := n.page.Links.Add(client.PageSession{Token: token, Expires: caveats.Expires, Scopes: request.Scopes})
	if err != nil {
		return err
	}
	w.Header().Set("Cache-Control", "no-store")
	return ingress.WriteJSON(w, http.StatusCreated, client.PageLink{URL: page.LinkTo(n.browserURL(), code), Expires: until})
}

// browserURL is the gateway as a browser on this machine reaches it.
func (n *Node) browserURL() string {
	scheme := "http://"
	if n.tlsSource != nil {
		scheme = "https://"
	}
	at, err := netip.ParseAddrPort(n.http.Addr().String())
	if err == nil && at.Addr().IsUnspecified() {
		return scheme + net.JoinHostPort("localhost", strconv.Itoa(int(at.Port())))
	}
	return scheme + n.http.Addr().String()
}

const (
	pageStreams  = 16              // how many pages may look at a time
	pageInterval = 2 * time.Second // between two snapshots
)

// handlePageStream sends the last events, then snapshots, and the events of the
// bus in between. The snapshots are made for each reader when they are due, so
// nothing is done while there are no readers.
func (n *Node) handlePageStream(w http.ResponseWriter, r *http.Request) error {
	reader, err := n.bus.Subscribe("page", nil)
	if err != nil {
		return err
	}
	defer reader.Close()
	events := n.recent.follow(reader)
	due := time.Now()
	return ingress.SSE(w, r, func(ctx context.Context) (ingress.Event, error) {
		wait, cancel := context.WithDeadline(ctx, due)
		defer cancel()
		event, err := events.next(wait)
		switch {
		case err == nil:
			data, err := json.Marshal(event)
			return ingress.Event{Name: "node", Data: data}, err
		case ctx.Err() != nil || wait.Err() == nil || errors.Is(err, flow.ErrClosed):
			return ingress.Event{}, err
		}
		due = time.Now().Add(pageInterval)
		data, err := json.Marshal(n.pageSnapshot())
		return ingress.Event{Name: "snapshot", Data: data}, err
	})
}

// pageSnapshot is what the page shows of the whole node at a moment.
type pageSnapshot struct {
	At        time.Time        `json:"at"`
	Started   time.Time        `json:"started"`
	Readiness observe.Verdict  `json:"readiness"`
	Status    client.Status    `json:"status"`
	Refused   map[string]int64 `json:"refused"`  // by service and queue, as in the status: refused or dropped
	Counters  map[string]int64 `json:"counters"` // since the start; see pageCounters
	Latency   []latencyBucket  `json:"latency"`  // of all requests since the start
}

// latencyBucket is how many requests took no longer than so many seconds.
type latencyBucket struct {
	Seconds float64 `json:"le"`
	Count   uint64  `json:"n"`
}

func (n *Node) pageSnapshot() pageSnapshot {
	s := pageSnapshot{At: time.Now().UTC(), Readiness: n.readiness.Evaluate(), Status: n.Status(), Refused: map[string]int64{}, Counters: map[string]int64{}}
	for _, part := range n.inventory.Read() {
		if lost := part.Refused + part.Dropped; lost > 0 {
			s.Refused[part.Service+"/"+part.Name] += int64(lost)
		}
	}
	families, _ := n.metrics.Gatherer().Gather() // what could be read, is here
	latency := map[float64]uint64{}
	for _, family := range families {
		name := family.GetName()
		switch label, shown := pageCounters[name]; {
		case name == "process_start_time_seconds" && len(family.Metric) > 0:
			s.Started = time.Unix(int64(family.Metric[0].GetGauge().GetValue()), 0).UTC()
		case name == "request_latency_seconds":
			for _, one := range family.Metric {
				for _, bucket := range one.GetHistogram().GetBucket() {
					latency[bucket.GetUpperBound()] += bucket.GetCumulativeCount()
				}
			}
		case shown:
			for _, one := range family.Metric {
				s.Counters[name+labelSuffix(one, label)] += int64(one.GetCounter().GetValue() + one.GetGauge().GetValue())
			}
		}
	}
	for _, bound := range observe.LatencyBuckets() {
		s.Latency = append(s.Latency, latencyBucket{bound, latency[bound]})
	}
	return s
}

// pageCounters are the metrics that the page shows, summed over all labels but
// one: http_requests_total/200.
var pageCounters = map[string]string{
	"http_requests_total": "status", "rejected_total": "reason", "busy_rejections_total": "", "inflight_requests": "",
	"edge_cache_hits_total": "", "edge_cache_misses_total": "", "edge_stale_total": "", "edge_coalesced_total": "", "edge_rejects_total": "reason",
	"index_cache_hits_total": "", "index_cache_misses_total": "", "store_evictions_total": "", "store_refusals_total": "", "store_held_bytes": "",
	"sessions_active": "", "overlay_pq_negotiations_total": "outcome", "gossip_letters_total": "outcome", "gossip_dropped_total": "",
	"mailbox_depth": "", "mailbox_leased": "", "mailbox_dead": "", "mailbox_boxes": "", "mailbox_bytes": "",
	"registry_version": "", "registry_pending_proposals": "", "go_goroutines": "", "process_resident_memory_bytes": "",
}

func labelSuffix(metric *dto.Metric, label string) string {
	for _, pair := range metric.GetLabel() {
		if label != "" && pair.GetName() == label {
			return "/" + pair.GetValue()
		}
	}
	return ""
}
