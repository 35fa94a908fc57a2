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

// MaxMessage is the largest size of a message in bytes. With its envelope, it
// fits into one frame between two nodes.
const MaxMessage = 1_048_064

// fetchTimeout bounds a Fetch without a deadline. The node sends nothing until
// it has all of the object, so there is no progress to watch.
const fetchTimeout = time.Hour

// PeerState is the state of the connection to a peer.
type PeerState string

// The states of a peer.
const (
	PeerDialing PeerState = "dialing" // a connection is being made
	PeerActive  PeerState = "active"  // messages flow
	PeerBusy    PeerState = "busy"    // it accepts messages more slowly than they arrive
	PeerBackoff PeerState = "backoff" // it could not be reached; the next try waits
)

// Peer is another node that a node knows.
type Peer struct {
	ID    string    `json:"id"`
	Addr  string    `json:"addr"`
	State PeerState `json:"state"`
	PQ    bool      `json:"pq"`     // the key exchange is post-quantum
	RTT   float64   `json:"rtt_ms"` // of the last ping; 0 if there was none

	Dialed    bool      `json:"dialed"`                // by the node, not by the peer
	Since     time.Time `json:"since,omitzero"`        // when it entered this state
	LastError string    `json:"last_error,omitempty"`  // why it could not be reached
	Next      string    `json:"next,omitempty"`        // what to do about it
	RetryIn   int64     `json:"retry_in_ms,omitempty"` // until the next try

	IntroducedBy string `json:"introduced_by,omitempty"` // the IDs of the peers that introduced it, with commas between them
}

// PeerList is the answer of GET /overlay/peers.
type PeerList struct {
	Peers []Peer `json:"peers"`
}

// PeerRequest is what POST /overlay/peers takes: ID@HOST:PORT.
type PeerRequest struct {
	Peer string `json:"peer"`
}

// Peers returns the peers that the node knows.
func (c *Client) Peers(ctx context.Context) ([]Peer, error) {
	var answer PeerList
	err := c.newCall(ctx, "client.peers", http.MethodGet, peersPath).doJSON(ctx, nil, &answer)
	return answer.Peers, err
}

const peersPath = "/overlay/peers"

// AddPeer makes the node keep a connection to a peer, named as ID@HOST:PORT. A
// peer that it knows already is no error. It requires the scope admin, and
// lasts until the node stops, or for good if the node keeps its state.
func (c *Client) AddPeer(ctx context.Context, peer string) (Peer, error) {
	k := c.newCall(ctx, "client.addpeer", http.MethodPost, peersPath)
	k.repeatable = true
	var answer Peer
	if err := k.doJSON(ctx, PeerRequest{Peer: peer}, &answer); err != nil {
		return Peer{}, err
	}
	if answer.ID == "" {
		return Peer{}, k.unexpected(nil, "there is no peer in it")
	}
	return answer, nil
}

// RemovePeer makes the node forget a peer. An unknown peer is
// [fault.NotFound]; one in its configuration is [fault.Conflict]. It requires
// the scope admin.
func (c *Client) RemovePeer(ctx context.Context, id string) error {
	k := c.newCall(ctx, "client.removepeer", http.MethodDelete, peersPath+"/"+url.PathEscape(id))
	if isUnroutable(id) {
		return fault.New(k.op, fault.Malformed, "%q is not a peer ID", id).Advise("Give an ID as Peers returns it.")
	}
	err := k.doJSON(ctx, nil, nil)
	if k.maybeApplied && fault.KindOf(err) == fault.NotFound {
		return nil // a try whose answer was lost has done it
	}
	return err
}

// Published is the result of a Publish.
type Published struct {
	ID    b3.Address `json:"id"`
	Peers int        `json:"peers"` // that it was enqueued for
	Busy  int        `json:"busy"`  // whose queue was full
}

// Publish sends a message of up to [MaxMessage] bytes to all subscribers of a
// topic, on this node and on others. It requires the scope overlay:pub.
//
// A message has no key by which a node could detect that it was sent twice. So
// Publish is retried only if the node cannot have accepted it: it refused, as
// when it is busy, or the message did not reach it in full. After any other
// failure the outcome is unknown, and the caller decides.
func (c *Client) Publish(ctx context.Context, topic string, data []byte) (Published, error) {
	k, err := c.topicCall(ctx, "client.publish", http.MethodPost, "/overlay/publish/", topic)
	if err != nil {
		return Published{}, err
	}
	if len(data) > MaxMessage {
		return Published{}, fault.New(k.op, fault.BodyTooLarge, "a message of %d bytes; the cap is %d", len(data), MaxMessage).
			Advise("Put it as an object, and publish its address.")
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	for n := 1; ; n++ {
		raw, taken, err := k.publish(ctx, data)
		if err == nil {
			return k.decodePublished(raw)
		}
		if taken {
			return Published{}, publishDoubt(err)
		}
		if err := c.waitRetry(ctx, n, err); err != nil {
			return Published{}, err
		}
	}
}

// publish makes one try. If it fails, applied reports whether the node may
// have accepted the message anyway.
func (k *call) publish(ctx context.Context, data []byte) (raw []byte, applied bool, err error) {
	header, _ := requestJSON(ctx, nil)
	header.Set("Content-Type", "application/octet-stream")
	if len(data) > expectContinueMin {
		header.Set("Expect", "100-continue") // a busy node refuses before the bytes are sent
	}
	if len(data) == 0 {
		_, raw, err = k.doOnce(ctx, header, nil)
		return raw, !isRefused(err), err
	}
	source := bytes.NewReader(data)
	body := newUploadBody(upload{src: source, size: int64(len(data)), seeker: source})
	_, raw, err = k.doOnce(ctx, header, body)
	body.stop() // the caller may use the data again
	return raw, body.complete.Load() && !isRefused(err), err
}

// isRefused reports whether an error means that the node did not start the
// work.
func isRefused(err error) bool {
	switch fault.KindOf(err) {
	case fault.Busy, fault.RateLimited, fault.QuotaExceeded, fault.Backpressure, fault.NotReady, fault.NoRoute:
		return true
	}
	return false
}

// publishDoubt adds the next step to an error after which it is unknown
// whether the message was published.
func publishDoubt(err error) error {
	if own, ok := err.(*fault.Error); ok && maybeApplied(err) {
		own.Next = "It may have been published. Publish it again only if a duplicate does no harm."
	}
	return err
}

func (k *call) decodePublished(raw []byte) (Published, error) {
	var answer Published
	if err := k.decode(raw, &answer); err != nil {
		return Published{}, err
	}
	if answer.ID.IsZero() {
		return Published{}, k.unexpected(nil, "there is no ID in it")
	}
	return answer, nil
}

// topicCall is a call about one topic. Its segments become those of the path,
// so it refuses segments that path cleaning would remove.
func (c *Client) topicCall(ctx context.Context, op, method, path, topic string) (*call, error) {
	segments := strings.Split(topic, "/")
	for i, segment := range segments {
		if isUnroutable(segment) {
			return nil, fault.New(op, fault.Malformed, "the topic %q has the segment %q", topic, segment).
				Advise("Write a topic as news or news/local, without . or .. or empty segments.")
		}
		segments[i] = url.PathEscape(segment)
	}
	return c.newCall(ctx, op, method, path+strings.Join(segments, "/")), nil
}

// isUnroutable reports whether path cleaning would remove a segment.
func isUnroutable(segment string) bool { return segment == "" || segment == "." || segment == ".." }

// FetchRequest is what POST /overlay/fetch/{address} takes. Without a peer,
// any peer is used.
type FetchRequest struct {
	Peer string `json:"peer,omitempty"`
}

// Fetch makes the node get an object from a peer and keep it; it is Created if
// the node did not have it. The peer is its ID, or empty for any peer that has
// the object. The node verifies what it gets. It requires the scope
// object:put.
//
// The node answers when it has all of the object, which may take long: the
// deadline of ctx bounds it, or else an hour does.
func (c *Client) Fetch(ctx context.Context, address b3.Address, peer string) (Object, error) {
	return c.fetch(ctx, "client.fetch", "/overlay/fetch/", address, FetchRequest{Peer: peer})
}

// fetch asks the node to fetch an object, and waits until it has it.
func (c *Client) fetch(ctx context.Context, op, path string, address b3.Address, in any) (Object, error) {
	k, err := c.objectCall(ctx, op, http.MethodPost, address)
	if err != nil {
		return Object{}, err
	}
	k.path, k.repeatable, k.idleTimeout = path+address.String(), true, fetchTimeout
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	var object Object
	err = k.retry(ctx, func() error {
		header, body := requestJSON(ctx, in)
		status, raw, err := k.doOnce(ctx, header, body)
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
		return Object{}, k.unexpected(nil, "it is about %s, not %s", object.Address, address)
	}
	return object, nil
}
