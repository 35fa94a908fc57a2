package client

import (
	"context"
	"net/http"
	"slices"
	"time"

	"micronode/fault"
)

// Status is the state of a node.
type Status struct {
	PeerID     string    `json:"peer_id"`
	Version    string    `json:"version"`
	Profile    string    `json:"profile"`
	Amnesia    bool      `json:"amnesia"`
	Confined   string    `json:"confined"` // what the kernel enforces, in words
	Listen     Listen    `json:"listen"`
	Ready      bool      `json:"ready"`
	WriteReady bool      `json:"write_ready"`
	Degraded   bool      `json:"degraded"`
	Services   []Service `json:"services"`
	Queues     []Queue   `json:"queues"`
	Store      Store     `json:"store"`
	Memory     Memory    `json:"memory"`
	Parts      []Part    `json:"parts,omitempty"`  // of a node that runs as several processes
	Knocks     []Knock   `json:"knocks,omitempty"` // strangers that wanted to connect and were refused
	Nearby     []Nearby  `json:"nearby,omitempty"` // nodes in private networks that are no peers of this one
	Public     []string  `json:"public,omitempty"` // groups of reads that are open to strangers

	Bandwidth *Bandwidth `json:"bandwidth,omitempty"` // nil if no limit is set

	Certificates []Certificate `json:"certificates,omitempty"` // those that the node obtains
	Refused      []Refused     `json:"refused,omitempty"`      // clients and peers that a limit has rejected, the newest first

	RefusedOrigins []RefusedOrigin `json:"refused_origins,omitempty"` // of pages that may not read from the node, and wanted to in the last hour; the latest first
}

// Refused is a client, or a peer, that a limit has rejected in the last ten
// minutes.
type Refused struct {
	Client  string `json:"client"`            // its network, or the ID of a peer
	Limit   string `json:"limit"`             // in words
	Setting string `json:"setting,omitempty"` // that changes the limit; empty if there is none
	Count   int    `json:"count"`
	Last    string `json:"last"` // RFC 3339
}

// Bandwidth is the limits in force, in bytes a second; zero for none.
type Bandwidth struct {
	Up        int64  `json:"up"`
	Down      int64  `json:"down"`
	Scheduled bool   `json:"scheduled,omitempty"` // the schedule has set one of them
	Until     string `json:"until,omitempty"`     // RFC 3339: when the schedule changes them next
}

// Certificate is how the certificate of a name fares that the node obtains from
// an authority.
type Certificate struct {
	Name    string `json:"name"`
	Expires string `json:"expires,omitempty"` // RFC 3339; empty while there is none
	Issuer  string `json:"issuer,omitempty"`
	Reason  string `json:"reason,omitempty"` // why there is none, or no newer one
	Next    string `json:"next,omitempty"`
}

// RefusedOrigin is an origin whose pages may not read what they asked the node
// for.
type RefusedOrigin struct {
	Origin string `json:"origin"`
	Route  string `json:"route"` // the pattern of the last request
	Times  int    `json:"times"`
	Last   string `json:"last"` // RFC 3339
	Next   string `json:"next"` // what the operator adds to the configuration
}

// Memory is how much memory the process uses, its limit, and where the limit
// comes from.
type Memory struct {
	Used  int64  `json:"used"`
	Limit int64  `json:"limit"`
	From  string `json:"from"`
}

// Part is a part of a node that runs as several processes, as one of them sees
// it.
type Part struct {
	Name string `json:"name"`
	At   string `json:"at,omitempty"` // its address; empty if it runs in this process
	Up   bool   `json:"up"`
}

// Listen lists the addresses on which a node listens.
type Listen struct {
	HTTP    string `json:"http"`
	Admin   string `json:"admin"`
	Overlay string `json:"overlay"`

	DHT []string `json:"dht,omitempty"` // multiaddrs, as index.dht.bootstrap takes them
}

// Service is one service of a node.
type Service struct {
	Name     string `json:"name"`
	State    string `json:"state"`
	Restarts int    `json:"restarts"`
	LastErr  string `json:"last_error,omitempty"`
}

// Store is how much a node holds.
type Store struct {
	Objects int64 `json:"objects"`
	Bytes   int64 `json:"bytes"`
	Budget  int64 `json:"budget"`
}

// Queue is one queue of a node.
type Queue struct {
	Service string `json:"service"`
	Name    string `json:"name"`
	Depth   int    `json:"depth"`
	Cap     int    `json:"cap"`
}

// Status returns the state of the node.
func (c *Client) Status(ctx context.Context) (Status, error) {
	var status Status
	err := c.newCall(ctx, "client.status", http.MethodGet, "/admin/status").doJSON(ctx, nil, &status)
	return status, err
}

// Readiness reports whether a node can work, and if not, why. It is the answer
// of GET /readyz.
type Readiness struct {
	Ready      bool     `json:"ready"`            // reads are served
	WriteReady bool     `json:"write_ready"`      // writes are served; never without reads
	Degraded   bool     `json:"degraded"`         // something works at reduced capacity
	Missing    []string `json:"missing"`          // what is down; sorted
	Reasons    []Reason `json:"reasons"`          // what is down or degraded, and remarks; sorted
	RetryAfter int      `json:"retry_after"`      // seconds until the next request makes sense; 0 if all is well
	Public     []string `json:"public,omitempty"` // groups of reads that are open to strangers
}

// Reason is why something is not as it should be, and the next step.
type Reason struct {
	Dep    string `json:"dep"`
	Reason string `json:"reason"`
	Next   string `json:"next"`
}

// Whole reports whether the node is ready for reads and writes and not
// degraded: GET /readyz without a parameter then answers 200.
func (r Readiness) Whole() bool { return r.Ready && r.WriteReady && !r.Degraded }

// Equal reports whether two say the same about the node. When to ask again
// follows from that, and is not compared.
func (r Readiness) Equal(other Readiness) bool {
	return r.Ready == other.Ready && r.WriteReady == other.WriteReady && r.Degraded == other.Degraded &&
		slices.Equal(r.Missing, other.Missing) && slices.Equal(r.Reasons, other.Reasons)
}

// Ready returns the readiness of the node. A node that is not ready has
// answered: the error is nil, and the reasons are in the answer.
func (c *Client) Ready(ctx context.Context) (Readiness, error) {
	k := c.newCall(ctx, "client.ready", http.MethodGet, "/readyz")
	k.accepts = func(answer *http.Response) bool {
		no := answer.StatusCode == http.StatusServiceUnavailable && mediaOf(answer) == "application/json"
		return no || isSuccess(answer)
	}
	var verdict Readiness
	err := k.doJSON(ctx, nil, &verdict)
	return verdict, err
}

// Version identifies the program that a node runs. It is the answer of
// GET /version.
type Version struct {
	Service  string   `json:"service"`
	Version  string   `json:"version"`
	Commit   string   `json:"commit"`
	Build    string   `json:"build"` // when it was built, or the time of the commit
	Go       string   `json:"go"`
	Features []string `json:"features"`
}

// Version returns the version of the program that the node runs.
func (c *Client) Version(ctx context.Context) (Version, error) {
	var version Version
	err := c.newCall(ctx, "client.version", http.MethodGet, "/version").doJSON(ctx, nil, &version)
	return version, err
}

// MintRequest describes a new token. Scopes and TTL are required; each of the
// other fields narrows it further.
type MintRequest struct {
	Scopes []string      // such as object:put
	TTL    time.Duration // how long it is valid; fractions of a second are dropped

	PathPrefix  string   // only for routes below this path
	TopicPrefix string   // only for topics below this one
	Rate        string   // uses, such as 10/1s or 10/1s burst 20
	Clients     []string // only for callers in these networks, such as 10.0.0.0/8
}

// MintToken asks the node for a new token. It requires the scope admin, or the
// local socket. The token is a secret: any holder has the rights that it
// grants.
func (c *Client) MintToken(ctx context.Context, want MintRequest) (string, error) {
	k := c.newCall(ctx, "client.mint", http.MethodPost, "/admin/token")
	seconds := int64(want.TTL / time.Second)
	switch {
	case len(want.Scopes) == 0:
		return "", mintError(k.op, "a token needs a scope", "Name at least one scope, such as object:put.")
	case seconds < 1:
		return "", mintError(k.op, "a token must last for a second or more", "Give a TTL, such as an hour.")
	}
	question := struct {
		Scopes  []string `json:"scopes"`
		Seconds int64    `json:"ttl_s"`
		Path    string   `json:"path,omitempty"`
		Topic   string   `json:"topic,omitempty"`
		Rate    string   `json:"rate,omitempty"`
		Clients []string `json:"ips,omitempty"`
	}{want.Scopes, seconds, want.PathPrefix, want.TopicPrefix, want.Rate, want.Clients}
	var answer struct {
		Token string `json:"token"`
	}
	if err := k.doJSON(ctx, question, &answer); err != nil {
		return "", err
	}
	if answer.Token == "" {
		return "", k.unexpected(nil, "there is no token in it")
	}
	return answer.Token, nil
}

// RevokeRequest names a token to revoke: by the token itself, or by its
// identifier.
type RevokeRequest struct {
	ID    string `json:"id,omitempty"`
	Token string `json:"token,omitempty"`
}

// Revoked is a revoked token that has not expired.
type Revoked struct {
	ID    string    `json:"id"`
	Until time.Time `json:"until,omitzero"` // when it expires and leaves the list; zero if never
	Kept  bool      `json:"kept"`           // the revocation survives a restart of the node
}

// String is one line of text for people.
func (r Revoked) String() string {
	if r.Until.IsZero() {
		return r.ID + ", for good"
	}
	return r.ID + ", until " + r.Until.Format(time.RFC3339)
}

// RevokedList is the list of revoked tokens.
type RevokedList struct {
	Revoked []Revoked `json:"revoked"`
}

// RevokeToken revokes a token, and every token that was derived from it. It
// requires the scope admin, or the local socket.
func (c *Client) RevokeToken(ctx context.Context, which RevokeRequest) (Revoked, error) {
	var done Revoked
	err := c.newCall(ctx, "client.revoke", http.MethodPost, "/admin/token/revoke").doJSON(ctx, which, &done)
	return done, err
}

// RevokedTokens lists the revoked tokens that have not expired.
func (c *Client) RevokedTokens(ctx context.Context) ([]Revoked, error) {
	var list RevokedList
	err := c.newCall(ctx, "client.revoked", http.MethodGet, "/admin/token/revoked").doJSON(ctx, nil, &list)
	return list.Revoked, err
}

func mintError(op, detail, next string) error {
	return &fault.Error{Op: op, Kind: fault.Malformed, Detail: detail, Next: next}
}
