package delegated_test

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"micronode/b3"
	"micronode/internal/index/delegated"
	"micronode/internal/index/record"
	"micronode/internal/oap"
)

// One node reports to another, by the protocol of IPFS, that it has an object.
func Example() {
	key := ed25519.NewKeyFromSeed(make([]byte, 32)).Public().(ed25519.PublicKey)
	us := record.Provider{ID: oap.PeerIDOf(key).String(), Overlay: []string{"192.0.2.7:9500"}, HTTP: []string{"https://node.example"}}

	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		encoding, _ := delegated.NegotiateEncoding(r.Header)
		page := delegated.NewRecordWriter(w, encoding, delegated.ParseFilter(r.URL.Query()), time.Now())
		if rec, ok := delegated.RecordOf(delegated.WithLibp2pID(us, key)); ok {
			fmt.Println("told: ", rec.ID, rec.Addrs, rec.Protocols)
			_ = page.Add(rec)
		}
		page.EndStream()
	}))
	defer server.Close()

	endpoint, err := delegated.NewEndpoint(delegated.EndpointSpec{URL: server.URL, Client: server.Client()})
	if err != nil {
		fmt.Println(err)
		return
	}
	answer, err := endpoint.Ask(context.Background(), record.Question{Kind: record.CID, Address: b3.Of([]byte("hello"))})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, p := range answer.Providers {
		fmt.Println("heard:", p.ID, p.Overlay, p.HTTP)
	}
	// Output:
	// told:  12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN [/ip4/192.0.2.7/tcp/9500/tls /dns/node.example/tcp/443/tls/http] [transport-ipfs-gateway-http]
	// heard: wty5cubcviuseyhxseg2vbfizui5jaij3l64ij3fb6ppjwak3ewa [192.0.2.7:9500] [https://node.example:443]
}
