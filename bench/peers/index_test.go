package peers

import (
	"context"
	"crypto/ed25519"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"micronode/b3"
)

// The behaviour of an endpoint depends on how many were asked before it,
// whichever it is.
func TestPlayedEndpoints(t *testing.T) {
	conducts := []Behaviour{HasNone, Silent, HasProviders}
	played := &endpoints{asked: map[b3.Address]int{}, routing: Routing{Behaviour: func(_ b3.Address, nth int) Behaviour { return conducts[nth] }}}
	one, other := httptest.NewServer(played), httptest.NewServer(played)
	defer one.Close()
	defer other.Close()
	key := Keys(1, 7)[0].Address
	ask := func(url string, patience time.Duration) string {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/routing/v1/providers/"+key.CID(), nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultTransport.RoundTrip(request)
		if err != nil {
			return "silence"
		}
		defer response.Body.Close()
		body, _ := io.ReadAll(response.Body)
		return string(body)
	}
	defer http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	for i, want := range []string{`{"Providers":[]}`, "silence", someProviders} {
		patience := 20 * time.Second
		if want == "silence" {
			patience = time.Second
		}
		if got := ask([]string{one.URL, other.URL}[i%2], patience); got != want {
			t.Errorf("the one that was asked as number %d said %s, want %s", i, got, want)
		}
	}
}

func TestKeys(t *testing.T) {
	seen := map[b3.Address]bool{}
	for _, seed := range []uint64{0, 1} {
		for _, key := range Keys(100, seed) {
			seen[key.Address] = true
		}
	}
	if len(seen) != 200 {
		t.Errorf("%d different keys, want 200", len(seen))
	}
}

// An ID of libp2p begins as all those of Ed25519 keys do, and contains the key.
func TestLibp2pID(t *testing.T) {
	one, other := libp2pID(make(ed25519.PublicKey, ed25519.PublicKeySize)), libp2pID(ed25519.NewKeyFromSeed(make([]byte, 32)).Public().(ed25519.PublicKey))
	for _, id := range []string{one, other} {
		if !strings.HasPrefix(id, "12D3KooW") || len(id) != 52 {
			t.Errorf("%s is no ID", id)
		}
	}
	if one == other {
		t.Error("two keys have one ID")
	}
}

// A real node queries the simulated endpoints, and caches their answers.
func TestRealIndex(t *testing.T) {
	index, err := StartIndex(t.Context(), newTestbed(t), Routing{Endpoints: 2})
	if err != nil {
		t.Fatal(err)
	}
	key := Keys(1, 1)[0]
	body, err := index.CachedBody(t.Context(), key)
	if err != nil || !strings.Contains(string(body), `"source":"cache"`) {
		t.Errorf("%s, %v", body, err)
	}
	if err := index.LookupProviders(t.Context(), Keys(1, 2)[0]); err != nil {
		t.Error(err)
	}
	if err := index.LookupProviders(t.Context(), key); err == nil {
		t.Error("what is remembered passes for a look-up")
	}
}
