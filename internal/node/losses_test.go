package node

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"micronode/b3"
	"micronode/client"
	"micronode/internal/store"
	"micronode/internal/testkit"
)

// A node in memory says what ends with it; one with a folder loses nothing.
func TestTheDrainSaysWhatIsLost(t *testing.T) {
	for _, persist := range []string{"", t.TempDir()} {
		n := startWith(t, func(o *Options) { o.Persist = persist })
		n.waitReady(t)
		if len(n.Lost()) != 0 {
			t.Errorf("before the drain, %v is lost", n.Lost())
		}
		if _, _, err := n.store.Put(t.Context(), strings.NewReader("hello"), store.PutOptions{Size: store.Unknown}); err != nil {
			t.Fatal(err)
		}
		n.stopAndWait(t)
		if persist != "" && len(n.Lost()) != 0 {
			t.Errorf("with a folder, %v is lost", n.Lost())
		}
		if persist == "" && !slices.ContainsFunc(n.Lost(), func(text string) bool { return strings.HasPrefix(text, "1 object (5") }) {
			t.Errorf("%v is lost, and an object was put", n.Lost())
		}
	}
}

// Everything that people entered and that only memory holds is in the list: names,
// messages, peers, and what waits in the registry.
func TestTheDrainSaysWhatOfPeopleIsLost(t *testing.T) {
	for _, persist := range []string{"", t.TempDir()} {
		n := startWith(t, func(o *Options) { o.Persist = persist })
		n.waitReady(t)
		c := n.newLocalClient(t)
		_, err := c.SetName(t.Context(), "docs", b3.Of([]byte("a manifest")))
		testkit.Must(t, err)
		for range 2 {
			_, err = c.SendMail(t.Context(), "jobs", []byte("hello"), client.MailOptions{})
			testkit.Must(t, err)
		}
		stranger, err := NewIdentity()
		testkit.Must(t, err)
		_, err = c.AddPeer(t.Context(), stranger.PeerID()+"@127.0.0.1:1")
		testkit.Must(t, err)
		public, _, err := ed25519.GenerateKey(nil)
		testkit.Must(t, err)
		_, err = c.InitRegistry(t.Context(), client.InitRequest{M: 1, Keys: []client.RegistryKey{{SignerID: "alice", Public: "ed25519:" + base64.StdEncoding.EncodeToString(public)}}})
		testkit.Must(t, err)
		for _, name := range []string{"a", "b", "c"} {
			_, err = c.Propose(t.Context(), client.ProposalRequest{SchemaVersion: "1.0.0",
				Ops: []json.RawMessage{json.RawMessage(`{"op":"put","item":{"kind":"name","id":"` + name + `","manifest":"b3:` + strings.Repeat("0", 64) + `"}}`)}})
			testkit.Must(t, err)
		}
		n.stopAndWait(t)
		lost := n.Lost()
		if persist != "" {
			testkit.Equal(t, "lost with a folder", len(lost), 0)
			continue
		}
		for _, want := range []string{"1 name", "2 messages", "1 added peer", "1 version of the registry", "3 open proposals"} {
			if !slices.Contains(lost, want) {
				t.Errorf("%q is not among what is lost: %q", want, lost)
			}
		}
	}
}

// The keys of the node and of its registry are overwritten when it is closed, and so
// is every copy that a signer has: it is the same memory.
func TestKeysAreWiped(t *testing.T) {
	n := startWith(t, func(*Options) {})
	n.waitReady(t)
	for what, key := range map[string]ed25519.PrivateKey{"node": n.identity.private, "registry": n.registryKey} {
		if len(key) != ed25519.PrivateKeySize || bytes.Equal(key, make([]byte, len(key))) {
			t.Fatalf("the key of the %s: %d bytes", what, len(key))
		}
	}
	own, log := n.identity.private, n.registryKey
	n.stopAndWait(t)
	for what, key := range map[string]ed25519.PrivateKey{"node": own, "registry": log} {
		if !bytes.Equal(key, make([]byte, len(key))) {
			t.Errorf("the key of the %s is still in memory", what)
		}
	}
}
