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

// routingRoutes are the routes for IPFS software: it asks for providers, and
// fetches what this node has.
func (x *Index) routingRoutes() []ingress.Route {
	cid := ingress.Param{Name: "cid", In: "path", Type: "string", Required: true, Doc: "A CID. Only CIDs of raw blocks under BLAKE3 have providers here."}
	return []ingress.Route{
		{
			Service: service, Methods: []string{http.MethodGet}, Pattern: "/routing/v1/providers/{cid}", Handler: x.handleRouting, Public: ingress.PublicNames,
			Class: ingress.Control, Deadline: routeDeadline,
			Docs: ingress.Docs{Summary: "The providers of a block, by Delegated Routing V1",
				Description: "With Accept: application/x-ndjson the records come one per line, each as soon as it is found. Without a provider the list is empty.",
				Params: []ingress.Param{cid,
					{Name: "filter-protocols", In: "query", Type: "string", Doc: "Only hosts with one of these protocols, separated by commas; unknown stands for hosts that declare none."},
					{Name: "filter-addrs", In: "query", Type: "string", Doc: "Only addresses with one of these parts, and without those that have an exclamation mark."}},
				Content: true, Responses: []ingress.Response{{Status: http.StatusOK, Body: delegated.Response{}, Doc: "The providers."},
					{Status: http.StatusOK, Type: "application/x-ndjson", Doc: "Or one per line."}},
				Kinds: []fault.Kind{fault.Malformed, fault.Busy, fault.Timeout, fault.BreakerOpen, fault.NotReady, fault.UpstreamFailed, fault.Canceled}},
		},
		x.gatewayRoute(cid),
	}
}

// handleRouting answers with the providers of a block. This node comes first if
// it has the block, before others are looked up.
func (x *Index) handleRouting(w http.ResponseWriter, r *http.Request) error {
	asked, err := delegated.ParseCID(r.PathValue("cid"))
	if err != nil {
		return err
	}
	encoding, err := delegated.NegotiateEncoding(r.Header)
	if err != nil {
		return err
	}
	writer := delegated.NewRecordWriter(w, encoding, delegated.ParseFilter(r.URL.Query()), time.Now())
	if asked.Ours {
		if err := x.writeProviders(r.Context(), writer, asked.Address, x.clientClass(ingress.ForwardedClient(r))); err != nil {
			return err
		}
	}
	if encoding == delegated.NDJSON {
		writer.EndStream()
		return nil
	}
	d := writer.Document()
	_, err = ingress.ServeContent(w, r, ingress.Content{
		Size: int64(len(d.Text)), ETag: d.ETag, Type: d.Type, CacheControl: d.CacheControl, Ready: true, Write: d.Write,
	})
	return err
}

// writeProviders writes the providers of an object. A stream that has started
// ends with what was found, even if the look-up fails: its reader can use that
// better than a broken answer.
func (x *Index) writeProviders(ctx context.Context, page *delegated.RecordWriter, address b3.Address, from uint64) error {
	if has, err := x.hasObject(ctx, address); err == nil && has {
		if err := x.writeProvider(page, x.selfProvider()); err != nil {
			return err
		}
	}
	found, err := x.Providers(ctx, address, ProviderOptions{Limit: maxProviders, ClientClass: from})
	if err != nil && !page.Started() {
		return err
	}
	for _, one := range found.Providers {
		if err := x.writeProvider(page, one.Provider); err != nil {
			return err
		}
	}
	return nil
}

// writeProvider writes a provider, if it has an ID of libp2p.
func (x *Index) writeProvider(page *delegated.RecordWriter, p record.Provider) error {
	if p.ID == x.selfText {
		p = delegated.WithLibp2pID(p, x.spec.Key.Public().(ed25519.PublicKey))
	}
	if rec, ok := delegated.RecordOf(p); ok {
		return page.Add(rec)
	}
	return nil
}
