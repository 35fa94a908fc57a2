package node

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"micronode/client"
	"micronode/fault"
	"micronode/internal/capability"
	"micronode/internal/testkit"
)

// tokenClient is a client that shows a token on the gateway.
func (n *runningNode) tokenClient(t *testing.T, token string) *client.Client {
	t.Helper()
	c, err := client.New(client.Options{URL: n.Info().HTTP, Token: token, Retry: client.Retry{Tries: 1}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func (n *runningNode) mint(t *testing.T, by *client.Client, want client.MintRequest) string {
	t.Helper()
	token, err := by.MintToken(t.Context(), want)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// A token that is minted with a token allows no more than its parent: it
// expires with it, and has the same clients and the same rate.
func TestATokenBegetsOnlyWhatItCouldDo(t *testing.T) {
	n := start(t, 2)
	n.waitReady(t)
	parent := n.mint(t, n.localClient(t), client.MintRequest{Scopes: []string{"admin"}, TTL: time.Minute, Clients: []string{"127.0.0.0/8"}, Rate: "1000/1s"})
	child := n.mint(t, n.tokenClient(t, parent), client.MintRequest{Scopes: []string{"admin"}, TTL: 24 * time.Hour})
	summary, err := capability.Inspect(child)
	if err != nil {
		t.Fatal(err)
	}
	if summary.Expires.After(time.Now().Add(time.Minute)) {
		t.Errorf("it is good until %s, and its parent for a minute", summary.Expires)
	}
	abroad := capability.Request{Scope: capability.Admin, Path: "/admin/token", ClientIP: netip.MustParseAddr("192.0.2.1")}
	if err := n.authority.Verify(child, abroad); fault.KindOf(err) != fault.Forbidden {
		t.Errorf("it is good for callers for whom its parent is not: %v", err)
	}
	if all := strings.Join(summary.Caveats, "; "); !strings.Contains(all, "rate 1000/1s") {
		t.Errorf("it has no rate: %s", all)
	}
	n.stopAndWait(t)
}

// A revoked token is rejected at once, also after a restart on the same folder;
// and the list can be read.
func TestARevocationOutlivesARestart(t *testing.T) {
	folder := t.TempDir()
	run := func() *runningNode {
		n := startWith(t, func(o *Options) { o.Persist = folder })
		n.waitReady(t)
		return n
	}
	n := run()
	parent := n.mint(t, n.localClient(t), client.MintRequest{Scopes: []string{"admin"}, TTL: time.Hour})
	child := n.mint(t, n.tokenClient(t, parent), client.MintRequest{Scopes: []string{"object:put"}, TTL: time.Hour})
	other := n.mint(t, n.localClient(t), client.MintRequest{Scopes: []string{"object:put"}, TTL: time.Hour})
	put := func(token string) error {
		_, err := n.tokenClient(t, token).Put(t.Context(), strings.NewReader("hello"), client.PutOptions{})
		return err
	}
	if err := put(child); err != nil {
		t.Fatal(err)
	}
	done, err := n.localClient(t).RevokeToken(t.Context(), client.RevokeRequest{Token: parent})
	if err != nil || !done.Kept {
		t.Fatal(done, err)
	}
	for range 2 {
		if err := put(child); fault.KindOf(err) != fault.Unauthorized {
			t.Errorf("what was made of a revoked token: %v", err)
		}
		if err := put(other); err != nil {
			t.Error(err)
		}
		if list, err := n.localClient(t).RevokedTokens(t.Context()); err != nil || len(list) != 1 || list[0] != done {
			t.Errorf("%+v, %v", list, err)
		}
		n.stopAndWait(t)
		n = run()
	}
	n.stopAndWait(t)

	mustWrite(t, folder+"/"+revocationsFile, "{")
	options := testOptions(t)
	options.Persist = folder
	damaged, err := New(t.Context(), options)
	if err == nil {
		t.Fatal(damaged.Close())
	}
	wantRefusal(t, err, fault.Malformed, revocationsFile)
}

// A list of revocations that has disappeared keeps the node from starting:
// revoked tokens would be valid again without anybody having decided that. The
// operator decides: another list, an empty one, or no tokens at all.
func TestALostListOfRevocationsNeedsADecision(t *testing.T) {
	folder := t.TempDir()
	run := func() *runningNode {
		n := startWith(t, func(o *Options) { o.Persist = folder })
		n.waitReady(t)
		return n
	}
	refused := func() {
		t.Helper()
		options := testOptions(t)
		options.Persist = folder
		n, err := New(t.Context(), options)
		if err == nil {
			t.Fatal("it starts: ", n.Close())
		}
		wantRefusal(t, err, fault.Conflict, revocationsFile+" is missing")
		if next := fault.NextOf(err); !strings.Contains(next, "backup") || !strings.Contains(next, `{"revoked":[]}`) {
			t.Errorf("the next step is %q", next)
		}
	}
	n := run() // nothing was ever revoked
	token := n.mint(t, n.localClient(t), client.MintRequest{Scopes: []string{"object:put"}, TTL: time.Hour})
	n.stopAndWait(t)
	list := filepath.Join(folder, revocationsFile)
	for _, revoke := range []bool{false, true} {
		if revoke {
			n := run()
			if _, err := n.localClient(t).RevokeToken(t.Context(), client.RevokeRequest{Token: token}); err != nil {
				t.Fatal(err)
			}
			n.stopAndWait(t)
		}
		if err := os.Remove(list); err != nil {
			t.Fatal(err)
		}
		refused()
		refused() // refusing is no decision
		mustWrite(t, list, `{"revoked":[]}`)
		run().stopAndWait(t)
	}
	for _, name := range []string{revocationsFile, rootFile} {
		if err := os.Remove(filepath.Join(folder, name)); err != nil {
			t.Fatal(err)
		}
	}
	run().stopAndWait(t) // all tokens are void now
}

// Revoking needs the scope admin, and a token or ID.
func TestRevokingTakesACapability(t *testing.T) {
	n := start(t, 2)
	n.waitReady(t)
	token := n.mint(t, n.localClient(t), client.MintRequest{Scopes: []string{"object:put"}, TTL: time.Hour})
	if _, err := n.tokenClient(t, token).RevokeToken(t.Context(), client.RevokeRequest{Token: token}); fault.KindOf(err) != fault.Forbidden {
		t.Error(err)
	}
	for _, which := range []client.RevokeRequest{{}, {ID: "x"}, {Token: "x"}, {ID: "00112233445566778899aabbccddeeff", Token: token}} {
		if _, err := n.localClient(t).RevokeToken(t.Context(), which); fault.KindOf(err) != fault.Malformed || fault.NextOf(err) == "" {
			t.Errorf("%+v: %v", which, err)
		}
	}
	n.stopAndWait(t)
}

// What one process of a node revokes, the others learn, whichever it is, and
// save, if they have a folder.
func TestPartsShareWhatIsRevoked(t *testing.T) {
	k := newSplitNode(t, map[string][]string{"gateway": {"gateway", "store", "edge", "overlay", "registry"}, "index": {"index"}, "mailbox": {"mailbox"}})
	k.persist = map[string]string{"mailbox": t.TempDir()}
	all := map[string]*runningNode{}
	for group := range k.groups {
		all[group] = k.start(group)
	}
	for _, one := range all {
		one.waitReady(t)
	}
	for _, where := range []string{"gateway", "mailbox"} { // no part calls the mailbox: the gateway spreads its revocations
		token := all["index"].mint(t, all["index"].localClient(t), client.MintRequest{Scopes: []string{"admin"}, TTL: time.Hour})
		if _, err := all[where].localClient(t).RevokeToken(t.Context(), client.RevokeRequest{Token: token}); err != nil {
			t.Fatal(err)
		}
		for group, one := range all {
			testkit.WaitFor(t, group+" has heard what "+where+" revoked", func() bool {
				return one.authority.Check(token, capability.Request{Scope: capability.Admin}) != nil
			})
		}
	}
	for _, one := range all {
		one.stopAndWait(t)
	}
	again := k.start("mailbox")
	if list := again.authority.Revoked(); len(list) != 2 {
		t.Errorf("%+v", list)
	}
	again.stopAndWait(t)
}
