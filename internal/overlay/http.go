package overlay

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"time"

	"micronode/b3"
	"micronode/client"
	"micronode/fault"
	"micronode/internal/ingress"
	"micronode/internal/oap"
	"micronode/internal/overlay/gossip"
	"micronode/internal/overlay/session"
	"micronode/internal/overlay/stream"
	"micronode/internal/store"
)

// fetchTimeout is how long a fetch may take in all. A stream without progress
// ends much earlier.
const fetchTimeout = 5 * time.Minute

// Routes lists the routes of the overlay. The zero Overlay has the same list,
// for a gateway whose overlay is in another process.
func (o *Overlay) Routes() []ingress.Route {
	topic := ingress.Param{Name: "topic", In: "path", Type: "string", Required: true, Doc: "The topic; slashes are part of it."}
	return append([]ingress.Route{
		{
			Service: service, Methods: []string{http.MethodGet}, Pattern: "/overlay/peers", Handler: o.handleListPeers, Class: ingress.Control,
			Docs: ingress.Docs{Summary: "List the peers, with the errors of those that are not connected",
				Responses: []ingress.Response{{Status: http.StatusOK, Body: client.PeerList{}}}},
		},
		{
			Service: service, Methods: []string{http.MethodPost}, Pattern: "/overlay/peers", Handler: o.handleAddPeer, Class: ingress.Control,
			Scope: "admin", BodyCap: 4 << 10,
			Docs: ingress.Docs{Summary: "Keep a session with a node: until this one stops, or for good if it keeps its state", Request: client.PeerRequest{},
				Responses: []ingress.Response{{Status: http.StatusCreated, Body: client.Peer{}}, {Status: http.StatusOK, Body: client.Peer{}, Doc: "It was already known."}},
				Kinds:     []fault.Kind{fault.Malformed}},
		},
		{
			Service: service, Methods: []string{http.MethodDelete}, Pattern: "/overlay/peers/{id}", Handler: o.handleRemovePeer, Class: ingress.Control, Scope: "admin",
			Docs: ingress.Docs{Summary: "Remove a peer that was added or introduced", Responses: []ingress.Response{{Status: http.StatusNoContent}},
				Params: []ingress.Param{{Name: "id", In: "path", Type: "string", Required: true, Doc: "The peer ID."}},
				Kinds:  []fault.Kind{fault.Malformed, fault.NotFound, fault.Conflict}},
		},
		{
			Service: service, Methods: []string{http.MethodPost}, Pattern: "/overlay/publish/{topic...}", Handler: o.handlePublish, Class: ingress.Control,
			Scope: "overlay:pub", Topic: "topic", BodyCap: oap.MaxData, Lane: o.publishLane,
			Docs: ingress.Docs{Summary: "Publish a message", Request: ingress.Octets, Params: []ingress.Param{topic},
				Description: "The body is the message. The response has the number of peers that received it and of peers whose queue was full; local subscribers receive it in any case.",
				Responses:   []ingress.Response{{Status: http.StatusOK, Body: client.Published{}}},
				Kinds:       []fault.Kind{fault.Malformed, fault.Busy, fault.NotReady}},
		},
		{
			Service: service, Methods: []string{http.MethodGet}, Pattern: "/overlay/subscribe/{topic...}", Handler: o.handleSubscribe, Class: ingress.Stream, Topic: "topic",
			Docs: ingress.Docs{Summary: "Subscribe to a topic", Params: []ingress.Param{topic},
				Description: "Server-sent events: message for each message, lagged with the number of messages that a slow client lost.",
				Responses:   []ingress.Response{{Status: http.StatusOK, Type: "text/event-stream", Doc: "Events, until the client leaves."}},
				Kinds:       []fault.Kind{fault.Malformed, fault.Busy}},
		},
		{
			Service: service, Methods: []string{http.MethodPost}, Pattern: "/overlay/fetch/{b3}", Handler: o.handleFetch, Class: ingress.Control,
			Scope: "object:put", BodyCap: 4 << 10, Lane: o.fetchLane, Deadline: fetchTimeout,
			Docs: ingress.Docs{Summary: "Fetch an object from a peer and cache it", Request: client.FetchRequest{},
				Params:    []ingress.Param{{Name: "b3", In: "path", Type: "string", Required: true, Doc: "The address."}},
				Responses: []ingress.Response{{Status: http.StatusCreated, Body: client.Object{}}, {Status: http.StatusOK, Body: client.Object{}, Doc: "It was already stored."}},
				Kinds:     []fault.Kind{fault.Malformed, fault.NotFound, fault.IntegrityFail, fault.StoreFull, fault.Timeout, fault.NoRoute, fault.NotReady, fault.Backpressure, fault.StorageBusy, fault.UpstreamFailed, fault.InvalidRange, fault.Forbidden, fault.QuotaExceeded, fault.Transient}},
		},
	}, o.joinRoutes()...)
}

func (o *Overlay) handleListPeers(w http.ResponseWriter, _ *http.Request) error {
	return ingress.WriteJSON(w, http.StatusOK, peersResponse{o.Peers()})
}

// peersResponse is the answer with all peers.
type peersResponse struct {
	Peers []session.PeerState `json:"peers"`
}

// Peers lists every node that is named or connected.
func (o *Overlay) Peers() []session.PeerState {
	list, by := o.sessions.Peers(), o.introducers()
	for i := range list {
		list[i].IntroducedBy = by[list[i].ID]
	}
	return list
}

func (o *Overlay) handleAddPeer(w http.ResponseWriter, r *http.Request) error {
	var request client.PeerRequest
	if err := ingress.DecodeJSON(r, &request); err != nil {
		return err
	}
	contact, err := session.ParseContact(request.Peer)
	if err != nil {
		return err
	}
	created, err := o.AddPeer(contact)
	if err == nil {
		o.knocks.forget(contact.ID)
		err = o.savePeers(r.Context())
	}
	if err != nil {
		return err
	}
	status := http.StatusOK
	if created {
		status = http.StatusCreated
	}
	return ingress.WriteJSON(w, status, o.sessions.PeerOf(contact))
}

// AddPeer keeps a session with a node from now on, and reports whether it is
// new.
func (o *Overlay) AddPeer(contact Contact) (created bool, err error) {
	const op = "overlay.peers"
	switch {
	case contact.ID == o.ID():
		return false, &fault.Error{Op: op, Kind: fault.Malformed, Detail: "that is this node itself",
			Next: "Give the ID and address of another node, as its banner shows them."}
	case o.contacts.count() >= maxContacts:
		return false, &fault.Error{Op: op, Kind: fault.QuotaExceeded, Detail: "the maximum number of peers is reached",
			Next: "Remove one with `micronode peers rm`."}
	}
	o.allowIntroduced(contact.ID)
	return o.contacts.add(contact), nil
}

func (o *Overlay) handleRemovePeer(w http.ResponseWriter, r *http.Request) error {
	id, err := oap.ParsePeerID(r.PathValue("id"))
	if err != nil {
		return err
	}
	if err := o.removePeer(id); err != nil {
		return err
	}
	o.invitations.remove(id)
	if err := o.savePeers(r.Context()); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// removePeer removes a peer that was added or introduced.
func (o *Overlay) removePeer(id oap.PeerID) error {
	if err := o.contacts.remove(id); err != nil && !o.contacts.onlyIntroduced(id) {
		return err
	}
	o.forgetIntroduced(id)
	return nil
}

func (o *Overlay) handlePublish(w http.ResponseWriter, r *http.Request) error {
	topic := r.PathValue("topic")
	if err := oap.CheckTopic(topic); err != nil {
		return err
	}
	data, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	outcome, err := o.Publish(r.Context(), topic, data)
	if err != nil {
		return err
	}
	return ingress.WriteJSON(w, http.StatusOK, client.Published{ID: outcome.ID(), Peers: outcome.Peers, Busy: outcome.Busy})
}

// Publish sends a message to the subscribers of its topic. It does not go
// through the queue for messages of peers, however full that is.
func (o *Overlay) Publish(ctx context.Context, topic string, data []byte) (gossip.PublishResult, error) {
	return o.engine.Publish(ctx, topic, data)
}

// PublishNoID is Publish without a result.
func (o *Overlay) PublishNoID(ctx context.Context, topic string, data []byte) error {
	return o.engine.PublishNoID(ctx, topic, data)
}

// Subscribe returns a subscription to the messages of a topic from now on.
func (o *Overlay) Subscribe(topic string) (*gossip.Subscription, error) {
	return o.engine.Subscribe(topic)
}

func (o *Overlay) handleSubscribe(w http.ResponseWriter, r *http.Request) error {
	subscription, err := o.Subscribe(r.PathValue("topic"))
	if err != nil {
		return err
	}
	defer subscription.Close()
	return ingress.SSE(w, r, func(ctx context.Context) (ingress.Event, error) {
		d, err := subscription.Recv(ctx)
		if err != nil {
			return ingress.Event{}, err
		}
		data, err := json.Marshal(client.Message{
			Origin: d.Publisher.String(), Topic: d.Topic, ID: d.ID(), Data: d.Data, Seq: d.Seq, TS: uint64(d.Time.UnixMilli()), Signed: d.Signed,
		})
		if err != nil {
			return ingress.Event{}, fault.Wrap("overlay.subscribe", err)
		}
		return ingress.Event{Name: "message", ID: d.ID().String(), Data: data}, nil
	})
}

func (o *Overlay) handleFetch(w http.ResponseWriter, r *http.Request) error {
	address, err := b3.Parse(r.PathValue("b3"))
	if err != nil {
		return err
	}
	var request client.FetchRequest
	if r.ContentLength != 0 {
		if err := ingress.DecodeJSON(r, &request); err != nil {
			return err
		}
	}
	var from *oap.PeerID
	if request.Peer != "" {
		id, err := oap.ParsePeerID(request.Peer)
		if err != nil {
			return err
		}
		from = &id
	}
	info, created, err := o.Fetch(r.Context(), address, from)
	if err != nil {
		return err
	}
	status := http.StatusOK
	if created {
		status = http.StatusCreated
	}
	w.Header().Set("Location", ingress.Location(r, "/o/"+address.String()))
	return ingress.WriteJSON(w, status, client.Object{Address: info.Address, Size: info.Size, Created: created})
}

// Fetch fetches an object from a peer, or from any of them, into the store,
// verified. It reports whether the object is new here.
func (o *Overlay) Fetch(ctx context.Context, address b3.Address, from *oap.PeerID) (store.Info, bool, error) {
	if info, err := o.spec.Store.Stat(ctx, address); err == nil {
		return info, false, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	download, err := o.Open(ctx, address, from)
	if err != nil {
		return store.Info{}, false, err
	}
	defer func() { _ = download.Close() }() // it was read to its end, or the reason why not is returned
	return o.spec.Store.Put(ctx, download, store.PutOptions{Want: address, Size: store.Unknown, Unverified: true})
}

// Open begins to fetch an object from a peer, or from any of them. It returns
// when the first bytes are here, or with the reason why none will come; what is
// read is right only if it ends with io.EOF. The context is that of the whole
// download, which the caller must close.
func (o *Overlay) Open(ctx context.Context, address b3.Address, from *oap.PeerID) (io.ReadCloser, error) {
	download, err := o.streams.Fetch(ctx, address, o.nextProvider(ctx, from))
	if err != nil {
		return nil, err // not an interface that holds nil
	}
	return download, nil
}

// OpenPart begins to fetch some bytes of an object, or of a view of it, from a
// peer,
// from an offset on; a length of 0 is all of them. They are not verified. The
// context is that of the whole part, which the caller must close.
func (o *Overlay) OpenPart(ctx context.Context, address b3.Address, peer oap.PeerID, view oap.View, from, length int64) (io.ReadCloser, error) {
	best := o.nearest(&peer, nil)
	if best == nil {
		return nil, fault.New("overlay.fetch", fault.NoRoute, "there is no connection to the peer %s", peer)
	}
	part, err := o.streams.FetchSection(ctx, best, address, view, from, length)
	if err != nil {
		return nil, err // not an interface that holds nil
	}
	return part, nil
}

// nextProvider chooses the peer to ask next: the one that was given, or any
// that was not tried yet, the nearest first. When all were, it is one whose
// session ended meanwhile and that is connected again: of two connections that
// were made at the same time one is closed, and what was asked on that one is
// not lost.
func (o *Overlay) nextProvider(ctx context.Context, only *oap.PeerID) func(tried []oap.PeerID) stream.Peer {
	asked := map[oap.PeerID]*session.Session{}
	return func(tried []oap.PeerID) stream.Peer {
		best := o.nearest(only, tried)
		for i := 0; best == nil && i < len(tried); i++ {
			best = o.sessions.AwaitNext(ctx, asked[tried[i]])
		}
		if best == nil {
			return nil
		}
		asked[best.Peer()] = best
		return best
	}
}

// nearest returns the nearest peer that was not tried, of all or of one; or
// nil.
func (o *Overlay) nearest(only *oap.PeerID, tried []oap.PeerID) (best *session.Session) {
	for _, s := range o.sessions.Active() {
		if only != nil && s.Peer() != *only || slices.Contains(tried, s.Peer()) {
			continue
		}
		if best == nil || s.RTT() < best.RTT() {
			best = s
		}
	}
	return best
}
