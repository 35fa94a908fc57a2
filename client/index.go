package client

import (
	"context"
	"crypto/rand"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"micronode/b3"
	"micronode/fault"
)

// The two kinds of what can be resolved.
const (
	KindName = "name" // name:docs, or name:docs@<peer-id>
	KindCID  = "cid"  // b3:…, or a CIDv1 of the same hash
)

// Provider is a node of which somebody says that it has an object. Whether it
// has is known when the bytes have come and are right.
type Provider struct {
	ID       string   `json:"id"`
	Addr     string   `json:"addr"`            // where to reach it first: host:port of its overlay, or the URL of its gateway
	Addrs    []string `json:"addrs,omitempty"` // all its addresses, if there are more
	Region   string   `json:"region"`          // empty if nobody knows
	Class    string   `json:"class"`           // best, good, fair or poor: the score in a word
	Score    float64  `json:"score"`           // from 0 to 1
	Latency  string   `json:"latency"`         // local, near, medium, far or unknown
	LastSeen int64    `json:"last_seen_s"`     // seconds since it was heard of; -1 if nobody knows
}

// Resolution is the answer of GET /resolve/{id}.
type Resolution struct {
	Key       string     `json:"key"`          // the ID in its one right spelling
	Kind      string     `json:"kind"`         // KindName or KindCID
	Manifest  b3.Address `json:"manifest_cid"` // what a name stands for; of a cid, the address itself
	Source    string     `json:"source"`       // local, cache, registry, dht, peer or delegated
	ETag      string     `json:"etag"`
	Freshness int64      `json:"freshness_s"`     // seconds since it was found out
	Stale     bool       `json:"stale,omitempty"` // past its life; given only to those who allow it
	Providers []Provider `json:"providers"`       // best first
}

// Hedge says whether a second wave of questions was sent, and which one won.
type Hedge struct {
	Fired  bool   `json:"fired"`
	Winner string `json:"winner"` // alpha, beta, or none
}

// Providers is the answer of GET /providers/{b3}.
type Providers struct {
	CID       b3.Address `json:"cid"`
	Source    string     `json:"source,omitempty"` // as in a Resolution
	Providers []Provider `json:"providers"`        // best first
	Hedge     Hedge      `json:"hedge"`
}

// NameRequest is what PUT /names/{name} takes.
type NameRequest struct {
	Manifest b3.Address `json:"manifest"`
}

// NameRecord is a name of a node, as it signs it: the answer of
// PUT /names/{name}.
type NameRecord struct {
	Name     string     `json:"name"`
	Manifest b3.Address `json:"manifest"`
	Seq      uint64     `json:"seq"` // the higher one is the newer one
	Issued   time.Time  `json:"issued,omitzero"`
	Expires  time.Time  `json:"expires,omitzero"`
	Shadowed bool       `json:"shadowed,omitempty"` // the registry holds the name, and its meaning wins
}

// NameList is the answer of GET /names: one page of the node's own names, in
// the order of their bytes. Next, if there is more, is what the parameter after
// of the next page is.
type NameList struct {
	Names []NameRecord `json:"names"`
	Next  string       `json:"next,omitempty"`
}

// PinRequest is what POST /admin/pin and POST /admin/unpin take.
type PinRequest struct {
	B3 b3.Address `json:"b3"`
}

// Pinned is the answer of POST /admin/pin and POST /admin/unpin.
type Pinned struct {
	B3     b3.Address `json:"b3"`
	Pinned bool       `json:"pinned"`
}

// Reindexed is the answer of POST /admin/reindex: how many objects the node
// announces again.
type Reindexed struct {
	Objects int `json:"objects"`
}

// idempotencyHeader carries the name of something that is to be done once.
const idempotencyHeader = "Idempotency-Key"

// ResolveOptions may all be left out.
type ResolveOptions struct {
	// AllowStale takes an answer that is past its life, rather than none. It is
	// marked.
	AllowStale bool
}

// Resolve asks what an ID stands for and who has it. An ID is a name
// (name:docs, name:docs@<peer-id>, or without the prefix), an address (b3:…) or
// a CIDv1.
func (c *Client) Resolve(ctx context.Context, id string, o ResolveOptions) (Resolution, error) {
	k := c.newCall(ctx, "client.resolve", http.MethodGet, "/resolve/"+url.PathEscape(id))
	if unroutable(id) {
		return Resolution{}, k.noID(id)
	}
	if o.AllowStale {
		k.path += "?fresh=false"
	}
	var answer Resolution
	if err := k.control(ctx, nil, &answer); err != nil {
		return Resolution{}, err
	}
	if answer.Manifest.IsZero() {
		return Resolution{}, k.strange(nil, "there is no address in it")
	}
	return answer, nil
}

// noID refuses what no path can carry.
func (k *call) noID(id string) error {
	err := fault.New(k.op, fault.Malformed, "%q is no ID", id)
	err.Next = "Give a name (name:docs, name:docs@<peer-id>) or an address (b3: and 64 hex digits)."
	return err
}

// ProvidersOptions may all be left out.
type ProvidersOptions struct {
	Limit        int           // at most so many; 0 leaves it to the node
	Region       string        // those of this region first
	MinFreshness time.Duration // heard of within this time, in whole seconds
}

func (o ProvidersOptions) query() string {
	values := url.Values{}
	if o.Limit != 0 {
		values.Set("limit", strconv.Itoa(o.Limit))
	}
	if o.Region != "" {
		values.Set("region", o.Region)
	}
	if o.MinFreshness != 0 {
		values.Set("min_freshness", strconv.FormatInt(int64(o.MinFreshness/time.Second), 10))
	}
	if len(values) == 0 {
		return ""
	}
	return "?" + values.Encode()
}

// Providers asks who has an object, best first. That nobody has it is an
// answer, not an error.
func (c *Client) Providers(ctx context.Context, address b3.Address, o ProvidersOptions) (Providers, error) {
	k, err := c.objectCall(ctx, "client.providers", http.MethodGet, address)
	if err != nil {
		return Providers{}, err
	}
	k.path = "/providers/" + address.String() + o.query()
	var answer Providers
	if err := k.control(ctx, nil, &answer); err != nil {
		return Providers{}, err
	}
	if answer.CID != address {
		return Providers{}, k.strange(nil, "it is about %s, not %s", answer.CID, address)
	}
	return answer, nil
}

// namesPath is where the node's own names are.
const namesPath = "/names"

// nameCall is a call about one name of the node itself.
func (c *Client) nameCall(ctx context.Context, op, method, name string) (*call, error) {
	k := c.newCall(ctx, op, method, namesPath+"/"+url.PathEscape(name))
	if unroutable(name) {
		return nil, k.noID(name)
	}
	return k, nil
}

// SetName makes a name of the node stand for an object, most often a manifest.
// The node signs it, so that others can ask for name:docs@<peer-id>. A name
// that the registry holds is [fault.Conflict]. It takes the scope name:set.
func (c *Client) SetName(ctx context.Context, name string, manifest b3.Address) (NameRecord, error) {
	k, err := c.nameCall(ctx, "client.setname", http.MethodPut, name)
	if err != nil {
		return NameRecord{}, err
	}
	var answer NameRecord
	if err := k.control(ctx, NameRequest{Manifest: manifest}, &answer); err != nil {
		return NameRecord{}, err
	}
	if answer.Manifest != manifest {
		return NameRecord{}, k.strange(nil, "it says that the name stands for %s, not %s", answer.Manifest, manifest)
	}
	return answer, nil
}

// DeleteName makes the node forget a name of its own. One that it does not have
// is [fault.NotFound]. Others may know it until its record expires. It takes
// the scope name:set.
func (c *Client) DeleteName(ctx context.Context, name string) error {
	k, err := c.nameCall(ctx, "client.deletename", http.MethodDelete, name)
	if err != nil {
		return err
	}
	err = k.control(ctx, nil, nil)
	if k.unsure && fault.KindOf(err) == fault.NotFound {
		return nil // a try that was lost on the way has done it
	}
	return err
}

// Names asks for all names of the node itself, in the order of their bytes.
func (c *Client) Names(ctx context.Context) ([]NameRecord, error) {
	var all []NameRecord
	for after := ""; ; {
		path := namesPath
		if after != "" {
			path += "?after=" + url.QueryEscape(after)
		}
		k := c.newCall(ctx, "client.names", http.MethodGet, path)
		var page NameList
		if err := k.control(ctx, nil, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Names...)
		if page.Next == "" {
			return all, nil
		}
		if page.Next <= after {
			return nil, k.strange(nil, "its pages go round in circles")
		}
		after = page.Next
	}
}

// FetchAnywhere makes the node get an object from whoever has it, and keep it;
// it is Created if the node did not have it. The node looks for providers,
// takes the best of them, and verifies what it gets. Where it is known who has
// the object, Fetch spares the search. It takes the scope object:put.
//
// The node answers when it has all of the object, which may take long: a
// deadline of ctx bounds it, or else an hour does.
func (c *Client) FetchAnywhere(ctx context.Context, address b3.Address) (Object, error) {
	return c.fetch(ctx, "client.fetchanywhere", "/fetch/", address, nil)
}

// Pin makes the node keep an object that it has, however full it is. It takes
// the scope index:pin.
func (c *Client) Pin(ctx context.Context, address b3.Address) error {
	return c.pin(ctx, "client.pin", "/admin/pin", address)
}

// Unpin lets the node drop an object when it needs the room, as one that can be
// had again. It takes the scope index:pin.
func (c *Client) Unpin(ctx context.Context, address b3.Address) error {
	return c.pin(ctx, "client.unpin", "/admin/unpin", address)
}

func (c *Client) pin(ctx context.Context, op, path string, address b3.Address) error {
	k, err := c.objectCall(ctx, op, http.MethodPost, address)
	if err != nil {
		return err
	}
	k.path = path
	return k.once(ctx, PinRequest{B3: address}, nil)
}

// Reindex makes the node look through all that it has and announce it again. It
// answers before that is done. It takes the scope index:admin.
func (c *Client) Reindex(ctx context.Context) (Reindexed, error) {
	k := c.newCall(ctx, "client.reindex", http.MethodPost, "/admin/reindex")
	var answer Reindexed
	err := k.once(ctx, nil, &answer)
	return answer, err
}

// once is control for what must not be done twice. All its tries carry one key,
// by which the node knows that it has done this already, so it may be repeated.
func (k *call) once(ctx context.Context, in, out any) error {
	k.repeatable = true
	key := rand.Text()
	ctx, cancel := context.WithTimeout(ctx, k.client.timeout)
	defer cancel()
	var raw []byte
	err := k.repeat(ctx, func() (err error) {
		header, body := question(ctx, in)
		header.Set(idempotencyHeader, key)
		_, raw, err = k.document(ctx, header, body)
		return err
	})
	if err != nil || out == nil {
		return err
	}
	return k.decode(raw, out)
}
