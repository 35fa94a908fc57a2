package fill

import (
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"micronode/fault"
	"micronode/internal/edge/fill/freshness"
	"micronode/internal/flow"
)

// policy is the configuration as of the last reload. It is read-only; a fill
// uses the one that it started with.
type policy struct {
	Config
	allow   *AllowList
	forward []string // canonical names; nil for all
	keep    freshness.Policy
	client  *originClient
}

// newPolicy checks a configuration and builds what it needs.
func newPolicy(config Config, allow []string, dial dialer) (*policy, error) {
	list, err := ParseAllow(allow)
	if err != nil {
		return nil, err
	}
	client, err := newOriginClient(config, dial)
	if err != nil {
		return nil, err
	}
	p := &policy{Config: config, allow: list, keep: config.freshness(), client: client, forward: []string{}}
	for _, name := range config.ForwardHeaders {
		if name == "*" {
			p.forward = nil
			break
		}
		p.forward = append(p.forward, http.CanonicalHeaderKey(name))
	}
	return p, nil
}

// permit checks that an origin may be fetched from.
func (p *policy) permit(host string) error {
	if p.allow.allows(host) {
		return nil
	}
	err := fault.New("edge.allow", fault.RejectPolicy, "the origin %s is not in edge.allow", host).
		Advise("Ask the operator to add the host to edge.allow, or start the node with --allow " + host + ".")
	return refuse(ReasonNotAllowed, err)
}

// target normalises a request, as far as the policy allows it.
func (p *policy) target(r Request) (target, error) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return target{}, fault.New(opTarget, fault.MethodNotAllowed, "objects of origins are read-only")
	}
	query := r.Query
	if !p.ForwardQuery {
		query = ""
	}
	t, err := newTarget(r.Host, r.Path, query)
	if err != nil {
		return target{}, refuse(ReasonNotAllowed, err)
	}
	if err := t.checkURL(); err != nil {
		return target{}, err
	}
	return t, p.permit(t.host)
}

// neverForwarded are headers about the connection from the client to this node,
// or about a part of the object: we request all of it, on conditions of our
// own.
var neverForwarded = []string{
	"Accept-Ranges", "Connection", "Content-Encoding", "Content-Length", "Content-Range", "Content-Type", "Date", "Deadline", "Expect", "Host",
	"If-Match", "If-Modified-Since", "If-None-Match", "If-Range", "If-Unmodified-Since", "Keep-Alive", "Max-Forwards",
	"Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection", "Range", "Request-Timeout", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Via",
}

// personalHeaders are headers that identify the client. They are forwarded only
// if all are.
var personalHeaders = []string{"Authorization", "Cookie"}

// forwarded is the part of a client's header that is sent to the origin, and
// therefore all that its answer can vary by. It shares the values.
func (p *policy) forwarded(header http.Header) http.Header {
	if p.forward != nil {
		out := make(http.Header, len(p.forward))
		for _, name := range p.forward {
			if values, given := header[name]; given {
				out[name] = values
			}
		}
		return out
	}
	out := freshness.EndToEnd(header)
	for _, name := range neverForwarded {
		delete(out, name)
	}
	for name := range out {
		if strings.HasPrefix(name, "Micronode-") {
			delete(out, name) // the parts of this node authenticate each other by these
		}
	}
	return out
}

// relayedHeader is the part of an origin's header that is relayed, and stored
// if the answer is.
func (p *policy) relayedHeader(resp freshness.Response, stored bool) http.Header {
	var out http.Header
	if stored {
		out = freshness.StoredHeader(resp.Header)
	} else {
		out = freshness.EndToEnd(resp.Header)
	}
	withhold(resp.Status, out)
	return out
}

// storable reports whether a response to these headers may be stored for all
// clients.
func (p *policy) storable(sent http.Header, resp freshness.Response) bool {
	ok, _ := freshness.Storable(freshness.Request{Method: http.MethodGet, Header: sent}, resp)
	if len(resp.Header["Set-Cookie"]) > 0 && !freshness.ResponseDirectives(resp.Header).Public {
		return false // RFC 9111 would allow it; a cookie for one client is not given to others
	}
	return ok
}

// backoff is how long to wait after a try, counted from zero.
func (p *policy) backoff(attempt int) time.Duration {
	wait := p.maxBackoff(attempt)
	if p.Jitter && p.BaseMS > 0 {
		wait -= time.Duration(rand.Int64N(int64(p.BaseMS)*int64(time.Millisecond) + 1))
	}
	return wait
}

// maxBackoff is the longest backoff: min(max, base·2ⁿ), and base once more
// where there is jitter.
func (p *policy) maxBackoff(attempt int) time.Duration {
	base := time.Duration(p.BaseMS) * time.Millisecond
	wait := flow.Backoff{First: base, Max: time.Duration(p.MaxMS) * time.Millisecond}.Limit(attempt)
	if p.Jitter {
		wait += base
	}
	return wait
}

// isPersonalRequest reports whether the answer to these headers is likely to be
// for one client only, so that no other request should wait for it.
func isPersonalRequest(sent http.Header) bool { return len(sent["Authorization"]) > 0 }
