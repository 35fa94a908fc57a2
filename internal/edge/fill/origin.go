package fill

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"code.dny.dev/ssrf"

	"micronode/fault"
	"micronode/internal/edge/fill/freshness"
	"micronode/internal/flow"
	"micronode/internal/netguard"
)

const opOrigin = "edge.origin"

const (
	maxHeaderBytes = 64 << 10 // of a response, interim ones included
	maxRedirects   = 5        // that are followed for one object
	maxIdleConns   = 64       // in all
	maxIdlePerHost = 16
	idleTimeout    = 60 * time.Second
	ourName        = "micronode"
)

// dialer opens a connection. Tests replace it.
type dialer func(ctx context.Context, network, address string) (net.Conn, error)

// originClient connects to origins: by HTTPS, directly, to public addresses
// unless the operator allows others.
type originClient struct{ transport *http.Transport }

// newOriginClient makes a client by the configuration. The environment has no
// influence on it.
func newOriginClient(config Config, dial dialer) (*originClient, error) {
	roots, err := loadRoots(config.CAFile)
	if err != nil {
		return nil, err
	}
	if dial == nil {
		// The check is on the address that is really dialled, after the name
		// was looked up, so a name cannot point elsewhere in between. The
		// allow-list decides about ports.
		reach := netguard.DialPolicy{Any: config.AllowPrivate}
		dial = (&net.Dialer{Timeout: config.Timeout, Control: netguard.Control(func() netguard.DialPolicy { return reach })}).DialContext
	}
	return &originClient{&http.Transport{
		Proxy:                  nil,
		DialContext:            watchConns(dial),
		TLSClientConfig:        &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    config.Timeout,
		ForceAttemptHTTP2:      true,
		DisableCompression:     true, // bytes are kept as they were sent
		MaxIdleConns:           maxIdleConns,
		MaxIdleConnsPerHost:    maxIdlePerHost,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: maxHeaderBytes,
	}}, nil
}

// loadRoots returns the roots of the system and those of the file; nil for the
// system's alone.
func loadRoots(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, &fault.Error{Op: "edge.ca_file", Kind: fault.Malformed, Err: err, Detail: "the file edge.fill.ca_file cannot be read",
			Next: "Name a PEM file that this user can read, or leave out edge.fill.ca_file."}
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

// close closes idle connections.
func (o *originClient) close() { o.transport.CloseIdleConnections() }

// originResponse is the response of an origin, after redirects. Its body must
// be closed.
type originResponse struct {
	*http.Response
	sentAt, receivedAt time.Time
	redirectUntil      time.Time // end of the lifetime of the redirects on the way; zero if none has one
	noStore            bool      // a redirect on the way must not be stored
	onThisMachine      bool      // the origin is

	report func(error) // reports to the breaker of the host that answered; only the first call counts
}

// fetch requests an object. It follows redirects as long as each leads to an
// allowed target. A redirect that is not followed is the response. Allow asks
// the breaker of a host.
func (p *policy) fetch(ctx context.Context, t target, header http.Header, allow func(host string) (func(error), error)) (originResponse, error) {
	var got originResponse
	if err := p.permit(t.host); err != nil {
		return originResponse{}, err
	}
	for hops := 0; ; hops++ {
		done, err := allow(t.host)
		if err != nil {
			return originResponse{}, breakerFault(t.host, err)
		}
		if err := p.roundTrip(ctx, t, header, &got); err != nil {
			done(breakerVerdict(err, false))
			return originResponse{}, err
		}
		got.report = reportOnce(done)
		makeLocationAbsolute(got.Response)
		next, leads := p.redirectTarget(got.Response)
		if !leads || hops == maxRedirects {
			return got, nil
		}
		got.discardRedirect()
		got.report(nil)
		if next.host != t.host {
			header = withoutCredentials(header)
		}
		t = next
	}
}

// roundTrip sends one request and waits for the header of its answer.
func (p *policy) roundTrip(ctx context.Context, t target, header http.Header, got *originResponse) (err error) {
	var connected, loopback atomic.Bool
	ctx = httptrace.WithClientTrace(withCleanConns(ctx), &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		connected.Store(true)
		at, ok := info.Conn.RemoteAddr().(*net.TCPAddr)
		loopback.Store(ok && at.IP.IsLoopback())
	}})
	request := (&http.Request{Method: http.MethodGet, URL: t.url(), Header: header, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}).WithContext(ctx)
	got.sentAt = time.Now()
	got.Response, err = p.client.transport.RoundTrip(request)
	got.receivedAt, got.onThisMachine = time.Now(), loopback.Load()
	if err == nil {
		return nil
	}
	err = unreachable(ctx, t.host, err)
	if !connected.Load() && fault.KindOf(err) == fault.Timeout {
		return &connectTimeout{err}
	}
	return err
}

func isRedirect(status int) bool {
	switch status {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return true
	default:
		return false
	}
}

// makeLocationAbsolute writes the Location of a redirect with the origin's name
// in it. A client would resolve a relative one against this node.
func makeLocationAbsolute(got *http.Response) {
	text := got.Header.Get("Location")
	if text == "" || got.StatusCode < 300 || got.StatusCode > 399 {
		return
	}
	if location, err := got.Location(); err == nil && !strings.HasPrefix(text, location.Scheme+":") {
		got.Header.Set("Location", location.String())
	}
}

// redirectTarget is the target of a redirect that may be followed.
func (p *policy) redirectTarget(got *http.Response) (next target, leads bool) {
	if !isRedirect(got.StatusCode) {
		return target{}, false
	}
	location, err := got.Location()
	if err != nil {
		return target{}, false
	}
	location.Fragment = ""
	next, err = parseURL(location.String())
	return next, err == nil && p.allow.allows(next.host)
}

// discardRedirect closes a redirect response and remembers its lifetime. The
// final response is stored under the first URL, so it is valid only for as long
// as every redirect on the way.
func (o *originResponse) discardRedirect() {
	defer o.Body.Close()
	_, _ = io.CopyN(io.Discard, o.Body, 4<<10) // so that the connection can be reused; if not, it is closed
	directives := freshness.ResponseDirectives(o.Header)
	if directives.NoStore || directives.Private {
		o.noStore = true
	}
	if directives.NoCache || directives.MaxAge.Given || directives.SMaxAge.Given || o.Header.Get("Expires") != "" {
		var lifetime time.Duration
		if !directives.NoCache {
			lifetime = freshness.Lifetime(freshness.Response{Status: o.StatusCode, Header: o.Header, RequestTime: o.sentAt, ResponseTime: o.receivedAt}, freshness.Policy{})
		}
		if until := o.receivedAt.Add(lifetime); o.redirectUntil.IsZero() || until.Before(o.redirectUntil) {
			o.redirectUntil = until
		}
	}
}

// unreachable gives a connection error its kind.
func unreachable(ctx context.Context, host string, err error) error {
	switch {
	case errors.Is(err, ssrf.ErrProhibitedIP), errors.Is(err, ssrf.ErrProhibitedNetwork):
		return refuse(ReasonNotAllowed, &fault.Error{Op: opOrigin, Kind: fault.RejectPolicy, Err: err,
			Detail: "the name of the origin resolves to an address that is not public",
			Next:   "To allow it, the operator sets edge.fill.allow_private; link-local and cloud metadata addresses are never dialled."})
	case ctx.Err() != nil:
		return ended(ctx)
	case fault.KindOf(err) == fault.Timeout:
		return tooSlow(err)
	default:
		return originFault(host, err)
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
	return &fault.Error{Op: opOrigin, Kind: fault.Timeout, Err: cause, Detail: "the origin timed out",
		Next: "Retry later; if the origin is always slow, the operator can raise edge.fill.timeout."}
}

// statusFault turns a failing response of an origin into an error.
func statusFault(got originResponse) error {
	err := fault.New(opOrigin, fault.UpstreamFailed, "the origin answered %d", got.StatusCode)
	err.RetryAfter = retryAfter(got.Header.Get("Retry-After"), got.receivedAt)
	return &statusError{status: got.StatusCode, error: err}
}

// statusError is an error made of a response.
type statusError struct {
	status int
	error
}

func (s *statusError) Unwrap() error { return s.error }

// statusOf is the status of the response that an error was made of; zero if
// none.
func statusOf(err error) int {
	if answered, ok := errors.AsType[*statusError](err); ok {
		return answered.status
	}
	return 0
}

// isTransient reports whether a retry makes sense.
func isTransient(err error) bool {
	return isTransientStatus(statusOf(err)) || fault.KindOf(err) == fault.Timeout
}

// isTransientStatus reports whether a status asks for a later retry.
func isTransientStatus(status int) bool {
	return status == http.StatusServiceUnavailable || status == http.StatusGatewayTimeout
}

// retryAfter parses a Retry-After header: seconds or a date.
func retryAfter(text string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if date, ok := freshness.ParseDate(text, now); ok {
		return max(0, date.Sub(now))
	}
	return 0
}
