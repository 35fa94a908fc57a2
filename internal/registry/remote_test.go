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
	"micronode/internal/testkit"
)

// startRemote runs a Remote, as another process of the node does.
func startRemote(t *testing.T, url string) (far *Remote, changes *atomic.Int64) {
	t.Helper()
	c, err := client.New(client.Options{URL: url, Retry: client.Retry{Tries: 1}})
	testkit.Must(t, err)
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

// putNode is the operation that puts a node.
func putNode(id string) json.RawMessage {
	peer := oap.PeerIDOf(logKey.Public().(ed25519.PublicKey))
	return json.RawMessage(fmt.Sprintf(`{"op":"put","item":{"kind":"node","id":%q,"peer_id":%q,"addrs":["192.0.2.1:9500"]}}`, id, peer))
}

// A Remote has names and nodes as soon as they are committed, and reports that it is
// not loaded before the registry has answered.
func TestARegistryElsewhere(t *testing.T) {
	h := startRegistry(t)
	far, changes := startRemote(t, h.url)
	testkit.WaitFor(t, "the names are loaded", func() bool { return far.Ready() == nil })
	if _, _, ok := far.Name("docs"); ok {
		t.Error("a registry that has not begun has a name")
	}
	h.init()
	h.commitChange(putName("docs", "one"), putNode("edge-1"))
	testkit.WaitFor(t, "the name is there", func() bool { _, version, ok := far.Name("docs"); return ok && version == 1 })
	if manifest, _, _ := far.Name("docs"); manifest.String() != fmt.Sprintf("b3:%064x", "one") {
		t.Error(manifest)
	}
	nodes, version, err := far.Nodes(t.Context(), 0)
	if err != nil || len(nodes) != 1 || len(nodes[0].Addrs) == 0 {
		t.Error(nodes, err)
	}
	h.commitChange(putName("docs", "two"), json.RawMessage(`{"op":"delete","id":"edge-1"}`))
	nodes, _, err = far.Nodes(t.Context(), version)
	for err == nil && len(nodes) > 0 {
		nodes, version, err = far.Nodes(t.Context(), version)
	}
	testkit.Must(t, err)
	if manifest, version, ok := far.Name("docs"); !ok || version != 2 || manifest.String() != fmt.Sprintf("b3:%064x", "two") {
		t.Error(manifest, version, ok)
	}
	if changes.Load() < 3 {
		t.Errorf("told of %d changes", changes.Load())
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := far.Nodes(ended, version+100); err != nil {
		t.Error(err) // Nodes returns at once for another version than the current one
	}
}

// A Remote that starts late, or has missed versions, loads the whole head.
func TestARegistryElsewhereIsReadWhole(t *testing.T) {
	h := startRegistry(t)
	h.init()
	h.commitChange(putName("docs", "one"))
	h.commitChange(putName("more", "two"))
	far, _ := startRemote(t, h.url)
	testkit.WaitFor(t, "the other name is there", func() bool { _, _, ok := far.Name("more"); return ok })
	if err := far.loadVersion(t.Context(), 7); err != nil { // a version that does not follow the one that is loaded
		t.Error(err)
	}
	if _, version, ok := far.Name("docs"); !ok || version != 2 {
		t.Error(version, ok)
	}
}

// While the registry does not answer, names are not loaded; and invalid data is not
// applied.
func TestARegistryThatIsAway(t *testing.T) {
	far, _ := startRemote(t, "http://127.0.0.1:1")
	if err := far.Ready(); fault.KindOf(err) != fault.NotReady || fault.NextOf(err) == "" {
		t.Error(err)
	}
	if err := far.loadHead(t.Context()); fault.KindOf(err) != fault.NotReady {
		t.Error(err)
	}
	g := &remoteState{}
	for _, raw := range []string{`x`, `{"op":"put","item":{"kind":"else"}}`} {
		if err := g.apply(json.RawMessage(raw)); err == nil {
			t.Errorf("%s was taken over", raw)
		}
	}
}
