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

// The two kinds of IDs that can be resolved.
const (
	KindName = "name" // name:docs, or name:docs@<peer-id>
	KindCID  = "cid"  // b3:…, or a CIDv1 of the same hash
)

// Provider is a node that is said to have an object. Only verified bytes from
// it prove that it has.
type Provider struct {
	ID       string   `json:"id"`
	Addr     string   `json:"addr"`            // its first address: host:port of its overlay, or the URL of its gateway
	Addrs    []string `json:"addrs,omitempty"` // all its addresses, if there are more
	Region   string   `json:"region"`          // empty if unknown
	Class    string   `json:"class"`           // best, good, fair or poor: the score in a word
	Score    float64  `json:"score"`           // from 0 to 1
	Latency  string   `json:"latency"`         // local, near, medium, far or unknown
	LastSeen int64    `json:"last_seen_s"`     // seconds since it was last seen; -1 if unknown
	Self     bool     `json:"self,omitempty"`  // it is the node that answers
}

// Resolution is the answer of GET /resolve/{id}.
type Resolution struct {
	Key       string     `json:"key"`          // the ID in its canonical spelling
	Kind      string     `json:"kind"`         // KindName or KindCID
	Manifest  b3.Address `json:"manifest_cid"` // what a name stands for; of a cid, the address itself
	Source    string     `json:"source"`       // local, cache, registry, dht, peer or delegated
	ETag      string     `json:"etag"`
	Freshness int64      `json:"freshness_s"`     // seconds since it was resolved
	Stale     bool       `json:"stale,omitempty"` // past its lifetime; only with AllowStale
	Providers []Provider `json:"providers"`       // best first
}

// Hedge reports whether a second wave of requests was sent, and which one won.
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
	Shadowed bool       `json:"shadowed,omitempty"` // the registry holds the name and takes precedence
	Shared   string     `json:"shared,omitempty"`   // the name as other nodes resolve it: name:docs@<peer-id>
	Missing  int        `json:"missing,omitempty"`  // objects that it stands for and that the node does not have, if it was just set
	Released Released   `json:"released,omitzero"`  // of what it stood for before, if it was just set
}

// Released is what a node may evict because no name stands for it any more.
type Released struct {
	Objects int    `json:"objects,omitempty"`
	Bytes   int64  `json:"bytes,omitempty"`
	Kept    string `json:"kept,omitempty"` // why everything is kept, if it is
}

// Collected is the answer of POST /admin/gc: what was removed, or with a dry run
// what would be.
type Collected struct {
	Objects int   `json:"objects"`
	Bytes   int64 `json:"bytes"`
	DryRun  bool  `json:"dry_run,omitempty"`
}

// NameList is the answer of GET /names: one page of the node's own names, in
// the order of their bytes. Next, if there is more, is the parameter after of
// the next page.
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

// idempotencyHeader carries the key of a request that must be applied only
// once.
const idempotencyHeader = "Idempotency-Key"

// ResolveOptions are the options of Resolve. All are optional.
type ResolveOptions struct {
	// AllowStale accepts an answer that is past its lifetime, rather than
	// none. It is marked as stale.
	AllowStale bool
}

// Resolve returns what an ID stands for and its providers. An ID is a name
// (name:docs, name:docs@<peer-id>, or without the prefix), an address (b3:…)
// or a CIDv1.
func (c *Client) Resolve(ctx context.Context, id string, o ResolveOptions) (Resolution, error) {
	k := c.newCall(ctx, "client.resolve", http.MethodGet, "/resolve/"+url.PathEscape(id))
	if isUnroutable(id) {
		return Resolution{}, k.malformedID(id)
	}
	if o.AllowStale {
		k.path += "?fresh=false"
	}
	var answer Resolution
	if err := k.doJSON(ctx, nil, &answer); err != nil {
		return Resolution{}, err
	}
	if answer.Manifest.IsZero() {
		return Resolution{}, k.unexpected(nil, "there is no address in it")
	}
	return answer, nil
}

// malformedID refuses an ID that no path can carry.
func (k *call) malformedID(id string) error {
	return fault.New(k.op, fault.Malformed, "%q is not a valid ID", id).
		Advise("Give a name (name:docs, name:docs@<peer-id>) or an address (b3: and 64 hex digits).")
}

// ProvidersOptions are the options of Providers. All are optional.
type ProvidersOptions struct {
	Limit        int           // maximum number of providers; 0 uses the node's default
	Region       string        // providers of this region come first
	MinFreshness time.Duration // seen within this time, in whole seconds
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

// Providers returns the providers of an object, best first. An object without
// providers is an answer, not an error.
func (c *Client) Providers(ctx context.Context, address b3.Address, o ProvidersOptions) (Providers, error) {
	k, err := c.objectCall(ctx, "client.providers", http.MethodGet, address)
	if err != nil {
		return Providers{}, err
	}
	k.path = "/providers/" + address.String() + o.query()
	var answer Providers
	if err := k.doJSON(ctx, nil, &answer); err != nil {
		return Providers{}, err
	}
	if answer.CID != address {
		return Providers{}, k.unexpected(nil, "it is about %s, not %s", answer.CID, address)
	}
	return answer, nil
}

// namesPath is the route of the node's own names.
const namesPath = "/names"

// nameCall is a call about one name of the node itself.
func (c *Client) nameCall(ctx context.Context, op, method, name string) (*call, error) {
	k := c.newCall(ctx, op, method, namesPath+"/"+url.PathEscape(name))
	if isUnroutable(name) {
		return nil, k.malformedID(name)
	}
	return k, nil
}

// SetName makes a name of the node stand for an object, most often a manifest.
// The node signs it, so that other nodes can resolve name:docs@<peer-id>. A
// name that the registry holds is [fault.Conflict]. It requires the scope
// name:set.
func (c *Client) SetName(ctx context.Context, name string, manifest b3.Address) (NameRecord, error) {
	k, err := c.nameCall(ctx, "client.setname", http.MethodPut, name)
	if err != nil {
		return NameRecord{}, err
	}
	var answer NameRecord
	if err := k.doJSON(ctx, NameRequest{Manifest: manifest}, &answer); err != nil {
		return NameRecord{}, err
	}
	if answer.Manifest != manifest {
		return NameRecord{}, k.unexpected(nil, "it says that the name stands for %s, not %s", answer.Manifest, manifest)
	}
	return answer, nil
}

// CheckName asks whether a name of the node can be set, before what it is to
// stand for is put: its form, whether the registry holds it, and whether the
// capability allows it. A node of an earlier version does not know, and any name
// is good for it.
func (c *Client) CheckName(ctx context.Context, name string) error {
	k, err := c.nameCall(ctx, "client.checkname", http.MethodPost, name)
	if err != nil {
		return err
	}
	k.path += "/check"
	k.repeatable = true
	err = k.doJSON(ctx, nil, nil)
	if kind := fault.KindOf(err); kind == fault.NotFound || kind == fault.MethodNotAllowed || kind == fault.NoRoute {
		return nil
	}
	return err
}

// Collect removes all objects of the node that are neither pinned nor named. With
// a dry run it only says what it would remove. It requires the scope object:rm.
func (c *Client) Collect(ctx context.Context, dryRun bool) (Collected, error) {
	path := "/admin/gc"
	if dryRun {
		path += "?dry_run=true"
	}
	k := c.newCall(ctx, "client.collect", http.MethodPost, path)
	k.repeatable = true // a second call finds what the first has left
	var answer Collected
	return answer, k.doJSON(ctx, nil, &answer)
}

// DeleteName removes a name of the node. An unknown name is [fault.NotFound].
// Other nodes may resolve it until its record expires. It requires the scope
// name:set.
func (c *Client) DeleteName(ctx context.Context, name string) error {
	k, err := c.nameCall(ctx, "client.deletename", http.MethodDelete, name)
	if err != nil {
		return err
	}
	err = k.doJSON(ctx, nil, nil)
	if k.maybeApplied && fault.KindOf(err) == fault.NotFound {
		return nil // a try whose answer was lost has done it
	}
	return err
}

// Names returns all names of the node itself, in the order of their bytes.
func (c *Client) Names(ctx context.Context) ([]NameRecord, error) {
	var all []NameRecord
	for after := ""; ; {
		path := namesPath
		if after != "" {
			path += "?after=" + url.QueryEscape(after)
		}
		k := c.newCall(ctx, "client.names", http.MethodGet, path)
		var page NameList
		if err := k.doJSON(ctx, nil, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Names...)
		if page.Next == "" {
			return all, nil
		}
		if page.Next <= after {
			return nil, k.unexpected(nil, "its pages repeat")
		}
		after = page.Next
	}
}

// FetchAnywhere makes the node get an object from its providers and keep it;
// it is Created if the node did not have it. The node searches for providers,
// takes the best of them, and verifies what it gets. Where the provider is
// known, Fetch avoids the search. It requires the scope object:put.
//
// The node answers when it has all of the object, which may take long: the
// deadline of ctx bounds it, or else an hour does.
func (c *Client) FetchAnywhere(ctx context.Context, address b3.Address) (Object, error) {
	return c.fetch(ctx, "client.fetchanywhere", "/fetch/", address, nil)
}

// Pin makes the node keep an object that it has, however full it is. It
// requires the scope index:pin.
func (c *Client) Pin(ctx context.Context, address b3.Address) error {
	return c.pin(ctx, "client.pin", "/admin/pin", address)
}

// Unpin lets the node evict an object when it needs the space, as one that can
// be fetched again. It requires the scope index:pin.
func (c *Client) Unpin(ctx context.Context, address b3.Address) error {
	return c.pin(ctx, "client.unpin", "/admin/unpin", address)
}

func (c *Client) pin(ctx context.Context, op, path string, address b3.Address) error {
	k, err := c.objectCall(ctx, op, http.MethodPost, address)
	if err != nil {
		return err
	}
	k.path = path
	return k.doIdempotent(ctx, PinRequest{B3: address}, nil)
}

// Reindex makes the node scan all its objects and announce them again. It
// returns before that is done. It requires the scope index:admin.
func (c *Client) Reindex(ctx context.Context) (Reindexed, error) {
	k := c.newCall(ctx, "client.reindex", http.MethodPost, "/admin/reindex")
	var answer Reindexed
	err := k.doIdempotent(ctx, nil, &answer)
	return answer, err
}

// doIdempotent is doJSON for what must not be done twice. All its tries carry
// one key, by which the node recognises a request that it has applied already,
// so the call may be repeated.
func (k *call) doIdempotent(ctx context.Context, in, out any) error {
	k.repeatable = true
	key := rand.Text()
	ctx, cancel := context.WithTimeout(ctx, k.client.timeout)
	defer cancel()
	var raw []byte
	err := k.retry(ctx, func() (err error) {
		header, body := requestJSON(ctx, in)
		header.Set(idempotencyHeader, key)
		_, raw, err = k.doOnce(ctx, header, body)
		return err
	})
	if err != nil || out == nil {
		return err
	}
	return k.decode(raw, out)
}
