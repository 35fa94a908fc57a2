package index

import (
	"context"
	"crypto/ed25519"
	"net/http"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/index/delegated"
	"micronode/internal/index/record"
	"micronode/internal/ingress"
)

// routingRoutes are those by which IPFS software uses this node: it asks who has
// something, and fetches what this node has.
func (x *Index) routingRoutes() []ingress.Route {
	cid := ingress.Param{Name: "cid", In: "path", Type: "string", Required: true, Doc: "A CID. Those of raw blocks under BLAKE3 are known here; nobody has the others."}
	return []ingress.Route{
		{
			Service: service, Methods: []string{http.MethodGet}, Pattern: "/routing/v1/providers/{cid}", Handler: x.serveRouting,
			Class: ingress.Control, Deadline: routeDeadline,
			Docs: ingress.Docs{Summary: "Who has a block, as Delegated Routing V1 says it",
				Description: "With Accept: application/x-ndjson the records come one a line, each as soon as it is found. That nobody has it is an empty list.",
				Params: []ingress.Param{cid,
					{Name: "filter-protocols", In: "query", Type: "string", Doc: "Only hosts that speak one of these, separated by commas; unknown stands for those that do not say."},
					{Name: "filter-addrs", In: "query", Type: "string", Doc: "Only addresses with one of these parts, and without those that have an exclamation mark."}},
				Responses: []ingress.Response{{Status: http.StatusOK, Body: delegated.Response{}}, {Status: http.StatusNotModified, Doc: "The client has it."}},
				Kinds:     []fault.Kind{fault.Malformed, fault.Busy, fault.Timeout, fault.BreakerOpen, fault.UpstreamFailed, fault.Canceled}},
		},
		x.gatewayRoute(cid),
	}
}

// serveRouting answers who has a block. What this node has itself it says at
// once, before it looks for others.
func (x *Index) serveRouting(w http.ResponseWriter, r *http.Request) error {
	asked, err := delegated.ParseCID(r.PathValue("cid"))
	if err != nil {
		return err
	}
	form, err := delegated.FormOf(r.Header)
	if err != nil {
		return err
	}
	page := delegated.NewPage(w, form, delegated.ParseFilter(r.URL.Query()), time.Now())
	if asked.Ours {
		if err := x.fill(r.Context(), page, asked.Address, x.client(r)); err != nil {
			return err
		}
	}
	if form == delegated.NDJSON {
		page.EndStream()
		return nil
	}
	d := page.Document()
	_, err = ingress.ServeContent(w, r, ingress.Content{
		Size: int64(len(d.Text)), ETag: d.ETag, Type: d.Type, CacheControl: d.CacheControl, Ready: true, Write: d.Write,
	})
	return err
}

// fill puts on the page who has an object. A stream that has begun ends with
// what was found, whatever happens to the rest of the search: its reader can do
// more with that than with half an answer.
func (x *Index) fill(ctx context.Context, page *delegated.Page, address b3.Address, from uint64) error {
	if has, err := x.has(ctx, address); err == nil && has {
		if err := x.enter(page, x.own()); err != nil {
			return err
		}
	}
	found, err := x.Providers(ctx, address, ProviderOptions{Limit: mostProviders, From: from})
	if err != nil && !page.Begun() {
		return err
	}
	for _, one := range found.Providers {
		if err := x.enter(page, one.Provider); err != nil {
			return err
		}
	}
	return nil
}

// enter puts a provider on the page, if it has a name there.
func (x *Index) enter(page *delegated.Page, p record.Provider) error {
	if p.ID == x.selfText {
		p = delegated.Introduce(p, x.spec.Key.Public().(ed25519.PublicKey))
	}
	if told, ok := delegated.RecordOf(p); ok {
		return page.Add(told)
	}
	return nil
}
