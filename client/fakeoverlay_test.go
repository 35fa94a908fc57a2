package client

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"

	"micronode/b3"
	"micronode/fault"
)

// FakeOverlay is the overlay of a FakeNode: peers in a list, messages that
// reach the subscribers here, and objects that a peer is said to have.
type FakeOverlay struct {
	Fixed []string // IDs of peers that come from the configuration
	Left  func()   // called when a subscriber has disconnected, if it is not nil

	mu        sync.Mutex
	peers     []Peer
	readers   map[chan Message]string
	elsewhere map[b3.Address][]byte
	seq       uint64
}

const fakeOrigin = "originoriginoriginoriginoriginoriginoriginoriginorig"

// Remote stores an object at a peer.
func (o *FakeOverlay) Remote(data []byte) b3.Address {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.elsewhere == nil {
		o.elsewhere = map[b3.Address][]byte{}
	}
	o.elsewhere[b3.Of(data)] = data
	return b3.Of(data)
}

func (o *FakeOverlay) serve(node *FakeNode, w http.ResponseWriter, r *http.Request) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /overlay/peers", o.list)
	mux.HandleFunc("POST /overlay/peers", o.add)
	mux.HandleFunc("DELETE /overlay/peers/{id}", o.remove)
	mux.HandleFunc("POST /overlay/publish/{topic...}", o.publish)
	mux.HandleFunc("GET /overlay/subscribe/{topic...}", o.subscribe)
	mux.HandleFunc("POST /overlay/fetch/{address}", func(w http.ResponseWriter, r *http.Request) { o.fetch(node, w, r) })
	mux.ServeHTTP(w, r)
}

func (o *FakeOverlay) list(w http.ResponseWriter, _ *http.Request) {
	o.mu.Lock()
	raw, _ := json.Marshal(PeerList{o.peers})
	o.mu.Unlock()
	writeJSON(w, 200, string(raw))
}

func (o *FakeOverlay) find(id string) int {
	return slices.IndexFunc(o.peers, func(p Peer) bool { return p.ID == id })
}

func (o *FakeOverlay) add(w http.ResponseWriter, r *http.Request) {
	var ask PeerRequest
	_ = json.NewDecoder(r.Body).Decode(&ask)
	id, addr, ok := strings.Cut(ask.Peer, "@")
	if !ok {
		refuse(w, r, fault.Malformed, "a peer is ID@HOST:PORT")
		return
	}
	o.mu.Lock()
	status, at := http.StatusOK, o.find(id)
	if at < 0 {
		status, at = http.StatusCreated, len(o.peers)
		o.peers = append(o.peers, Peer{ID: id, Addr: addr, State: PeerDialing, Dialed: true})
	}
	raw, _ := json.Marshal(o.peers[at])
	o.mu.Unlock()
	writeJSON(w, status, string(raw))
}

func (o *FakeOverlay) remove(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	switch {
	case slices.Contains(o.Fixed, id):
		refuse(w, r, fault.Conflict, "take it out of overlay.peers")
	case !o.forget(id):
		refuse(w, r, fault.NotFound, "there is no such peer")
	default:
		w.WriteHeader(http.StatusNoContent)
	}
}

func (o *FakeOverlay) forget(id string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	at := o.find(id)
	if at >= 0 {
		o.peers = slices.Delete(o.peers, at, at+1)
	}
	return at >= 0
}

func (o *FakeOverlay) publish(w http.ResponseWriter, r *http.Request) {
	data, err := io.ReadAll(r.Body)
	if err != nil || r.Header.Get("Content-Type") != "application/octet-stream" {
		refuse(w, r, fault.Malformed, "this is no message")
		return
	}
	one, readers := o.address(r.PathValue("topic"), data)
	for _, reader := range readers {
		reader <- one
	}
	writeJSON(w, 200, fmt.Sprintf(`{"id":%q,"peers":%d,"busy":1}`, one.ID, len(readers)))
}

// address makes a message, and returns it with the channels of its receivers.
func (o *FakeOverlay) address(topic string, data []byte) (Message, []chan Message) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.seq++
	one := Message{Origin: fakeOrigin, Topic: topic, Data: data, Seq: o.seq, TS: 1_700_000_000_000, Signed: true}
	one.ID = b3.Of(fmt.Appendf(nil, "%d %s %s", one.Seq, one.Topic, data))
	var readers []chan Message
	for reader, wanted := range o.readers {
		if wanted == topic {
			readers = append(readers, reader)
		}
	}
	return one, readers
}

func (o *FakeOverlay) subscribe(w http.ResponseWriter, r *http.Request) {
	in := make(chan Message, 16)
	o.mu.Lock()
	if o.readers == nil {
		o.readers = map[chan Message]string{}
	}
	o.readers[in] = r.PathValue("topic")
	o.mu.Unlock()
	defer func() {
		o.mu.Lock()
		delete(o.readers, in)
		o.mu.Unlock()
		if o.Left != nil {
			o.Left()
		}
	}()
	w.Header().Set("Content-Type", "text/event-stream")
	fmt.Fprint(w, ":\n\n")
	for {
		_ = http.NewResponseController(w).Flush()
		select {
		case one := <-in:
			raw, _ := json.Marshal(one)
			fmt.Fprintf(w, "event: message\nid: %s\ndata: %s\n\n", one.ID, raw)
		case <-r.Context().Done():
			return
		}
	}
}

func (o *FakeOverlay) fetch(node *FakeNode, w http.ResponseWriter, r *http.Request) {
	address, err := b3.Parse(r.PathValue("address"))
	var ask map[string]string
	if err != nil || json.NewDecoder(r.Body).Decode(&ask) != nil {
		refuse(w, r, fault.Malformed, "there is no address")
		return
	}
	have, had := node.object(address)
	data, known := o.remote(address, ask["peer"])
	switch {
	case had:
		writeJSON(w, 200, fmt.Sprintf(`{"address":%q,"size":%d}`, address, len(have)))
	case !known:
		refuse(w, r, fault.NotFound, "no peer has it")
	default:
		node.Add(data)
		writeJSON(w, 201, fmt.Sprintf(`{"address":%q,"size":%d}`, address, len(data)))
	}
}

// remote is an object that a peer has, or any peer if none is named.
func (o *FakeOverlay) remote(address b3.Address, peer string) ([]byte, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	data, known := o.elsewhere[address]
	return data, known && (peer == "" || o.find(peer) >= 0)
}
