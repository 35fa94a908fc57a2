package client

import (
	"bytes"
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"

	"micronode/b3"
	"micronode/fault"
)

// MaxMessage is how many bytes a message may have. With what goes around it,
// it fits into one frame between two nodes.
const MaxMessage = 1_048_064

// fetchTime bounds a Fetch without a deadline. The node says nothing until it
// has all of the object, so there is no progress to watch.
const fetchTime = time.Hour

// PeerState is how far a node has got with another one.
type PeerState string

// The states of a peer.
const (
	PeerDialing PeerState = "dialing" // a connection is being made
	PeerActive  PeerState = "active"  // messages flow
	PeerBusy    PeerState = "busy"    // it takes them more slowly than they come
	PeerBackoff PeerState = "backoff" // it could not be reached, and is left alone for a while
)

// Peer is another node that a node knows.
type Peer struct {
	ID    string    `json:"id"`
	Addr  string    `json:"addr"`
	State PeerState `json:"state"`
	PQ    bool      `json:"pq"`     // the keys were exchanged so that a quantum computer does not help
	RTT   float64   `json:"rtt_ms"` // of the last ping; 0 if there was none

	Dialed    bool      `json:"dialed"`                // by the node, not the other way round
	Since     time.Time `json:"since,omitzero"`        // when it came into this state
	LastError string    `json:"last_error,omitempty"`  // why it could not be reached
	RetryIn   int64     `json:"retry_in_ms,omitempty"` // until the next try
}

// PeerList is the answer of GET /overlay/peers.
type PeerList struct {
	Peers []Peer `json:"peers"`
}

// PeerRequest is what POST /overlay/peers takes: ID@HOST:PORT.
type PeerRequest struct {
	Peer string `json:"peer"`
}

// Peers asks which other nodes the node knows.
func (c *Client) Peers(ctx context.Context) ([]Peer, error) {
	var answer PeerList
	err := c.newCall(ctx, "client.peers", http.MethodGet, peersPath).control(ctx, nil, &answer)
	return answer.Peers, err
}

const peersPath = "/overlay/peers"

// AddPeer makes the node keep up a connection to another one, named as
// ID@HOST:PORT. One that it knows already is no error. It takes the scope
// admin, and lasts until the node stops: what is to last longer belongs into
// overlay.peers of its configuration.
func (c *Client) AddPeer(ctx context.Context, peer string) (Peer, error) {
	k := c.newCall(ctx, "client.addpeer", http.MethodPost, peersPath)
	k.repeatable = true
	var answer Peer
	if err := k.control(ctx, PeerRequest{Peer: peer}, &answer); err != nil {
		return Peer{}, err
	}
	if answer.ID == "" {
		return Peer{}, k.strange(nil, "there is no peer in it")
	}
	return answer, nil
}

// RemovePeer makes the node forget another one. One that it does not know is
// [fault.NotFound]; one that is in its configuration is [fault.Conflict]. It
// takes the scope admin.
func (c *Client) RemovePeer(ctx context.Context, id string) error {
	k := c.newCall(ctx, "client.removepeer", http.MethodDelete, peersPath+"/"+url.PathEscape(id))
	if unroutable(id) {
		err := fault.New(k.op, fault.Malformed, "%q is no peer ID", id)
		err.Next = "Give an ID as Peers returns it."
		return err
	}
	err := k.control(ctx, nil, nil)
	if k.unsure && fault.KindOf(err) == fault.NotFound {
		return nil // a try that was lost on the way has done it
	}
	return err
}

// Published is what became of a message.
type Published struct {
	ID    b3.Address `json:"id"`
	Peers int        `json:"peers"` // that it was handed to
	Busy  int        `json:"busy"`  // that had no room for it
}

// Publish sends a message of up to [MaxMessage] bytes to all who subscribe to a
// topic, on this node and on others. It takes the scope overlay:pub.
//
// A message has no name by which a node could tell that it was sent twice. So
// Publish is repeated only if the node cannot have taken it: it refused, as
// when it is busy, or the message did not reach it in full. After any other
// failure nobody knows, and the caller decides.
func (c *Client) Publish(ctx context.Context, topic string, data []byte) (Published, error) {
	k, err := c.topicCall(ctx, "client.publish", http.MethodPost, "/overlay/publish/", topic)
	if err != nil {
		return Published{}, err
	}
	if len(data) > MaxMessage {
		err := fault.New(k.op, fault.BodyTooLarge, "a message of %d bytes; the cap is %d", len(data), MaxMessage)
		err.Next = "Put it as an object, and publish its address."
		return Published{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	for n := 1; ; n++ {
		raw, taken, err := k.publish(ctx, data)
		if err == nil {
			return k.published(raw)
		}
		if taken {
			return Published{}, doubtful(err)
		}
		if err := c.again(ctx, n, err); err != nil {
			return Published{}, err
		}
	}
}

// publish makes one try. If it fails, taken says whether the node may have the
// message all the same.
func (k *call) publish(ctx context.Context, data []byte) (raw []byte, taken bool, err error) {
	header, _ := question(ctx, nil)
	header.Set("Content-Type", "application/octet-stream")
	if len(data) > politeCap {
		header.Set("Expect", "100-continue") // who is busy says so before the bytes travel
	}
	if len(data) == 0 {
		_, raw, err = k.document(ctx, header, nil)
		return raw, !refused(err), err
	}
	source := bytes.NewReader(data)
	body := newSending(upload{src: source, size: int64(len(data)), seeker: source})
	_, raw, err = k.document(ctx, header, body)
	body.stop() // the data is the caller's again
	return raw, body.whole.Load() && !refused(err), err
}

// refused reports whether an error says that nothing was begun.
func refused(err error) bool {
	switch fault.KindOf(err) {
	case fault.Busy, fault.RateLimited, fault.QuotaExceeded, fault.Backpressure, fault.NotReady, fault.NoRoute:
		return true
	}
	return false
}

// doubtful adds the next step to an error after which nobody knows whether the
// message was published.
func doubtful(err error) error {
	if own, ok := err.(*fault.Error); ok && unsure(err) {
		own.Next = "It may have been published all the same. Publish it again if twice is better than never."
	}
	return err
}

func (k *call) published(raw []byte) (Published, error) {
	var answer Published
	if err := k.decode(raw, &answer); err != nil {
		return Published{}, err
	}
	if answer.ID.IsZero() {
		return Published{}, k.strange(nil, "there is no ID in it")
	}
	return answer, nil
}

// topicCall is a call about one topic. Its segments become those of the path,
// so one that a reader of paths would shorten cannot be asked for.
func (c *Client) topicCall(ctx context.Context, op, method, path, topic string) (*call, error) {
	segments := strings.Split(topic, "/")
	for i, segment := range segments {
		if unroutable(segment) {
			err := fault.New(op, fault.Malformed, "the topic %q has the segment %q", topic, segment)
			err.Next = "Write a topic as news or news/local, without . or .. or empty segments."
			return nil, err
		}
		segments[i] = url.PathEscape(segment)
	}
	return c.newCall(ctx, op, method, path+strings.Join(segments, "/")), nil
}

// unroutable reports whether a segment would not arrive as it is.
func unroutable(segment string) bool { return segment == "" || segment == "." || segment == ".." }

// FetchRequest is what POST /overlay/fetch/{address} takes. Without a peer, any
// will do.
type FetchRequest struct {
	Peer string `json:"peer,omitempty"`
}

// Fetch makes the node get an object from another one and keep it; it is
// Created if the node did not have it. The peer is its ID, or empty for any
// that has the object. The node verifies what it gets. It takes the scope
// object:put.
//
// The node answers when it has all of the object, which may take long: a
// deadline of ctx bounds it, or else an hour does.
func (c *Client) Fetch(ctx context.Context, address b3.Address, peer string) (Object, error) {
	return c.fetch(ctx, "client.fetch", "/overlay/fetch/", address, FetchRequest{Peer: peer})
}

// fetch asks the node to bring an object here, and waits until it has.
func (c *Client) fetch(ctx context.Context, op, path string, address b3.Address, in any) (Object, error) {
	k, err := c.objectCall(ctx, op, http.MethodPost, address)
	if err != nil {
		return Object{}, err
	}
	k.path, k.repeatable, k.patience = path+address.String(), true, fetchTime
	ctx, cancel := context.WithTimeout(ctx, fetchTime)
	defer cancel()
	var object Object
	err = k.repeat(ctx, func() error {
		header, body := question(ctx, in)
		status, raw, err := k.document(ctx, header, body)
		if err != nil {
			return err
		}
		err = k.decode(raw, &object)
		object.Created = status == http.StatusCreated
		return err
	})
	switch {
	case err != nil:
		return Object{}, err
	case object.Address != address:
		return Object{}, k.strange(nil, "it is about %s, not %s", object.Address, address)
	}
	return object, nil
}
