package index

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/bandwidth"
	"micronode/internal/flow"
	"micronode/internal/netguard"
)

// Limits of a fetch over HTTP.
const (
	gatewayDialTimeout = 3 * time.Second
	gatewayIdleTimeout = 5 * time.Second // without a byte
)

// gatewayClient fetches objects over HTTP from addresses that untrusted peers
// sent. Content is verified against its address, so the worst that a malicious
// peer can cause is one harmless request, and not even that to machines behind
// this node's own firewall.
type gatewayClient struct {
	// set at construction
	client      *http.Client
	metrics     *metrics
	treePermits *flow.Permits      // trees in memory
	down        *bandwidth.Limiter // of what the node receives; nil for none

	share bandwidth.Share // of all fetches
}

// newGatewayClient makes a client of gateways. For each connection it asks
// reach which addresses may be dialled, and counts it in the allowance of its
// context.
func newGatewayClient(reach func() netguard.DialPolicy, m *metrics, trees *flow.Permits) *gatewayClient {
	dialer := &net.Dialer{Timeout: gatewayDialTimeout, ControlContext: netguard.ControlContext(reach, func(ctx context.Context, refused error) error {
		if refused != nil {
			m.fetchRefused[refusedAddress].Inc()
			return refused
		}
		return allowanceFrom(ctx).allowConnection()
	})}
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dialer.DialContext(ctx, network, address)
		if late, ok := errors.AsType[net.Error](err); ok && late.Timeout() {
			m.connectTimeouts.Inc()
		}
		return conn, err
	}
	return &gatewayClient{metrics: m, treePermits: trees, client: &http.Client{
		Transport: &http.Transport{
			Proxy: nil, DialContext: dial, ForceAttemptHTTP2: true, DisableCompression: true,
			TLSHandshakeTimeout: gatewayDialTimeout, ResponseHeaderTimeout: gatewayIdleTimeout, MaxResponseHeaderBytes: 64 << 10,
			MaxIdleConns: 64, MaxIdleConnsPerHost: 8, IdleConnTimeout: 30 * time.Second,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

func (g *gatewayClient) close() { g.client.CloseIdleConnections() }

// open asks a gateway for an object. The context is that of the whole download.
// More than unproven bytes are accepted only with a proof.
func (g *gatewayClient) open(ctx context.Context, base string, address b3.Address, unproven int64) (objectBody, error) {
	base, err := originOf(base)
	if err != nil {
		return objectBody{}, err
	}
	body, size, err := g.get(ctx, base, base+"/o/"+address.String(), "")
	if fault.KindOf(err) == fault.NotFound {
		return g.openBlock(ctx, base, address, unproven)
	}
	if err != nil {
		return objectBody{}, err
	}
	return g.checkDeclaredSize(ctx, base, address, body, size, unproven)
}

// openBlock asks a gateway of IPFS, which serves only this path.
func (g *gatewayClient) openBlock(ctx context.Context, base string, address b3.Address, unproven int64) (objectBody, error) {
	body, size, err := g.get(ctx, base, base+"/ipfs/"+address.CID()+"?format=raw", "")
	if err != nil {
		return objectBody{}, err
	}
	return g.checkDeclaredSize(ctx, base, address, body, size, min(unproven, maxBlock))
}

// openHead is open for the first bytes of an object. A gateway that serves no
// ranges sends all of it.
func (g *gatewayClient) openHead(ctx context.Context, base string, address b3.Address, length int, unproven int64) (objectBody, error) {
	base, err := originOf(base)
	if err != nil {
		return objectBody{}, err
	}
	body, size, err := g.get(ctx, base, base+"/o/"+address.String(), "bytes=0-"+strconv.Itoa(length-1))
	if fault.KindOf(err) == fault.NotFound {
		return g.openBlock(ctx, base, address, unproven)
	}
	if err != nil {
		return objectBody{}, err
	}
	begin, total, ranged := body.contentRange()
	switch {
	case !ranged:
		return g.checkDeclaredSize(ctx, base, address, body, size, unproven)
	case begin != 0:
		_ = body.Close() // it is not read
		return objectBody{}, fault.New(opFetch, fault.UpstreamFailed, "%s sent another range than was asked for", base)
	}
	if total <= int64(length) {
		return objectBody{ReadCloser: body, size: total}, nil
	}
	return objectBody{ReadCloser: body, size: total, head: length}, nil
}

// originOf returns the scheme and the host of a gateway.
func originOf(base string) (string, error) {
	at, err := url.Parse(base)
	if err != nil || at.Scheme != "http" && at.Scheme != "https" || at.Host == "" || at.User != nil {
		return "", fault.New(opFetch, fault.NoRoute, "%q is not a valid gateway", base)
	}
	return at.Scheme + "://" + at.Host, nil
}

// get requests one URL, or a range of it. It returns the size that the answer
// declares, or -1.
func (g *gatewayClient) get(ctx context.Context, base, url, byteRange string) (*idleTimeoutBody, int64, error) {
	ctx, cancel := context.WithCancel(ctx)
	var onThisMachine atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		at, ok := info.Conn.RemoteAddr().(*net.TCPAddr)
		onThisMachine.Store(ok && at.IP.IsLoopback())
	}})
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err == nil {
		if byteRange != "" {
			request.Header.Set("Range", byteRange)
		}
		var response *http.Response
		if response, err = g.client.Do(request); err == nil {
			body, err := g.checkResponse(response, cancel, base)
			if err == nil && !onThisMachine.Load() {
				body.step, body.pace = g.down.Step, func(n int) error { return g.await(ctx, n) }
			}
			return body, response.ContentLength, err
		}
	}
	cancel()
	return nil, 0, fault.WrapKind(opFetch, fault.UpstreamFailed, err)
}

// await waits for bytes that have arrived.
func (g *gatewayClient) await(ctx context.Context, n int) error {
	g.down.Count(bandwidth.Fetches, n)
	for n > 0 {
		granted, err := g.down.Wait(ctx, bandwidth.Fetches, &g.share, n)
		if err != nil {
			return err
		}
		n -= granted
	}
	return nil
}

// checkResponse accepts the answer of a gateway if it has a body of the object.
func (g *gatewayClient) checkResponse(response *http.Response, cancel context.CancelFunc, base string) (*idleTimeoutBody, error) {
	switch asked := response.Request.Header.Get("Range") != ""; {
	case response.StatusCode == http.StatusOK, asked && response.StatusCode == http.StatusPartialContent:
		body := newIdleTimeoutBody(response.Body, cancel)
		body.status, body.rangeHeader = response.StatusCode, response.Header.Get("Content-Range")
		return body, nil
	}
	_ = response.Body.Close()
	cancel()
	if response.StatusCode == http.StatusNotFound {
		return nil, fault.New(opFetch, fault.NotFound, "%s does not have it", base)
	}
	return nil, fault.New(opFetch, fault.UpstreamFailed, "%s answered %s", base, response.Status)
}

// idleTimeoutBody is a body that is cancelled when no bytes arrive for a while.
type idleTimeoutBody struct {
	io.ReadCloser
	cancel context.CancelFunc
	timer  *time.Timer

	status      int
	rangeHeader string // Content-Range

	// of a limit of this node; nil on this machine
	step func() int        // how much is read at once
	pace func(n int) error // waits for what was read
}

func newIdleTimeoutBody(body io.ReadCloser, cancel context.CancelFunc) *idleTimeoutBody {
	alarm := time.AfterFunc(gatewayIdleTimeout, cancel) //lockblock:allow like the timer of context.WithTimeout, it only ends a context, and Close stops it
	return &idleTimeoutBody{ReadCloser: body, cancel: cancel, timer: alarm}
}

// Read reads, and resets the timer after each byte.
func (i *idleTimeoutBody) Read(b []byte) (int, error) {
	if i.step != nil {
		b = b[:min(len(b), i.step())]
	}
	n, err := i.ReadCloser.Read(b)
	if n > 0 && i.pace != nil {
		i.timer.Stop() // what this node waits for is not the gateway's fault
		if ended := i.pace(n); ended != nil {
			return n, ended
		}
	}
	if n > 0 {
		i.timer.Reset(gatewayIdleTimeout)
	}
	if err != nil && err != io.EOF {
		err = fault.New(opFetch, fault.UpstreamFailed, "the gateway closed the connection early: %v", err) // not wrapped: to a store, a body that ends too soon is a client that left
	}
	return n, err
}

// Close ends the download.
func (i *idleTimeoutBody) Close() error {
	i.timer.Stop()
	i.cancel()
	return i.ReadCloser.Close()
}
