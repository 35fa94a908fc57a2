package fill

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	"code.dny.dev/ssrf"

	"micronode/fault"
	"micronode/internal/edge/fill/freshness"
	"micronode/internal/flow"
)

const opOrigin = "edge.origin"

const (
	headerBytes = 64 << 10 // of an answer, interim ones included
	redirects   = 5        // that are followed for one object
	idleConns   = 64       // in all
	idlePerHost = 16
	idleTime    = 60 * time.Second
	ourName     = "micronode"
)

// dialer opens a connection. Tests have one of their own.
type dialer func(ctx context.Context, network, address string) (net.Conn, error)

// origin is the way to the origins: HTTPS, straight, to addresses that are
// public unless the operator says otherwise.
type origin struct{ transport *http.Transport }

// newOrigin makes a way as the configuration wants it. Nothing of the
// environment has a say in it.
func newOrigin(config Config, dial dialer) (*origin, error) {
	roots, err := authorities(config.CAFile)
	if err != nil {
		return nil, err
	}
	if dial == nil {
		direct := &net.Dialer{Timeout: config.Timeout}
		if !config.AllowPrivate {
			// The check is on the address that is really dialled, after the name
			// was looked up, so a name cannot point elsewhere in between. Which
			// ports are meant is decided by the list.
			direct.Control = ssrf.New(ssrf.WithAnyPort()).Safe
		}
		dial = direct.DialContext
	}
	return &origin{&http.Transport{
		Proxy:                  nil,
		DialContext:            dial,
		TLSClientConfig:        &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    config.Timeout,
		ForceAttemptHTTP2:      true,
		DisableCompression:     true, // bytes are kept as they were sent
		MaxIdleConns:           idleConns,
		MaxIdleConnsPerHost:    idlePerHost,
		IdleConnTimeout:        idleTime,
		MaxResponseHeaderBytes: headerBytes,
	}}, nil
}

// authorities are those of the system and those of the file. Nil stands for
// the system's alone.
func authorities(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, &fault.Error{Op: "edge.ca_file", Kind: fault.Malformed, Err: err, Detail: "the file edge.fill.ca_file cannot be read",
			Next: "Name a PEM file that this user can read, or leave edge.fill.ca_file out."}
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool()
	}
	if !roots.AppendCertsFromPEM(text) {
		return nil, &fault.Error{Op: "edge.ca_file", Kind: fault.Malformed, Detail: "the file edge.fill.ca_file has no certificate in it",
			Next: "Write certificates in PEM, as `openssl x509 -outform PEM` does."}
	}
	return roots, nil
}

// close lets go of connections that nobody uses.
func (o *origin) close() { o.transport.CloseIdleConnections() }

// received is what an origin answered, redirects followed. Its body must be
// closed.
type received struct {
	*http.Response
	asked, came time.Time
	until       time.Time // a redirect on the way is right until then; zero if none says
	secret      bool      // a redirect on the way must not be kept
}

// get asks for an object. Redirects are followed as long as each leads to a
// place that is allowed.
func (p *policy) get(ctx context.Context, t target, header http.Header) (received, error) {
	var got received
	for range redirects + 1 {
		if err := p.permit(t.host); err != nil {
			return received{}, err
		}
		if err := p.ask(ctx, t, header, &got); err != nil {
			return received{}, err
		}
		if !isRedirect(got.StatusCode) {
			return got, nil
		}
		next, err := follow(&got)
		if err != nil {
			return received{}, err
		}
		if next.host != t.host {
			header = header.Clone()
			for _, name := range personal {
				header.Del(name) // they were meant for the host that was asked for
			}
		}
		t = next
	}
	return received{}, upstream(nil, "the origin redirects more than %d times", redirects)
}

// ask sends one request and waits for the header of its answer.
func (p *policy) ask(ctx context.Context, t target, header http.Header, got *received) (err error) {
	request := (&http.Request{Method: http.MethodGet, URL: t.url(), Header: header, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}).WithContext(ctx)
	got.asked = time.Now()
	got.Response, err = p.origin.transport.RoundTrip(request)
	got.came = time.Now()
	if err != nil {
		return unreachable(ctx, err)
	}
	return nil
}

func isRedirect(status int) bool {
	switch status {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return true
	default:
		return false
	}
}

// follow finds where a redirect leads, and what it says about how long. What
// is found there is kept under the first URL, so it is right only for as long
// as every redirect on the way is.
func follow(got *received) (target, error) {
	defer got.Body.Close()
	_, _ = io.CopyN(io.Discard, got.Body, 4<<10) // so that the connection can be used again; if not, it is closed
	location, err := got.Location()
	if err != nil {
		return target{}, upstream(err, "the origin redirects, but not to a place")
	}
	location.Fragment = ""
	next, err := parseURL(location.String())
	if err != nil {
		return target{}, refuse(ReasonNotAllowed, &fault.Error{Op: opOrigin, Kind: fault.RejectPolicy, Err: err,
			Detail: "the origin redirects to a place that is not allowed: " + fault.DetailOf(err),
			Next:   "Only redirects to https URLs of hosts in edge.allow are followed. Ask for the final place instead."})
	}
	said := freshness.ResponseDirectives(got.Header)
	if said.NoStore || said.Private {
		got.secret = true
	}
	if said.NoCache || said.MaxAge.Given || said.SMaxAge.Given || got.Header.Get("Expires") != "" {
		var lifetime time.Duration
		if !said.NoCache {
			lifetime = freshness.Lifetime(freshness.Response{Status: got.StatusCode, Header: got.Header, RequestTime: got.asked, ResponseTime: got.came}, freshness.Policy{})
		}
		if until := got.came.Add(lifetime); got.until.IsZero() || until.Before(got.until) {
			got.until = until
		}
	}
	return next, nil
}

// unreachable gives the error of a connection its kind.
func unreachable(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, ssrf.ErrProhibitedIP), errors.Is(err, ssrf.ErrProhibitedNetwork):
		return refuse(ReasonNotAllowed, &fault.Error{Op: opOrigin, Kind: fault.RejectPolicy, Err: err,
			Detail: "the name of the origin leads to an address that is not public",
			Next:   "If that is meant, the operator sets edge.fill.allow_private."})
	case ctx.Err() != nil:
		return ended(ctx)
	case fault.KindOf(err) == fault.Timeout:
		return tooSlow(err)
	default:
		return upstream(err, "the origin cannot be reached, or what it sends is not HTTP")
	}
}

// ended says why a try ended: the origin was too slow, or the worker stops.
func ended(ctx context.Context) error {
	err := flow.Ended(ctx, opOrigin)
	if fault.KindOf(err) == fault.Timeout {
		return tooSlow(err)
	}
	return err
}

func tooSlow(cause error) error {
	return &fault.Error{Op: opOrigin, Kind: fault.Timeout, Err: cause, Detail: "the origin takes too long",
		Next: "Try again later; where the origin is slow by nature, the operator raises edge.fill.timeout."}
}

// failing turns an answer of an origin that fails into an error.
func failing(got received) error {
	err := fault.New(opOrigin, fault.UpstreamFailed, "the origin answered %d", got.StatusCode)
	err.RetryAfter = retryAfter(got.Header.Get("Retry-After"), got.came)
	return &failed{status: got.StatusCode, error: err}
}

// failed is an error that came as an answer.
type failed struct {
	status int
	error
}

func (f *failed) Unwrap() error { return f.error }

// statusOf is what an origin answered, if an error came as an answer.
func statusOf(err error) int {
	if answered, ok := errors.AsType[*failed](err); ok {
		return answered.status
	}
	return 0
}

// passing reports whether one more try makes sense.
func passing(err error) bool { return isPassing(statusOf(err)) || fault.KindOf(err) == fault.Timeout }

// isPassing tells the statuses that say: not now.
func isPassing(status int) bool {
	return status == http.StatusServiceUnavailable || status == http.StatusGatewayTimeout
}

// retryAfter reads when an origin wants to be asked again: seconds or a date.
func retryAfter(text string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if date, ok := freshness.ParseDate(text, now); ok {
		return max(0, date.Sub(now))
	}
	return 0
}
