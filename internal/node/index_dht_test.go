//go:build !nolibp2p && !slim

package node

import (
	"slices"
	"strings"
	"testing"

	"micronode/internal/config"
)

// Two nodes that have never connected find each other's objects in the DHT, and
// the banner says how to join it.
func TestTwoNodesMeetInTheDHT(t *testing.T) {
	dht := func(more ...config.Flag) []config.Flag {
		return append(more, config.Flag{Key: "index.dht.addr", Value: "127.0.0.1:0", Name: "test"})
	}
	a := start(t, 2, dht(config.Flag{Key: "index.dht.enabled", Value: "true", Name: "test"})...)
	where := a.Info().DHT
	if len(where) == 0 || !strings.Contains(where[0], "/p2p/12D3Koo") || !slices.Equal(a.Status().Listen.DHT, where) {
		t.Fatalf("%v", where)
	}
	b := start(t, 2, dht(config.Flag{Key: "index.dht.bootstrap", Value: where[0], Name: "test"})...)
	address := a.put(t, "hello from a")
	b.waitResolved(t, address.String()) // although no other node was there when it was put
	if _, created, err := b.index.Fetch(t.Context(), address); err != nil || !created {
		t.Error(created, err)
	}
	b.stopAndWait(t)
	a.stopAndWait(t)
	_, err := New(t.Context(), testOptions(t, config.Flag{Key: "index.dht.bootstrap", Value: "/ip4/127.0.0.1/udp/1", Name: "test"}))
	if err == nil || !strings.Contains(err.Error(), "index.dht.bootstrap") {
		t.Error(err)
	}
}
