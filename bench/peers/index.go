package peers

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"

	"micronode/b3"
	"micronode/bench/load"
	"micronode/bench/testbed"
)

// Index is our own node, which queries endpoints of Delegated Routing. The
// bench simulates those, so that it is known which answers when, and with what.
type Index struct {
	Server
	node       micronode
	httpClient *http.Client // keeps its connections, as a frequent client does
}

// Behaviour is how a simulated endpoint answers a query.
type Behaviour int

const (
	HasProviders Behaviour = iota // it knows a provider
	HasNone                       // it knows no provider
	Slow                          // it knows a provider, but the answer takes 800 ms
	Silent                        // it never answers
)

// slowLatency is how long a slow endpoint takes.
const slowLatency = 800 * time.Millisecond

// Routing configures the endpoints.
type Routing struct {
	Endpoints int
	Latency   time.Duration                           // of each answer, as over a network
	Behaviour func(key b3.Address, nth int) Behaviour // of the nth that is asked for a key, from 0 on; nil: all know
}

// StartIndex starts a node and its endpoints. The node caches answers for the
// whole run.
func StartIndex(ctx context.Context, g *testbed.Testbed, routing Routing, environment ...string) (*Index, error) {
	endpoints := &endpoints{routing: routing, asked: map[b3.Address]int{}}
	var urls []string
	for range routing.Endpoints {
		urls = append(urls, endpoints.start(g))
	}
	settings := []string{"MICRO_INDEX__DELEGATED=" + strings.Join(urls, ","), "MICRO_LIMITS__CONNS_PER_IP=4096",
		"MICRO_INDEX__CACHE__TTL=24h", "MICRO_INDEX__CACHE__ENTRIES=1000000", "MICRO_INDEX__CACHE__BYTES=1GiB"}
	node, err := launchMicronode(ctx, g, append(append(settings, environment...), raisedLimits...))
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 256}
	g.OnClose(transport.CloseIdleConnections)
	x := &Index{node: node, Server: Server{Process: node.process}, httpClient: &http.Client{Transport: transport}}
	if x.Address, err = node.gateway(ctx, g); err != nil {
		return nil, err
	}
	x.Get = x.Resolve
	return x, nil
}

// endpoints are those that one node queries.
type endpoints struct {
	routing Routing

	mu    sync.Mutex
	asked map[b3.Address]int // how many were asked for a key
}

// start starts one more and returns its URL. The testbed stops it.
func (e *endpoints) start(g *testbed.Testbed) string {
	server := httptest.NewServer(e)
	g.OnClose(server.Close)
	return server.URL
}

// ServeHTTP answers a query.
func (e *endpoints) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key, err := b3.ParseCID(strings.TrimPrefix(r.URL.Path, "/routing/v1/providers/"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	conduct, after := e.behaviour(key), e.routing.Latency
	switch conduct {
	case Silent:
		<-r.Context().Done()
		return
	case Slow:
		after = slowLatency
	}
	if after > 0 {
		select {
		case <-time.After(after):
		case <-r.Context().Done():
			return
		}
	}
	w.Header().Set("Content-Type", "application/json")
	if conduct == HasNone {
		_, _ = fmt.Fprint(w, `{"Providers":[]}`)
		return
	}
	_, _ = fmt.Fprint(w, someProviders)
}

// someProviders is the provider of everything.
const someProviders = `{"Providers":[{"Schema":"peer","ID":"12D3KooWD3eckifWpRn9wQpMG9R9hX3sD158z7EqHWmweQAJU5SA",` +
	`"Addrs":["/ip4/127.0.0.1/tcp/9500/tls","/ip4/127.0.0.1/tcp/8080/http"],"Protocols":["transport-ipfs-gateway-http"]}]}`

// behaviour is that of the next endpoint that is asked for a key.
func (e *endpoints) behaviour(key b3.Address) Behaviour {
	if e.routing.Behaviour == nil {
		return HasProviders
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	nth := e.asked[key]
	e.asked[key]++
	return e.routing.Behaviour(key, nth)
}

// Resolve returns the request that resolves an address. The age in the answer
// changes from second to second, and so does its length; the check is that it
// contains the address.
func (x *Index) Resolve(o Object) load.Exchange {
	return load.Exchange{Request: request("GET", "/resolve/"+o.Address.String(), x.Address, nil, nil),
		Status: http.StatusOK, Length: load.AnyLength, Contains: []byte(o.Address.String())}
}

// LookupProviders looks up the providers of an object. There must be one,
// reported by an endpoint.
func (x *Index) LookupProviders(ctx context.Context, o Object) error {
	url := "http://" + x.Address + "/providers/" + o.Address.String()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := x.httpClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err == nil && (response.StatusCode != http.StatusOK || !bytes.Contains(body, []byte(`"source":"delegated"`))) {
		err = fmt.Errorf("%s: %s %s", url, response.Status, body)
	}
	return err
}

// CachedBody returns the answer for a cached address.
func (x *Index) CachedBody(ctx context.Context, o Object) ([]byte, error) {
	if err := x.Fetch(ctx, []Object{o}); err != nil {
		return nil, err
	}
	return fetchBody(ctx, "http://"+x.Address+"/resolve/"+o.Address.String())
}

// Keys are addresses without objects, all different.
func Keys(n int, seed uint64) []Object {
	keys := make([]Object, n)
	for i := range keys {
		keys[i].Address = b3.Of(binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, seed), uint64(i)))
	}
	return keys
}
