package index

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"syscall"
	"time"

	"code.dny.dev/ssrf"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/index/record"
)

// The bounds of a fetch over HTTP.
const (
	gatewayDial     = 3 * time.Second
	gatewayPatience = 5 * time.Second // without a byte
)

// gateways fetches objects over HTTP from addresses that strangers told us.
// What comes is checked against its address, so the worst that a liar can do is
// to make us send one harmless request: and not even that to the machines
// behind our own firewall.
type gateways struct {
	client *http.Client
}

// newGateways makes the way to gateways. It asks each time what may be dialled.
func newGateways(may func() reach) *gateways {
	dialer := &net.Dialer{Timeout: gatewayDial, Control: control(may)}
	return &gateways{&http.Client{
		Transport: &http.Transport{
			Proxy: nil, DialContext: dialer.DialContext, ForceAttemptHTTP2: true, DisableCompression: true,
			TLSHandshakeTimeout: gatewayDial, ResponseHeaderTimeout: gatewayPatience, MaxResponseHeaderBytes: 64 << 10,
			MaxIdleConns: 64, MaxIdleConnsPerHost: 8, IdleConnTimeout: 30 * time.Second,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

func (g *gateways) close() { g.client.CloseIdleConnections() }

// open asks a gateway for an object. The context is that of the whole download.
func (g *gateways) open(ctx context.Context, base string, address b3.Address) (io.ReadCloser, error) {
	at, err := url.Parse(base)
	if err != nil || at.Scheme != "http" && at.Scheme != "https" || at.Host == "" || at.User != nil {
		return nil, fault.New(opFetch, fault.NoRoute, "%q is no gateway", base)
	}
	body, err := g.get(ctx, base, at.Scheme+"://"+at.Host+"/o/"+address.String())
	if fault.KindOf(err) == fault.NotFound {
		body, err = g.get(ctx, base, at.Scheme+"://"+at.Host+"/ipfs/"+address.CID()+"?format=raw") // a gateway of IPFS knows no other way
	}
	if err != nil {
		return nil, err // not an interface around nothing
	}
	return body, nil
}

// get asks for one URL.
func (g *gateways) get(ctx context.Context, base, url string) (*patient, error) {
	ctx, cancel := context.WithCancel(ctx)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err == nil {
		var response *http.Response
		if response, err = g.client.Do(request); err == nil {
			return g.accept(response, cancel, base)
		}
	}
	cancel()
	return nil, fault.WrapKind(opFetch, fault.UpstreamFailed, err)
}

// accept takes the answer of a gateway, if it is one.
func (g *gateways) accept(response *http.Response, cancel context.CancelFunc, base string) (*patient, error) {
	if response.StatusCode == http.StatusOK {
		return newPatient(response.Body, cancel), nil
	}
	_ = response.Body.Close()
	cancel()
	if response.StatusCode == http.StatusNotFound {
		return nil, fault.New(opFetch, fault.NotFound, "%s does not have it", base)
	}
	return nil, fault.New(opFetch, fault.UpstreamFailed, "%s answered %s", base, response.Status)
}

// patient reads a body as long as it moves.
type patient struct {
	io.ReadCloser
	cancel context.CancelFunc
	alarm  *time.Timer
}

func newPatient(body io.ReadCloser, cancel context.CancelFunc) *patient {
	alarm := time.AfterFunc(gatewayPatience, cancel) //lockblock:allow like the timer of context.WithTimeout, it only ends a context, and Close stops it
	return &patient{body, cancel, alarm}
}

// Read reads on, and is patient anew after each byte.
func (p *patient) Read(b []byte) (int, error) {
	n, err := p.ReadCloser.Read(b)
	if n > 0 {
		p.alarm.Reset(gatewayPatience)
	}
	if err != nil && err != io.EOF {
		err = fault.New(opFetch, fault.UpstreamFailed, "the gateway broke off: %v", err) // not wrapped: to a store, a body that ends too soon is a client that left
	}
	return n, err
}

// Close ends the download.
func (p *patient) Close() error {
	p.alarm.Stop()
	p.cancel()
	return p.ReadCloser.Close()
}

// The guards, from the strictest to the most lenient. Link-local addresses,
// where clouds keep their secrets, pass none of them.
var (
	onlyPublic = ssrf.New(ssrf.WithAnyPort())
	andPrivate = ssrf.New(ssrf.WithAnyPort(), ssrf.WithAllowedV4Prefixes(private4...), ssrf.WithAllowedV6Prefixes(private6))
	andSelf    = ssrf.New(ssrf.WithAnyPort(), ssrf.WithAllowedV4Prefixes(append(private4, loopback4)...), ssrf.WithAllowedV6Prefixes(private6, loopback6))

	private4 = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("172.16.0.0/12"), netip.MustParsePrefix("192.168.0.0/16")}
	private6 = netip.MustParsePrefix("fc00::/7")

	loopback4 = netip.MustParsePrefix("127.0.0.0/8")
	loopback6 = netip.MustParsePrefix("::1/128")
)

// control checks the address that is really dialled, after its name was looked
// up, so that a name cannot stand for another address by then.
func control(may func() reach) func(network, address string, c syscall.RawConn) error {
	return func(network, address string, c syscall.RawConn) error {
		guard := onlyPublic
		switch now := may(); {
		case now.loopback:
			guard = andSelf
		case now.private:
			guard = andPrivate
		}
		return guard.Safe(network, address, c)
	}
}

// hostsOf is the hosts in a provider's addresses.
func hostsOf(p record.Provider) (hosts []string) {
	for _, hostport := range p.Overlay {
		if host, _, err := net.SplitHostPort(hostport); err == nil {
			hosts = append(hosts, host)
		}
	}
	for _, base := range p.HTTP {
		if at, err := url.Parse(base); err == nil {
			hosts = append(hosts, at.Hostname())
		}
	}
	return hosts
}
