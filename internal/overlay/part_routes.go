package overlay

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/ingress"
	"micronode/internal/oap"
)

// The routes by which the overlay is used from another process of the same node.
const (
	connectedPeersPath = "/part/overlay/company"
	askPath            = "/part/overlay/ask"
	objectPath         = "/part/overlay/object/"
)

// connectedPeersResponse is the connected peers, as an overlay sends them to
// another process.
type connectedPeersResponse struct {
	Peers []ConnectedPeer `json:"neighbours"`
}

// askRequest is a question to a peer.
type askRequest struct {
	Peer string `json:"peer"`
	Obj  string `json:"obj"`
	Most int    `json:"most"`
}

// askTimeout is how long a question that comes from another process may take.
const askTimeout = 5 * time.Second

// PartRoutes lists the routes for the other parts of the node.
func (o *Overlay) PartRoutes() []ingress.Route {
	return []ingress.Route{
		{
			Service: service, Methods: []string{http.MethodGet}, Pattern: connectedPeersPath, Handler: o.handleConnectedPeers, Class: ingress.Stream, Scope: "admin",
			Docs: ingress.Docs{Summary: "Stream the connected peers, for another part of the node"},
		},
		{
			Service: service, Methods: []string{http.MethodPost}, Pattern: askPath, Handler: o.handleAsk, Class: ingress.Control, Scope: "admin", BodyCap: 4 << 10, Deadline: askTimeout,
			Docs: ingress.Docs{Summary: "Ask a peer, for another part of the node", Kinds: []fault.Kind{fault.NoRoute, fault.Busy, fault.Timeout}},
		},
		{
			Service: service, Methods: []string{http.MethodGet}, Pattern: objectPath + "{b3}", Handler: o.handleObject, Class: ingress.Transfer, Scope: "admin",
			Docs: ingress.Docs{Summary: "Fetch an object from a peer, for another part of the node", Kinds: []fault.Kind{fault.NotFound, fault.NoRoute, fault.Timeout}},
		},
	}
}

// connectedPeersInterval is how old round-trip times may be. Peers that connect
// or disconnect are sent at once.
const connectedPeersInterval = 5 * time.Second

func (o *Overlay) handleConnectedPeers(w http.ResponseWriter, r *http.Request) error {
	news, err := o.events.Subscribe("company", nil)
	if err != nil {
		return err
	}
	defer news.Close()
	first := true
	return ingress.SSE(w, r, func(ctx context.Context) (ingress.Event, error) {
		if !first {
			pause, cancel := context.WithTimeout(ctx, connectedPeersInterval)
			_, err := news.Recv(pause) // a change, a lag or the time: each is a reason to send the list again
			cancel()
			if errors.Is(err, flow.ErrClosed) || ctx.Err() != nil {
				return ingress.Event{}, err
			}
		}
		first = false
		data, err := json.Marshal(connectedPeersResponse{o.ConnectedPeers()})
		return ingress.Event{Name: "company", Data: data}, err
	})
}

func (o *Overlay) handleAsk(w http.ResponseWriter, r *http.Request) error {
	var request askRequest
	if err := ingress.DecodeJSON(r, &request); err != nil {
		return err
	}
	peer, err := oap.ParsePeerID(request.Peer)
	if err != nil {
		return err
	}
	found, err := o.Ask(r.Context(), peer, Question{Obj: request.Obj, Most: request.Most})
	if err != nil {
		return err
	}
	if found.Providers == nil {
		found.Providers = []FoundProvider{} // a list in JSON, even without any
	}
	return ingress.WriteJSON(w, http.StatusOK, found)
}

func (o *Overlay) handleObject(w http.ResponseWriter, r *http.Request) error {
	address, err := b3.Parse(r.PathValue("b3"))
	if err != nil {
		return err
	}
	peer, err := oap.ParsePeerID(r.URL.Query().Get("from"))
	if err != nil {
		return err
	}
	query := r.URL.Query()
	var download io.ReadCloser
	if query.Has("offset") {
		offset, wrong := strconv.ParseInt(query.Get("offset"), 10, 64)
		length, wrongToo := strconv.ParseInt(query.Get("length"), 10, 64)
		if wrong != nil || wrongToo != nil || offset < 0 || length < 0 {
			return fault.New("overlay.open", fault.Malformed, "offset and length are not numbers")
		}
		download, err = o.OpenPart(r.Context(), address, peer, oap.View(query.Get("view")), offset, length)
	} else {
		download, err = o.Open(r.Context(), address, &peer)
	}
	if err != nil {
		return err
	}
	defer func() { _ = download.Close() }() // it was read to its end, or the reason why not is returned
	w.Header().Set("Content-Type", "application/octet-stream")
	_, err = io.Copy(w, download)
	return err
}
