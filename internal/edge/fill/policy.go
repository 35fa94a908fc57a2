package fill

import (
	"math/rand/v2"
	"net/http"
	"time"

	"micronode/fault"
	"micronode/internal/edge/fill/freshness"
)

// policy is what the operator wants, as of the last reload. It is read-only;
// a fill goes by the one that it began with.
type policy struct {
	Config
	allow   *AllowList
	forward []string // canonical names; nil for all
	keep    freshness.Policy
	origin  *origin
}

// newPolicy checks a configuration and makes ready what it needs.
func newPolicy(config Config, allow []string, dial dialer) (*policy, error) {
	list, err := ParseAllow(allow)
	if err != nil {
		return nil, err
	}
	from, err := newOrigin(config, dial)
	if err != nil {
		return nil, err
	}
	p := &policy{Config: config, allow: list, keep: config.freshness(), origin: from, forward: []string{}}
	for _, name := range config.ForwardHeaders {
		if name == "*" {
			p.forward = nil
			break
		}
		p.forward = append(p.forward, http.CanonicalHeaderKey(name))
	}
	return p, nil
}

// permit says that an origin may be asked.
func (p *policy) permit(host string) error {
	if p.allow.allows(host) {
		return nil
	}
	err := fault.New("edge.allow", fault.RejectPolicy, "the origin %s is not on the list edge.allow", host)
	err.Next = "Ask the operator to add the host to edge.allow, or start the node with --allow " + host + "."
	return refuse(ReasonNotAllowed, err)
}

// target brings a request into its one form, as far as the policy lets it.
func (p *policy) target(r Request) (target, error) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return target{}, fault.New(opTarget, fault.MethodNotAllowed, "objects of origins can be read only")
	}
	query := r.Query
	if !p.ForwardQuery {
		query = ""
	}
	t, err := newTarget(r.Host, r.Path, query)
	if err != nil {
		return target{}, refuse(ReasonNotAllowed, err)
	}
	return t, p.permit(t.host)
}

// neverForwarded are headers that are about the way from the client to us, or
// about a part of the object: we ask for all of it, on conditions of our own.
var neverForwarded = []string{
	"Accept-Ranges", "Connection", "Content-Encoding", "Content-Length", "Content-Range", "Content-Type", "Date", "Deadline", "Expect", "Host",
	"If-Match", "If-Modified-Since", "If-None-Match", "If-Range", "If-Unmodified-Since", "Keep-Alive", "Max-Forwards",
	"Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection", "Range", "Request-Timeout", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Via",
}

// personal are headers that say who asks.
var personal = []string{"Authorization", "Cookie"}

// sent is the part of a client's header that the origin gets to see, and
// therefore all that its answer can vary by. It shares the values.
func (p *policy) sent(header http.Header) http.Header {
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
	return out
}

// about are headers of an answer that speak for the whole host of the origin.
// To a client the host is ours.
var about = []string{"Alt-Svc", "Clear-Site-Data", "Public-Key-Pins", "Service-Worker-Allowed", "Strict-Transport-Security"}

// kept is the part of an origin's header that is passed on, and stored if the
// answer is.
func (p *policy) kept(header http.Header, stored bool) http.Header {
	var out http.Header
	if stored {
		out = freshness.Kept(header)
	} else {
		out = freshness.EndToEnd(header)
	}
	for _, name := range about {
		delete(out, name)
	}
	if stored || p.forward != nil {
		delete(out, "Set-Cookie") // it is for one client, and only if the origin saw whom it talks to
	}
	delete(out, "Content-Length") // the body that we keep knows its length
	delete(out, "Accept-Ranges")  // ranges are ours to promise
	return out
}

// storable says whether an answer to what was sent may be kept for everybody.
func (p *policy) storable(sent http.Header, resp freshness.Response) bool {
	ok, _ := freshness.Storable(freshness.Request{Method: http.MethodGet, Header: sent}, resp)
	if len(resp.Header["Set-Cookie"]) > 0 && !freshness.ResponseDirectives(resp.Header).Public {
		return false // RFC 9111 would allow it; what is meant for one client is not given to others
	}
	return ok
}

// pause is how long to wait after a try, counted from zero.
func (p *policy) pause(try int) time.Duration {
	pause := p.longestPause(try)
	if p.Jitter && p.BaseMS > 0 {
		pause -= time.Duration(rand.Int64N(int64(p.BaseMS)*int64(time.Millisecond) + 1))
	}
	return pause
}

// longestPause is what pause may come to: min(max, base·2ⁿ), and base once more
// where there is jitter.
func (p *policy) longestPause(try int) time.Duration {
	pause := min(int64(p.MaxMS), int64(p.BaseMS)<<min(try, 20))
	if p.Jitter {
		pause += int64(p.BaseMS)
	}
	return time.Duration(pause) * time.Millisecond
}

// budget is how long a fill may take in all.
func (p *policy) budget() time.Duration {
	whole := time.Duration(p.Tries) * p.Timeout
	for try := range p.Tries - 1 {
		whole += p.longestPause(try)
	}
	return whole
}

// alone reports whether an answer to what was sent is likely to be for one
// client only, so that nobody else should wait for it.
func alone(sent http.Header) bool { return len(sent["Authorization"]) > 0 }
