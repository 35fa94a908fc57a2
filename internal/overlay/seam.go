package overlay

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/ingress"
	"micronode/internal/oap"
)

// The routes by which the overlay is used from another process of the same node.
const (
	seamCompany = "/part/overlay/company"
	seamAsk     = "/part/overlay/ask"
	seamObject  = "/part/overlay/object/"
)

// toldCompany is who is connected, as an overlay tells another process.
type toldCompany struct {
	Neighbours []toldNeighbour `json:"neighbours"`
}

type toldNeighbour struct {
	ID   string        `json:"id"`
	Addr string        `json:"addr"`
	RTT  time.Duration `json:"rtt_ns"`
}

// toldQuestion is what a peer is to be asked.
type toldQuestion struct {
	Peer string `json:"peer"`
	Obj  string `json:"obj"`
	Most int    `json:"most"`
}

// toldFound is what it said.
type toldFound struct {
	Providers []toldProvider `json:"providers"`
	Record    []byte         `json:"record,omitempty"`
}

type toldProvider struct {
	ID      string        `json:"id"`
	Overlay []string      `json:"overlay,omitempty"`
	HTTP    []string      `json:"http,omitempty"`
	Region  string        `json:"region,omitempty"`
	Age     time.Duration `json:"age_ns"`
}

func tellFound(found Found) toldFound {
	answer := toldFound{Providers: make([]toldProvider, len(found.Providers)), Record: found.Record}
	for i, p := range found.Providers {
		answer.Providers[i] = toldProvider(p)
	}
	return answer
}

func (t toldFound) found() Found {
	found := Found{Record: t.Record}
	for _, p := range t.Providers {
		found.Providers = append(found.Providers, FoundProvider(p))
	}
	return found
}

// askTime is how long a question that comes from another process may take.
const askTime = 5 * time.Second

// Seams lists the routes for the other parts of the node.
func (o *Overlay) Seams() []ingress.Route {
	return []ingress.Route{
		{
			Service: service, Methods: []string{http.MethodGet}, Pattern: seamCompany, Handler: o.seamCompany, Class: ingress.Stream, Scope: "admin",
			Docs: ingress.Docs{Summary: "Tell who is connected, and whenever that changes, for another part of the node"},
		},
		{
			Service: service, Methods: []string{http.MethodPost}, Pattern: seamAsk, Handler: o.seamAsk, Class: ingress.Control, Scope: "admin", BodyCap: 4 << 10, Deadline: askTime,
			Docs: ingress.Docs{Summary: "Ask a peer, for another part of the node", Kinds: []fault.Kind{fault.NoRoute, fault.Busy, fault.Timeout}},
		},
		{
			Service: service, Methods: []string{http.MethodGet}, Pattern: seamObject + "{b3}", Handler: o.seamObject, Class: ingress.Transfer, Scope: "admin",
			Docs: ingress.Docs{Summary: "Fetch an object from a peer, for another part of the node", Kinds: []fault.Kind{fault.NotFound, fault.NoRoute, fault.Timeout}},
		},
	}
}

// companyPause is how old what is told of round trips may be. Who comes and goes
// is told at once.
const companyPause = 5 * time.Second

func (o *Overlay) seamCompany(w http.ResponseWriter, r *http.Request) error {
	news, err := o.events.Subscribe("company", nil)
	if err != nil {
		return err
	}
	defer news.Close()
	first := true
	return ingress.SSE(w, r, func(ctx context.Context) (ingress.Event, error) {
		if !first {
			pause, cancel := context.WithTimeout(ctx, companyPause)
			_, err := news.Recv(pause) // a change, a lag or the time: each is a reason to tell anew
			cancel()
			if errors.Is(err, flow.ErrClosed) || ctx.Err() != nil {
				return ingress.Event{}, err
			}
		}
		first = false
		data, err := json.Marshal(o.tellCompany())
		return ingress.Event{Name: "company", Data: data}, err
	})
}

func (o *Overlay) tellCompany() toldCompany {
	told := toldCompany{Neighbours: []toldNeighbour{}}
	for _, one := range o.Neighbours() {
		told.Neighbours = append(told.Neighbours, toldNeighbour{one.ID.String(), one.Addr, one.RTT})
	}
	return told
}

func (o *Overlay) seamAsk(w http.ResponseWriter, r *http.Request) error {
	var asked toldQuestion
	if err := ingress.DecodeJSON(r, &asked); err != nil {
		return err
	}
	peer, err := oap.ParsePeerID(asked.Peer)
	if err != nil {
		return err
	}
	found, err := o.Ask(r.Context(), peer, Question{Obj: asked.Obj, Most: asked.Most})
	if err != nil {
		return err
	}
	return ingress.WriteJSON(w, http.StatusOK, tellFound(found))
}

func (o *Overlay) seamObject(w http.ResponseWriter, r *http.Request) error {
	address, err := b3.Parse(r.PathValue("b3"))
	if err != nil {
		return err
	}
	peer, err := oap.ParsePeerID(r.URL.Query().Get("from"))
	if err != nil {
		return err
	}
	download, err := o.Open(r.Context(), address, &peer)
	if err != nil {
		return err
	}
	defer func() { _ = download.Close() }() // it was read to its end, or the reason why not is returned
	w.Header().Set("Content-Type", "application/octet-stream")
	_, err = io.Copy(w, download)
	return err
}
