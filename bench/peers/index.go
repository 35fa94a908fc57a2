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
	"micronode/bench/ground"
	"micronode/bench/load"
)

// Index is our own node, which asks endpoints of Delegated Routing. The bench
// plays those, so that it is known who answers when, and with what.
type Index struct {
	Server
	node    micronode
	seekers *http.Client // keeps its connections, as a client does that asks often
}

// Conduct is what a played endpoint does with a question.
type Conduct int

const (
	Knows    Conduct = iota // somebody has it
	KnowsNot                // nobody has it
	Slow                    // somebody has it, but the answer takes 800 ms
	Silent                  // it never answers: as good as dead
)

// slowness is what a slow endpoint takes.
const slowness = 800 * time.Millisecond

// Routing is some endpoints.
type Routing struct {
	Endpoints int
	Distance  time.Duration                         // what each answer takes, as it does over a network
	Conduct   func(key b3.Address, nth int) Conduct // of the nth that is asked for a key, from 0 on; nil: all know
}

// StartIndex starts a node and what it asks. What it has found out once it keeps
// for the whole run.
func StartIndex(ctx context.Context, g *ground.Ground, routing Routing, environment ...string) (*Index, error) {
	endpoints := &endpoints{routing: routing, asked: map[b3.Address]int{}}
	var urls []string
	for range routing.Endpoints {
		urls = append(urls, endpoints.open(g))
	}
	settings := []string{"MICRO_INDEX__DELEGATED=" + strings.Join(urls, ","), "MICRO_LIMITS__CONNS_PER_IP=4096",
		"MICRO_INDEX__CACHE__TTL=24h", "MICRO_INDEX__CACHE__ENTRIES=1000000", "MICRO_INDEX__CACHE__BYTES=1GiB"}
	node, err := launchMicronode(ctx, g, append(append(settings, environment...), raised...))
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 256}
	g.OnClose(transport.CloseIdleConnections)
	x := &Index{node: node, Server: Server{Process: node.process}, seekers: &http.Client{Transport: transport}}
	if x.Address, err = node.gateway(ctx, g); err != nil {
		return nil, err
	}
	x.Get = x.Resolve
	return x, nil
}

// endpoints are those that one node asks.
type endpoints struct {
	routing Routing

	mu    sync.Mutex
	asked map[b3.Address]int // how many were asked for a key
}

// open starts one more and tells where it is. The ground ends it.
func (e *endpoints) open(g *ground.Ground) string {
	server := httptest.NewServer(e)
	g.OnClose(server.Close)
	return server.URL
}

// ServeHTTP answers a question.
func (e *endpoints) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key, err := b3.ParseCID(strings.TrimPrefix(r.URL.Path, "/routing/v1/providers/"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	conduct, after := e.conduct(key), e.routing.Distance
	switch conduct {
	case Silent:
		<-r.Context().Done()
		return
	case Slow:
		after = slowness
	}
	if after > 0 {
		select {
		case <-time.After(after):
		case <-r.Context().Done():
			return
		}
	}
	w.Header().Set("Content-Type", "application/json")
	if conduct == KnowsNot {
		_, _ = fmt.Fprint(w, `{"Providers":[]}`)
		return
	}
	_, _ = fmt.Fprint(w, somebody)
}

// somebody is who has everything.
const somebody = `{"Providers":[{"Schema":"peer","ID":"12D3KooWD3eckifWpRn9wQpMG9R9hX3sD158z7EqHWmweQAJU5SA",` +
	`"Addrs":["/ip4/127.0.0.1/tcp/9500/tls","/ip4/127.0.0.1/tcp/8080/http"],"Protocols":["transport-ipfs-gateway-http"]}]}`

// conduct is what the next one does that is asked for a key.
func (e *endpoints) conduct(key b3.Address) Conduct {
	if e.routing.Conduct == nil {
		return Knows
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	nth := e.asked[key]
	e.asked[key]++
	return e.routing.Conduct(key, nth)
}

// Resolve is how it is asked what an address stands for. How old the answer is
// changes from second to second, and so its length does; that it is about the
// address is what is looked for.
func (x *Index) Resolve(o Object) load.Exchange {
	return load.Exchange{Request: request("GET", "/resolve/"+o.Address.String(), x.Address, nil, nil),
		Status: http.StatusOK, Length: load.AnyLength, Holds: []byte(o.Address.String())}
}

// Seek asks who has something. There must be somebody, and an endpoint must have
// said so.
func (x *Index) Seek(ctx context.Context, o Object) error {
	url := "http://" + x.Address + "/providers/" + o.Address.String()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := x.seekers.Do(request)
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

// Answer is what is answered for an address that is remembered.
func (x *Index) Answer(ctx context.Context, o Object) ([]byte, error) {
	if err := x.Fetch(ctx, []Object{o}); err != nil {
		return nil, err
	}
	return fetchBody(ctx, "http://"+x.Address+"/resolve/"+o.Address.String())
}

// Keys are addresses without anything behind them: no two are the same.
func Keys(n int, seed uint64) []Object {
	keys := make([]Object, n)
	for i := range keys {
		keys[i].Address = b3.Of(binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, seed), uint64(i)))
	}
	return keys
}
