package registry

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"testing"

	"micronode/client"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/oap"
)

// seenAt is a registry as another process of its node has it.
func seenAt(t *testing.T, url string) (far *Remote, changes *atomic.Int64) {
	t.Helper()
	c, err := client.New(client.Options{URL: url, Retry: client.Retry{Tries: 1}})
	must(t, err)
	changes = new(atomic.Int64)
	far = NewRemote(flow.NewInventory(), c, func() { changes.Add(1) })
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- far.Serve(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		c.Close()
	})
	return far, changes
}

// aNode is the operation that puts a node.
func aNode(id string) json.RawMessage {
	peer := oap.PeerIDOf(logKey.Public().(ed25519.PublicKey))
	return json.RawMessage(fmt.Sprintf(`{"op":"put","item":{"kind":"node","id":%q,"peer_id":%q,"addrs":["192.0.2.1:9500"]}}`, id, peer))
}

// Names and nodes are known elsewhere as soon as they are committed, and not
// before anybody has answered.
func TestARegistryElsewhere(t *testing.T) {
	h := open(t)
	far, changes := seenAt(t, h.url)
	waitFor(t, func() bool { return far.Known() == nil })
	if _, _, ok := far.Name("docs"); ok {
		t.Error("a registry that has not begun has a name")
	}
	h.init()
	h.change(name("docs", "one"), aNode("edge-1"))
	waitFor(t, func() bool { _, version, ok := far.Name("docs"); return ok && version == 1 })
	if manifest, _, _ := far.Name("docs"); manifest.String() != fmt.Sprintf("b3:%064x", "one") {
		t.Error(manifest)
	}
	nodes, version, err := far.Nodes(t.Context(), 0)
	if err != nil || len(nodes) != 1 || len(nodes[0].Addrs) == 0 {
		t.Error(nodes, err)
	}
	h.change(name("docs", "two"), json.RawMessage(`{"op":"delete","id":"edge-1"}`))
	nodes, _, err = far.Nodes(t.Context(), version)
	for err == nil && len(nodes) > 0 {
		nodes, version, err = far.Nodes(t.Context(), version)
	}
	must(t, err)
	if manifest, version, ok := far.Name("docs"); !ok || version != 2 || manifest.String() != fmt.Sprintf("b3:%064x", "two") {
		t.Error(manifest, version, ok)
	}
	if changes.Load() < 3 {
		t.Errorf("told of %d changes", changes.Load())
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := far.Nodes(ended, version+100); err != nil {
		t.Error(err) // another version than the one that is known is an answer at once
	}
}

// One that comes late, or that has missed versions, reads all of it.
func TestARegistryElsewhereIsReadWhole(t *testing.T) {
	h := open(t)
	h.init()
	h.change(name("docs", "one"))
	h.change(name("more", "two"))
	far, _ := seenAt(t, h.url)
	waitFor(t, func() bool { _, _, ok := far.Name("more"); return ok })
	if err := far.read(t.Context(), 7); err != nil { // a version that does not follow on what is known
		t.Error(err)
	}
	if _, version, ok := far.Name("docs"); !ok || version != 2 {
		t.Error(version, ok)
	}
}

// While nobody answers, nobody knows; and what makes no sense is not taken over.
func TestARegistryThatIsAway(t *testing.T) {
	far, _ := seenAt(t, "http://127.0.0.1:1")
	if err := far.Known(); fault.KindOf(err) != fault.NotReady || fault.NextOf(err) == "" {
		t.Error(err)
	}
	if err := far.readAll(t.Context()); fault.KindOf(err) != fault.NotReady {
		t.Error(err)
	}
	g := &register{}
	for _, raw := range []string{`x`, `{"op":"put","item":{"kind":"else"}}`} {
		if err := g.apply(json.RawMessage(raw)); err == nil {
			t.Errorf("%s was taken over", raw)
		}
	}
}
