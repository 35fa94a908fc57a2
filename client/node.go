package client

import (
	"context"
	"net/http"
	"time"

	"micronode/fault"
)

// Status is what a node is and does.
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
	Parts      []Part    `json:"parts,omitempty"` // of a node that runs as several processes
}

// Part is a part of a node that runs as several processes, as one of them sees
// it.
type Part struct {
	Name string `json:"name"`
	At   string `json:"at,omitempty"` // where it runs; empty if that is here
	Up   bool   `json:"up"`
}

// Listen is where a node listens.
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

// Status asks what the node is and does.
func (c *Client) Status(ctx context.Context) (Status, error) {
	var status Status
	err := c.newCall(ctx, "client.status", http.MethodGet, "/admin/status").control(ctx, nil, &status)
	return status, err
}

// Readiness is whether a node can work, and if not, why.
type Readiness struct {
	Ready      bool     `json:"ready"`       // reads are served
	WriteReady bool     `json:"write_ready"` // writes are served
	Degraded   bool     `json:"degraded"`    // something works less well than it should
	Missing    []string `json:"missing"`
	Reasons    []Reason `json:"reasons"`
	RetryAfter int      `json:"retry_after"` // seconds until it makes sense to ask again
}

// Reason is why something is not as it should be, and the next step.
type Reason struct {
	Dep    string `json:"dep"`
	Reason string `json:"reason"`
	Next   string `json:"next"`
}

// Whole reports whether all is well.
func (r Readiness) Whole() bool { return r.Ready && r.WriteReady && !r.Degraded }

// Ready asks whether the node can work. A node that says no has answered: the
// error is nil, and the reasons are in the answer.
func (c *Client) Ready(ctx context.Context) (Readiness, error) {
	k := c.newCall(ctx, "client.ready", http.MethodGet, "/readyz")
	k.accepts = func(answer *http.Response) bool {
		no := answer.StatusCode == http.StatusServiceUnavailable && mediaOf(answer) == "application/json"
		return no || success(answer)
	}
	var verdict Readiness
	err := k.control(ctx, nil, &verdict)
	return verdict, err
}

// Version says which program a node runs.
type Version struct {
	Service  string   `json:"service"`
	Version  string   `json:"version"`
	Commit   string   `json:"commit"`
	Build    string   `json:"build"`
	Go       string   `json:"go"`
	Features []string `json:"features"`
}

// Version asks which program the node runs.
func (c *Client) Version(ctx context.Context) (Version, error) {
	var version Version
	err := c.newCall(ctx, "client.version", http.MethodGet, "/version").control(ctx, nil, &version)
	return version, err
}

// MintRequest says what a new token is good for. Scopes and TTL are required;
// each of the others narrows it further.
type MintRequest struct {
	Scopes []string      // such as object:put
	TTL    time.Duration // how long it lasts; parts of a second are dropped

	PathPrefix  string   // only for routes below this path
	TopicPrefix string   // only for topics below this one
	Rate        string   // uses, such as 10/1s or 10/1s burst 20
	Clients     []string // only for callers in these networks, such as 10.0.0.0/8
}

// MintToken asks the node for a new token. It takes the scope admin, or the
// local socket. The token is a secret: whoever has it may do what it says.
func (c *Client) MintToken(ctx context.Context, want MintRequest) (string, error) {
	k := c.newCall(ctx, "client.mint", http.MethodPost, "/admin/token")
	seconds := int64(want.TTL / time.Second)
	switch {
	case len(want.Scopes) == 0:
		return "", mintFault(k.op, "a token without a scope is good for nothing", "Name at least one scope, such as object:put.")
	case seconds < 1:
		return "", mintFault(k.op, "a token must last for a second or more", "Give a TTL, such as an hour.")
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
	if err := k.control(ctx, question, &answer); err != nil {
		return "", err
	}
	if answer.Token == "" {
		return "", k.strange(nil, "there is no token in it")
	}
	return answer.Token, nil
}

func mintFault(op, detail, next string) error {
	return &fault.Error{Op: op, Kind: fault.Malformed, Detail: detail, Next: next}
}
