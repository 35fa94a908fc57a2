package index

import (
	"bytes"
	"encoding/json"
	"hash/maphash"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"micronode/b3"
	"micronode/client"
	"micronode/fault"
	"micronode/internal/index/rank"
	"micronode/internal/index/record"
	"micronode/internal/ingress"
)

const (
	resolvePrefix  = "/resolve/"
	resolvePattern = resolvePrefix + "{id...}" // names may have slashes
)

// routeDeadline is when the server gives up on a route of the index. The budget
// of the configuration, which may change while the node runs, ends before.
const routeDeadline = longestBudget + time.Second

// Routes lists the routes of the index. The zero Index has the same list:
// it is what a gateway knows of an index in another process.
func (x *Index) Routes() []ingress.Route {
	return slices.Concat(x.findRoutes(), x.nameRoutes(), x.fetchRoutes(), x.adminRoutes(), x.routingRoutes())
}

func (x *Index) findRoutes() []ingress.Route {
	kinds := []fault.Kind{fault.Malformed, fault.NotFound, fault.Busy, fault.Timeout, fault.BreakerOpen, fault.UpstreamFailed, fault.Canceled}
	param := func(name, in, typ, doc string) ingress.Param {
		return ingress.Param{Name: name, In: in, Type: typ, Required: in == "path", Doc: doc}
	}
	return []ingress.Route{
		{
			Service: service, Methods: []string{http.MethodGet}, Pattern: resolvePattern, Handler: x.serveResolve, Class: ingress.Control, Deadline: routeDeadline,
			Docs: ingress.Docs{Summary: "What a name or an address stands for, and who has it", Kinds: kinds,
				Description: "Names of the registry come first, then those of this node; name:docs@PEER-ID is what that peer says. Who is not known is looked for, within index.dht.deadline_ms.",
				Params: []ingress.Param{param("id", "path", "string", "b3: and 64 hex digits, a CIDv1 of the same hash, name:docs, or name:docs@PEER-ID."),
					param("fresh", "query", "boolean", "With false, an answer that is past its life will do; it is marked as stale.")},
				Responses: []ingress.Response{{Status: http.StatusOK, Body: client.Resolution{}}, {Status: http.StatusNotModified, Doc: "The client has it."}}},
		},
		{
			Service: service, Methods: []string{http.MethodGet}, Pattern: "/providers/{b3}", Handler: x.serveProviders, Class: ingress.Control, Deadline: routeDeadline,
			Docs: ingress.Docs{Summary: "Who has an object, the best first", Kinds: kinds,
				Params: []ingress.Param{param("b3", "path", "string", "b3: and 64 hex digits, or a CIDv1 of the same hash."),
					param("limit", "query", "integer", "At most so many, from 1 to 100; 20 if not said."),
					param("region", "query", "string", "Those of this region first."),
					param("min_freshness", "query", "integer", "Only those that were heard of within so many seconds.")},
				Responses: []ingress.Response{{Status: http.StatusOK, Body: client.Providers{}}}},
		},
	}
}

func (x *Index) serveResolve(w http.ResponseWriter, r *http.Request) error {
	id, err := record.ParseID(r.PathValue("id"))
	if err != nil {
		return err
	}
	o := Options{From: x.client(r)}
	switch fresh := r.URL.Query().Get("fresh"); fresh {
	case "", "true":
	case "false":
		o.Stale = true
	default:
		return badValue("fresh", fresh, "Write true or false.")
	}
	found, err := x.Resolve(r.Context(), id, o)
	if err != nil {
		return err
	}
	body, header := encoded(tell(found, time.Now()))
	_, err = ingress.ServeContent(w, r, ingress.Content{
		Size: int64(len(body)), ETag: header.Get("Etag"), Type: header.Get("Content-Type"), CacheControl: header.Get("Cache-Control"),
		Ready: true, Write: ingress.FromReaderAt(bytes.NewReader(body)),
	})
	return err
}

// client is a number for whoever a request was made for: behind a gateway in
// another process, the client of that.
func (x *Index) client(r *http.Request) uint64 { return x.classOf(ingress.Origin(r)) }

// classOf is a number for a client: an IPv4 address, or a network of IPv6,
// which is what one client commonly has all of. Who has no address is on this
// machine, and is zero.
func (x *Index) classOf(at netip.Addr) uint64 {
	at = at.Unmap().WithZone("")
	if !at.IsValid() {
		return 0
	}
	bits := at.BitLen()
	if at.Is6() {
		bits = 64
	}
	network, _ := at.Prefix(bits) // fails for other lengths only
	return maphash.Comparable(x.seed, network) | 1
}

// encoded is a resolution as it is sent, with the headers that go with it. Who
// has it may ask whether it is still the same, and must.
func encoded(told client.Resolution) ([]byte, http.Header) {
	body, _ := json.Marshal(told) // texts, numbers and addresses cannot fail
	return append(body, '\n'), http.Header{"Content-Type": {"application/json"}, "Etag": {told.ETag}, "Cache-Control": {"no-cache"}, "Accept-Ranges": {"bytes"}}
}

func (x *Index) serveProviders(w http.ResponseWriter, r *http.Request) error {
	id, err := record.ParseID(r.PathValue("b3"))
	if err != nil {
		return err
	}
	if id.Kind != record.CID {
		return badValue("b3", r.PathValue("b3"), "Give the address of an object: b3: and 64 hex digits. GET /resolve/{id} tells what a name stands for.")
	}
	o, err := providerOptions(r)
	if err != nil {
		return err
	}
	o.From = x.client(r)
	found, err := x.Providers(r.Context(), id.Address, o)
	if err != nil {
		return err
	}
	return ingress.WriteJSON(w, http.StatusOK, client.Providers{
		CID: found.Address, Source: string(found.Source), Providers: tellAll(found.Providers, time.Now()), Hedge: found.Hedge,
	})
}

// mostFresher is the longest time that can be asked for: a hundred years.
const mostFresher = 100 * 365 * 24 * 3600

// providerOptions reads what is wanted of providers.
func providerOptions(r *http.Request) (o ProviderOptions, err error) {
	query := r.URL.Query()
	if o.Region = query.Get("region"); region(o.Region) != o.Region {
		return o, badValue("region", o.Region, "Write a short word, such as eu-west.")
	}
	if text := query.Get("limit"); query.Has("limit") {
		if o.Limit, err = strconv.Atoi(text); err != nil || o.Limit < 1 || o.Limit > mostProviders {
			return o, badValue("limit", text, "Write a number from 1 to 100.")
		}
	}
	if text := query.Get("min_freshness"); query.Has("min_freshness") {
		seconds, err := strconv.Atoi(text)
		if err != nil || seconds < 1 || seconds > mostFresher {
			return o, badValue("min_freshness", text, "Write a number of seconds, 1 or more.")
		}
		o.Fresher = time.Duration(seconds) * time.Second
	}
	return o, nil
}

func badValue(name, text, next string) error {
	const most = 80
	if len(text) > most {
		text = text[:most] + "…"
	}
	err := fault.New("index.http", fault.Malformed, "%q is no value for %s", text, name)
	err.Next = next
	return err
}

// tell is a resolution as it is shown.
func tell(r Resolution, now time.Time) client.Resolution {
	return client.Resolution{
		Key: r.ID.String(), Kind: r.ID.Kind.String(), Manifest: r.Manifest, Source: string(r.Source), ETag: etag(r),
		Freshness: int64(max(0, now.Sub(r.At)) / time.Second), Stale: r.Stale, Providers: tellAll(r.Providers, now),
	}
}

func tellAll(ranked []rank.Ranked, now time.Time) []client.Provider {
	told := make([]client.Provider, len(ranked))
	for i, one := range ranked {
		told[i] = tellProvider(one, now)
	}
	return told
}

func tellProvider(one rank.Ranked, now time.Time) client.Provider {
	p := one.Provider
	told := client.Provider{ID: p.ID, Region: p.Region, Class: one.Class, Score: one.Score, Latency: one.Latency, LastSeen: -1}
	if all := slices.Concat(p.Overlay, p.HTTP, p.Other); len(all) > 0 {
		told.Addr = all[0]
		if len(all) > 1 {
			told.Addrs = all
		}
	}
	if !p.Seen.IsZero() {
		told.LastSeen = int64(max(0, now.Sub(p.Seen)) / time.Second)
	}
	return told
}

// etag names what an answer says of its subject: what it stands for, who has
// it, and where they are. How old the answer is, and how well the providers do,
// changes from second to second and is left out; so the tag is a weak one.
func etag(r Resolution) string {
	said := make([]string, 0, 2+len(r.Providers))
	for _, one := range r.Providers {
		p := one.Provider
		text, _ := json.Marshal([]any{p.ID, p.Region, p.Overlay, p.HTTP, p.Other}) // texts cannot fail
		said = append(said, string(text))
	}
	slices.Sort(said)
	said = append(said, r.ID.String(), r.Manifest.String(), strconv.FormatBool(r.Stale))
	text, _ := json.Marshal(said)
	return `W/"` + b3.Of(text).String()[len(b3.Prefix):][:32] + `"`
}
