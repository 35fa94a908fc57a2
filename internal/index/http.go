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

// routeDeadline is when the server cancels a request to the index. The budget
// of the configuration, which may change while the node runs, ends earlier.
const routeDeadline = longestBudget + time.Second

// Routes lists the routes of the index. The zero Index has the same list:
// it is what a gateway knows of an index in another process.
func (x *Index) Routes() []ingress.Route {
	return slices.Concat(x.resolveRoutes(), x.nameRoutes(), x.fetchRoutes(), x.adminRoutes(), x.routingRoutes())
}

func (x *Index) resolveRoutes() []ingress.Route {
	kinds := []fault.Kind{fault.Malformed, fault.NotFound, fault.Busy, fault.Timeout, fault.BreakerOpen, fault.NotReady, fault.UpstreamFailed, fault.Canceled}
	param := func(name, in, typ, doc string) ingress.Param {
		return ingress.Param{Name: name, In: in, Type: typ, Required: in == "path", Doc: doc}
	}
	return []ingress.Route{
		{
			Service: service, Methods: []string{http.MethodGet}, Pattern: resolvePattern, Handler: x.handleResolve, Public: ingress.PublicNames, Class: ingress.Control, Deadline: routeDeadline,
			Docs: ingress.Docs{Summary: "Resolve a name or an address, and list its providers", Kinds: kinds,
				Description: "Names of the registry come first, then those of this node; name:docs@PEER-ID is the name docs of that peer. Unknown providers are looked up within index.dht.deadline_ms.",
				Params: []ingress.Param{param("id", "path", "string", "b3: and 64 hex digits, a CIDv1 of the same hash, name:docs, or name:docs@PEER-ID."),
					param("fresh", "query", "boolean", "With false, an expired answer is accepted; it is marked as stale.")},
				Content: true, Responses: []ingress.Response{{Status: http.StatusOK, Body: client.Resolution{}}}},
		},
		{
			Service: service, Methods: []string{http.MethodGet}, Pattern: "/providers/{b3}", Handler: x.handleProviders, Public: ingress.PublicNames, Class: ingress.Control, Deadline: routeDeadline,
			Docs: ingress.Docs{Summary: "List the providers of an object, best first", Kinds: kinds,
				Params: []ingress.Param{param("b3", "path", "string", "b3: and 64 hex digits, or a CIDv1 of the same hash."),
					param("limit", "query", "integer", "The maximum number, from 1 to 100; default 20."),
					param("region", "query", "string", "Providers of this region come first."),
					param("min_freshness", "query", "integer", "Only providers seen within this number of seconds.")},
				Responses: []ingress.Response{{Status: http.StatusOK, Body: client.Providers{}}}},
		},
	}
}

func (x *Index) handleResolve(w http.ResponseWriter, r *http.Request) error {
	id, err := record.ParseID(r.PathValue("id"))
	if err != nil {
		return err
	}
	o := Options{ClientClass: x.clientClass(ingress.ForwardedClient(r))}
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
	body, header := encodeResolution(found, time.Now(), x.selfText)
	_, err = ingress.ServeContent(w, r, ingress.Content{
		Size: int64(len(body)), ETag: header.Get("Etag"), Type: header.Get("Content-Type"), CacheControl: header.Get("Cache-Control"),
		Ready: true, Write: ingress.FromReaderAt(bytes.NewReader(body)),
	})
	return err
}

// clientClass is the class of a client, for fairness: an IPv4 address, or an
// IPv6 network of 64 bits, which one client commonly has all of. A client
// without an address is on this machine, and is zero.
func (x *Index) clientClass(at netip.Addr) uint64 {
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

// encodeResolution returns a resolution as it is sent, with its headers.
// Clients may cache it, but must revalidate.
//
// The tag identifies the content: the manifest, the providers and their
// addresses. The age of the answer and the scores of the providers change from
// second to second and are left out; so the tag is a weak one.
func encodeResolution(r Resolution, now time.Time, self string) ([]byte, http.Header) {
	said := make([]string, 0, 3+len(r.Providers))
	for _, one := range r.Providers {
		p := one.Provider
		text, _ := json.Marshal([]any{p.ID, p.Region, p.Overlay, p.HTTP, p.Other}) // texts cannot fail
		said = append(said, string(text))
	}
	slices.Sort(said)
	said = append(said, r.ID.String(), r.Manifest.String(), strconv.FormatBool(r.Stale))
	text, _ := json.Marshal(said)
	tag := `W/"` + b3.Of(text).String()[len(b3.Prefix):][:32] + `"`

	body, _ := json.Marshal(client.Resolution{
		Key: r.ID.String(), Kind: r.ID.Kind.String(), Manifest: r.Manifest, Source: string(r.Source), ETag: tag,
		Freshness: int64(max(0, now.Sub(r.At)) / time.Second), Stale: r.Stale, Providers: toClientProviders(r.Providers, now, self),
	}) // texts, numbers and addresses cannot fail
	return append(body, '\n'), http.Header{"Content-Type": {"application/json"}, "Etag": {tag}, "Cache-Control": {"no-cache"}, "Accept-Ranges": {"bytes"}}
}

func (x *Index) handleProviders(w http.ResponseWriter, r *http.Request) error {
	id, err := record.ParseID(r.PathValue("b3"))
	if err != nil {
		return err
	}
	if id.Kind != record.CID {
		return badValue("b3", r.PathValue("b3"), "Give the address of an object: b3: and 64 hex digits. GET /resolve/{id} resolves a name.")
	}
	o, err := providerOptions(r)
	if err != nil {
		return err
	}
	o.ClientClass = x.clientClass(ingress.ForwardedClient(r))
	found, err := x.Providers(r.Context(), id.Address, o)
	if err != nil {
		return err
	}
	return ingress.WriteJSON(w, http.StatusOK, client.Providers{
		CID: found.Address, Source: string(found.Source), Providers: toClientProviders(found.Providers, time.Now(), x.selfText),
		Hedge: client.Hedge{Fired: found.Hedge.Fired, Winner: string(found.Hedge.Winner)},
	})
}

// maxAgeSeconds is the longest min_freshness: a hundred years.
const maxAgeSeconds = 100 * 365 * 24 * 3600

// providerOptions parses the options of a request for providers.
func providerOptions(r *http.Request) (o ProviderOptions, err error) {
	query := r.URL.Query()
	if o.Region = query.Get("region"); cleanRegion(o.Region) != o.Region {
		return o, badValue("region", o.Region, "Write a short word, such as eu-west.")
	}
	if text := query.Get("limit"); query.Has("limit") {
		if o.Limit, err = strconv.Atoi(text); err != nil || o.Limit < 1 || o.Limit > maxProviders {
			return o, badValue("limit", text, "Write a number from 1 to 100.")
		}
	}
	if text := query.Get("min_freshness"); query.Has("min_freshness") {
		seconds, err := strconv.ParseInt(text, 10, 64)
		if err != nil || seconds < 1 || seconds > maxAgeSeconds {
			return o, badValue("min_freshness", text, "Write a number of seconds, 1 or more.")
		}
		o.MaxAge = time.Duration(seconds) * time.Second
	}
	return o, nil
}

func badValue(name, text, next string) error {
	const most = 80
	if len(text) > most {
		text = text[:most] + "…"
	}
	return fault.New("index.http", fault.Malformed, "%q is not a valid value for %s", text, name).Advise(next)
}

func toClientProviders(ranked []rank.Ranked, now time.Time, self string) []client.Provider {
	out := make([]client.Provider, len(ranked))
	for i, one := range ranked {
		p := one.Provider
		out[i] = client.Provider{ID: p.ID, Region: p.Region, Class: one.Class, Score: one.Score, Latency: one.Latency, LastSeen: -1, Self: p.ID == self}
		if all := slices.Concat(p.Overlay, p.HTTP, p.Other); len(all) > 0 {
			out[i].Addr = all[0]
			if len(all) > 1 {
				out[i].Addrs = all
			}
		}
		if !p.Seen.IsZero() {
			out[i].LastSeen = int64(max(0, now.Sub(p.Seen)) / time.Second)
		}
	}
	return out
}
