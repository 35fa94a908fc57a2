package interop

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ipfs/boxo/ipns"
	boxo "github.com/ipfs/boxo/routing/http/client"
	boxoserver "github.com/ipfs/boxo/routing/http/server"
	"github.com/ipfs/boxo/routing/http/types"
	"github.com/ipfs/boxo/routing/http/types/iter"
	"github.com/ipfs/go-cid"
	libp2p "github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/routing"
	"github.com/multiformats/go-multiaddr"
	"github.com/multiformats/go-multibase"
	"github.com/multiformats/go-multihash"
	"github.com/prometheus/client_golang/prometheus"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/index/delegated"
	"micronode/internal/index/record"
	"micronode/internal/oap"
)

// boxo is the library of the IPFS project in Go: its client and its server are
// those that the public network runs on.

// acceptClient is an HTTP client that requests one format.
type acceptClient struct{ accept string }

func (a acceptClient) Do(r *http.Request) (*http.Response, error) {
	r.Header.Set("Accept", a.accept)
	return http.DefaultClient.Do(r)
}

// TestDelegatedServer has boxo's client query a real node.
func TestDelegatedServer(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "micronode")
	if out, err := exec.Command("go", "build", "-C", "..", "-o", binary, "./cmd/micronode").CombinedOutput(); err != nil {
		t.Fatalf("go build ./cmd/micronode: %v\n%s", err, out)
	}
	n := startIndexNode(t, binary)
	here, host := n.put([]byte("a block")).CID(), n.libp2pID()
	for _, accept := range []string{"application/json", "application/x-ndjson", "application/x-ndjson,application/json"} {
		c, err := boxo.New(n.url, boxo.WithHTTPClient(acceptClient{accept}), boxo.WithProtocolFilter([]string{"unknown", delegated.Gateway}))
		if err != nil {
			t.Fatal(err)
		}
		for text, want := range map[string]int{here: 1, b3.Of([]byte("elsewhere")).CID(): 0, "bafkreidcd7frenco2m6ch7mny63wztgztv3q6fctaffgowkro6kljre5ei": 0, "bafkqaaa": 0} {
			found := findWithBoxo(t, c, text)
			if len(found) != want {
				t.Errorf("%s: boxo reads %d records for %s", accept, len(found), text)
			}
			for _, r := range found {
				at := "/ip4/127.0.0.1/tcp/" + n.url[strings.LastIndex(n.url, ":")+1:] + "/http"
				if r.ID.String() != host || !slices.ContainsFunc(r.Addrs, func(a types.Multiaddr) bool { return a.String() == at }) || !slices.Equal(r.Protocols, []string{delegated.Gateway}) {
					t.Errorf("%s: boxo reads %+v", accept, r)
				}
			}
		}
	}
}

// findWithBoxo is everything that boxo reads of an answer. It skips records
// that it cannot read, so they are counted.
func findWithBoxo(t *testing.T, c *boxo.Client, text string) (found []*types.PeerRecord) {
	t.Helper()
	answer, err := c.FindProviders(t.Context(), cid.MustParse(text))
	if err != nil {
		t.Fatal(err)
	}
	results, err := iter.ReadAllResults(answer)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		one, ok := r.(*types.PeerRecord)
		if !ok {
			t.Fatalf("boxo takes %+v for something else than a peer", r)
		}
		found = append(found, one)
	}
	return found
}

// fakeRouter is the content of boxo's server.
type fakeRouter struct {
	records []types.Record
	delay   time.Duration // after the first one
	err     error
}

func (r fakeRouter) FindProviders(context.Context, cid.Cid, int) (iter.ResultIter[types.Record], error) {
	slow := 0
	return iter.ToResultIter(iter.Map(iter.FromSlice(r.records), func(one types.Record) types.Record {
		if slow++; slow > 1 {
			time.Sleep(r.delay)
		}
		return one
	})), r.err
}

var errNotHere = errors.New("not here")

//lint:ignore SA1019 the server asks for all of its interface
func (fakeRouter) ProvideBitswap(context.Context, *boxoserver.BitswapWriteProvideRequest) (time.Duration, error) {
	return 0, errNotHere
}
func (fakeRouter) FindPeers(context.Context, libp2p.ID, int) (iter.ResultIter[*types.PeerRecord], error) {
	return nil, errNotHere
}
func (fakeRouter) GetIPNS(context.Context, ipns.Name) (*ipns.Record, error) { return nil, errNotHere }
func (fakeRouter) PutIPNS(context.Context, ipns.Name, *ipns.Record) error   { return errNotHere }
func (fakeRouter) GetClosestPeers(context.Context, cid.Cid) (iter.ResultIter[*types.PeerRecord], error) {
	return nil, errNotHere
}

// boxoRecord is a record of a host with these addresses.
func boxoRecord(t *testing.T, id string, addrs ...string) *types.PeerRecord {
	t.Helper()
	decoded, err := libp2p.Decode(id)
	if err != nil {
		t.Fatal(err)
	}
	r := &types.PeerRecord{Schema: types.SchemaPeer, ID: &decoded, Protocols: []string{"transport-bitswap"}}
	for _, text := range addrs {
		r.Addrs = append(r.Addrs, types.Multiaddr{Multiaddr: multiaddr.StringCast(text)})
	}
	return r
}

// TestDelegatedClient has our client query boxo's server.
func TestDelegatedClient(t *testing.T) {
	public, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	const old = "QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N"
	two := []types.Record{
		boxoRecord(t, record.Libp2pID(public), "/ip4/127.0.0.1/tcp/9500/tls", "/dns4/node.example/tcp/443/https", "/ip4/127.0.0.1/udp/4001/quic-v1"),
		boxoRecord(t, old, "/ip4/127.0.0.1/tcp/4001"),
	}
	var many []types.Record
	for range 10_000 {
		many = append(many, &types.UnknownRecord{Schema: "future", Bytes: []byte(`{"Schema":"future"}`)})
	}
	many = append(many, two...)
	ours := oap.PeerIDOf(public).String()
	for name, c := range map[string]struct {
		router fakeRouter
		want   []string
		kind   fault.Kind
	}{
		"two":            {router: fakeRouter{records: two}, want: []string{ours, old}},
		"nobody":         {router: fakeRouter{}},
		"not found":      {router: fakeRouter{err: routing.ErrNotFound}},
		"broken":         {router: fakeRouter{err: errNotHere}, kind: fault.UpstreamFailed},
		"among thousand": {router: fakeRouter{records: many}, want: []string{ours, old}},
	} {
		for encoding, options := range map[string][]boxoserver.Option{"lines": nil, "document": {boxoserver.WithStreamingResultsDisabled(), boxoserver.WithRecordsLimit(0)}} {
			answer, err := lookupAtBoxo(t, c.router, options...)
			var ids []string
			for _, p := range answer.Providers {
				ids = append(ids, p.ID)
			}
			if !slices.Equal(ids, c.want) || fault.KindOf(err) != c.kind {
				t.Errorf("%s, as %s: %v, %v", name, encoding, ids, err)
			}
		}
	}
	answer, err := lookupAtBoxo(t, fakeRouter{records: two, delay: 2 * time.Second})
	if err != nil || len(answer.Providers) != 1 {
		t.Fatalf("from a slow server: %+v, %v", answer, err)
	}
	p := answer.Providers[0]
	if got, want := fmt.Sprint(p.Overlay, p.HTTP, p.Other), fmt.Sprint([]string{"127.0.0.1:9500"}, []string{"https://node.example:443"}, []string{"/ip4/127.0.0.1/udp/4001/quic-v1", "/p2p/" + record.Libp2pID(public)}); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

// lookupAtBoxo queries boxo's server once.
func lookupAtBoxo(t *testing.T, r fakeRouter, options ...boxoserver.Option) (record.Answer, error) {
	t.Helper()
	s := httptest.NewServer(boxoserver.Handler(r, append(options, boxoserver.WithPrometheusRegistry(prometheus.NewRegistry()))...))
	defer s.Close()
	e, err := delegated.NewEndpoint(delegated.EndpointSpec{URL: s.URL, Client: s.Client()})
	if err != nil {
		t.Fatal(err)
	}
	return e.Ask(t.Context(), record.Question{Kind: record.CID, Address: b3.Of([]byte("a block"))})
}

// What we accept as a CID is one to the reference implementation, in every
// base; and the other way round for the bases in use.
func TestDelegatedCIDs(t *testing.T) {
	address := b3.Of([]byte("a block"))
	ours := cid.NewCidV1(cid.Raw, multihash.Multihash(append([]byte{0x1e, 0x20}, address[:]...)))
	sha, err := multihash.Sum([]byte("a block"), multihash.SHA2_256, -1)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []cid.Cid{ours, cid.NewCidV1(cid.DagProtobuf, sha), cid.NewCidV1(cid.Raw, sha), cid.NewCidV1(cid.DagCBOR, ours.Hash()), cid.MustParse("bafkqaaa")} {
		for _, base := range []multibase.Encoding{multibase.Base32, multibase.Base32Upper, multibase.Base16, multibase.Base36, multibase.Base58BTC} {
			text, err := c.StringOfBase(base)
			if err != nil {
				t.Fatal(err)
			}
			got, err := delegated.ParseCID(text)
			if err != nil || got.Ours != c.Equals(ours) || got.Ours && got.Address != address || got.Empty != (text == "bafkqaaa" || c.String() == "bafkqaaa") {
				t.Errorf("%s: %+v, %v", text, got, err)
			}
			for cut := 1; cut < len(text); cut++ {
				if _, err := delegated.ParseCID(text[:cut]); err == nil {
					if _, err := cid.Decode(text[:cut]); err != nil {
						t.Errorf("%s is a CID to us only", text[:cut])
					}
				}
			}
		}
	}
	old := cid.NewCidV0(sha).String()
	if got, err := delegated.ParseCID(old); err != nil || got != (delegated.CID{}) {
		t.Errorf("%s: %+v, %v", old, got, err)
	}
}

// Whatever a remote calls an address, what we pass on is one to libp2p: a
// record with another would be lost, and the whole list with it.
func TestDelegatedAddresses(t *testing.T) {
	const id = "QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N"
	words := []string{"ip4", "ip6", "dns", "dns4", "dnsaddr", "tcp", "udp", "sni", "p2p", "quic-v1", "tls", "ws", "wss", "http", "https", "webtransport", "webrtc-direct", "p2p-circuit", "noise", "certhash",
		"127.0.0.1", "::1", "fe80::1%lo", "a.example", "65536", "443", "0", "-1", "", id, id[:20], "12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN", "uEiA", "x"}
	given := 0
	for i := range 200_000 {
		var text strings.Builder
		for n := i; n > 0; n /= len(words) + 1 {
			if at := n % (len(words) + 1); at > 0 {
				text.WriteString("/" + words[at-1])
			}
		}
		r, ok := delegated.RecordOf(record.Provider{ID: id, Other: []string{text.String(), "/ip4/127.0.0.1/tcp/1" + text.String()}})
		if !ok {
			t.Fatal("a stranger with a good ID is left out")
		}
		for _, addr := range r.Addrs {
			given++
			if _, err := multiaddr.NewMultiaddr(addr); err != nil {
				t.Fatal(err)
			}
		}
	}
	if given < 1000 {
		t.Errorf("only %d addresses were passed on", given)
	}
}
