package overlay

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"micronode/b3"
	"micronode/client"
	"micronode/fault"
	"micronode/internal/invitation"
	"micronode/internal/oap"
	"micronode/internal/overlay/session"
	"micronode/internal/store"
	"micronode/internal/testkit"
)

// invite makes an invitation over HTTP and checks that it is short.
func (n *testNode) invite(request client.InvitationRequest) client.Invitation {
	n.t.Helper()
	made, err := n.sdk().Invite(n.t.Context(), request)
	testkit.Must(n.t, err)
	if request.Object == nil && len(made.Invitation) > invitation.MaxText {
		n.t.Errorf("an invitation of %d characters: %s", len(made.Invitation), made.Invitation)
	}
	return made
}

// knows reports whether a node names another one as its peer.
func (n *testNode) knows(other *testNode) bool {
	return slices.ContainsFunc(n.Peers(), func(p session.PeerState) bool { return p.ID == other.ID() }) && n.contacts.contains(other.ID())
}

// One string makes two nodes known to each other, one node only, and says what is
// offered.
func TestAnInvitationMakesTwoNodesAcquainted(t *testing.T) {
	a, b, c := startNode(t, func(*Spec) {}), startNode(t, func(*Spec) {}), startNode(t, func(*Spec) {})
	made := a.invite(client.InvitationRequest{Name: "maps", Local: true})
	joined, err := b.sdk().Join(t.Context(), "micronode join "+made.Invitation)
	if err != nil || joined.ID != a.ID().String() || joined.Name != "maps" || !joined.PQ || joined.Kept || joined.Addr != a.Addr().String() {
		t.Fatalf("%+v, %v", joined, err)
	}
	b.waitSession(a)
	a.waitSession(b)
	if !a.knows(b) || !b.knows(a) {
		t.Error("they do not know each other")
	}
	if again, err := b.sdk().Join(t.Context(), made.Invitation); err != nil || again.ID != joined.ID {
		t.Errorf("typed twice: %+v, %v", again, err)
	}
	_, err = c.sdk().Join(t.Context(), made.Invitation)
	testkit.WantKind(t, err, fault.Unauthorized, "a second node")
	if !strings.Contains(fault.NextOf(err), "micronode invite") || c.knows(a) || len(c.Peers()) != 0 {
		t.Errorf("%v; it knows %+v", err, c.Peers())
	}
	list, err := a.sdk().Invitations(t.Context())
	if err != nil || len(list) != 1 || list[0].Invitation != "" || !slices.Equal(list[0].UsedBy, []string{b.ID().String()}) {
		t.Errorf("%+v, %v", list, err)
	}
	_, err = a.sdk().Join(t.Context(), made.Invitation)
	testkit.WantKind(t, err, fault.Malformed, "a node that joins itself")
	_, err = c.sdk().Join(t.Context(), made.Invitation[:40])
	testkit.WantKind(t, err, fault.Malformed, "half a string")
}

// Only the clock of the node that made it counts: an invitation lasts as long as
// it says, and is for as many as it says.
func TestInvitationsEnd(t *testing.T) {
	table, secret, noon := newInvitationTable(), invitation.NewSecret(), time.Unix(1e9, 0)
	testkit.Must(t, table.add(secret, openInvitation{Uses: 2, Expires: noon.Add(time.Hour)}, noon))
	for i, want := range []fault.Kind{0, 0, 0, fault.Unauthorized} {
		_, err := table.redeem(secret, oap.PeerID{byte(max(1, i))}, noon.Add(time.Hour-1)) // the first comes twice
		if fault.KindOf(err) != want && !(want == 0 && err == nil) {
			t.Errorf("use %d: %v", i, err)
		}
	}
	if _, err := table.redeem(secret, oap.PeerID{1}, noon.Add(time.Hour)); fault.KindOf(err) != fault.Unauthorized {
		t.Errorf("after its end: %v", err)
	}
	if err := table.check(secret, oap.PeerID{1}, noon); err == nil {
		t.Error("what has ended begins again when the clock is set back")
	}
	for range maxInvitations {
		testkit.Must(t, table.add(invitation.NewSecret(), openInvitation{Uses: 1, Expires: noon.Add(time.Hour)}, noon))
	}
	testkit.WantKind(t, table.add(secret, openInvitation{Uses: 1, Expires: noon.Add(time.Hour)}, noon), fault.QuotaExceeded, "one more than there is room for")
	testkit.Must(t, table.add(secret, openInvitation{Uses: 1, Expires: noon.Add(3 * time.Hour)}, noon.Add(2*time.Hour)))
	for _, request := range []client.InvitationRequest{{TTL: -1}, {TTL: 1 << 40}, {Uses: -1}, {Uses: 1001}, {Name: "a\x1b[2J"}, {Folder: true}} {
		_, _, err := inviteBounds(request, false)
		testkit.WantKind(t, err, fault.Malformed, fmt.Sprintf("%+v", request))
	}
}

// freeAddr is an address of loopback where nobody listens.
func freeAddr(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", ":0")
	testkit.Must(t, err)
	defer listener.Close()
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	return net.JoinHostPort("127.0.0.1", port)
}

func (n *testNode) onLoopback() bool { return loopback(n.Addr().String()) }

// A default node is on loopback. It is reachable from elsewhere when its operator
// invites somebody, and no longer when nobody can come by an invitation.
func TestTheDefaultListenerOpensForAnInvitation(t *testing.T) {
	var moved atomic.Int32
	a := startNode(t, func(s *Spec) {
		s.Config.Addr, s.AnyPort = freeAddr(t), true
		s.Moved = func() { moved.Add(1) }
	})
	b := startNode(t, func(*Spec) {})
	if a.invite(client.InvitationRequest{Local: true}); !a.onLoopback() {
		t.Fatal("an invitation for this machine has opened it")
	}
	made := a.invite(client.InvitationRequest{})
	if a.onLoopback() || !made.Opened || moved.Load() != 1 {
		t.Fatalf("%s, %+v, moved %d times", a.Addr(), made, moved.Load())
	}
	if second := a.invite(client.InvitationRequest{}); second.Opened {
		t.Error("it was opened twice")
	}
	if _, err := b.sdk().Join(t.Context(), made.Invitation); err != nil {
		t.Fatal(err)
	}
	list, err := a.sdk().Invitations(t.Context())
	testkit.Must(t, err)
	for _, one := range list {
		testkit.Must(t, a.sdk().Withdraw(t.Context(), one.ID))
	}
	testkit.Must(t, a.closeReach(t.Context()))
	if a.onLoopback() {
		t.Error("the peer that came by an invitation cannot come back")
	}
	testkit.Must(t, a.sdk().RemovePeer(t.Context(), b.ID().String()))
	testkit.WaitFor(t, "nobody is expected", a.onLoopback)
	testkit.WantKind(t, a.sdk().Withdraw(t.Context(), "nonsense"), fault.NotFound, "no such invitation")
}

// An address that the operator has chosen is not changed by an invitation.
func TestAChosenListenerStays(t *testing.T) {
	a := startNode(t, func(*Spec) {})
	if made := a.invite(client.InvitationRequest{}); made.Opened || !a.onLoopback() || !strings.Contains(made.Reach, "this machine only") {
		t.Errorf("%s, %+v", a.Addr(), made)
	}
	deaf := startNode(t, func(s *Spec) { s.Config.Addr = "" })
	_, err := deaf.Invite(t.Context(), client.InvitationRequest{})
	testkit.WantKind(t, err, fault.NotReady, "a node that does not listen")
}

// The listener moves while peers are connected, and they stay.
func TestSessionsOutliveAMove(t *testing.T) {
	a := startNode(t, func(s *Spec) { s.Config.Addr, s.AnyPort = freeAddr(t), true })
	b := startNode(t, func(*Spec) {})
	_, err := b.sdk().Join(t.Context(), a.invite(client.InvitationRequest{Local: true}).Invitation)
	testkit.Must(t, err)
	a.waitSession(b)
	before := a.sessions.Find(b.ID())
	a.invite(client.InvitationRequest{})
	if before == nil || a.sessions.Find(b.ID()) != before {
		t.Error("the session has ended")
	}
}

// Who knocks is seen, with where it knocked from, and may be accepted. The one
// that knocks is told what to type on the other side.
func TestAKnockIsSeenAndAccepted(t *testing.T) {
	a, b := startNode(t, func(*Spec) {}), startNode(t, func(*Spec) {})
	if _, err := b.sdk().AddPeer(t.Context(), a.contact().String()); err != nil {
		t.Fatal(err)
	}
	testkit.WaitFor(t, "the knock", func() bool { return len(a.Knocks()) == 1 })
	knocks, err := a.sdk().Knocks(t.Context())
	if err != nil || knocks[0].ID != b.ID().String() || !strings.HasPrefix(knocks[0].Addr, "127.0.0.1:") || knocks[0].Accept != "micronode peers accept "+b.ID().String() {
		t.Errorf("%+v, %v", knocks, err)
	}
	testkit.WaitFor(t, "what to type there", func() bool {
		peers, err := b.sdk().Peers(t.Context())
		return err == nil && len(peers) == 1 && strings.Contains(peers[0].Next, "micronode peers accept "+b.ID().String())
	})
	if _, err := a.sdk().AcceptKnock(t.Context(), b.ID().String()); err != nil {
		t.Fatal(err)
	}
	if len(a.Knocks()) != 0 {
		t.Error("it was accepted, and still knocks")
	}
	b.sessions.Redial(a.ID())
	a.waitSession(b)
	testkit.WantKind(t, a.sdk().ForgetKnock(t.Context(), b.ID().String()), fault.NotFound, "no knock")
	_, err = a.sdk().AcceptKnock(t.Context(), a.ID().String())
	testkit.WantKind(t, err, fault.Malformed, "itself")
}

// Strangers can draw as many IDs as they want: the list stays short, a host has
// its share of it, and the log is not filled.
func TestKnocksAreBounded(t *testing.T) {
	l, now, reports := newKnockList(), time.Unix(1e9, 0), 0
	knock := func(host, id int) {
		if l.add(session.Candidate{ID: oap.PeerID{byte(id), byte(id >> 8)}, Addr: fmt.Sprintf("10.0.%d.%d:%d", host>>8, host&255, id)}, now) {
			reports++
		}
	}
	knock(1, 60000)
	for id := range 5000 {
		knock(2, id)
	}
	if got := len(l.all(now)); got != 1+maxKnocksPerHost || reports != reportsPerMinute {
		t.Errorf("%d knocks, reported %d", got, reports)
	}
	for host := range 5000 {
		knock(host+3, host)
	}
	if got := len(l.all(now)); got != maxKnocks {
		t.Errorf("%d knocks", got)
	}
	now = now.Add(knockLife + 1)
	if got := len(l.all(now)); got != 0 {
		t.Errorf("an hour later there are %d", got)
	}
}

// What was agreed outlives a restart, on both sides, if the nodes keep anything.
func TestAcquaintancesAreKept(t *testing.T) {
	var keptA, keptB atomic.Pointer[[]byte]
	keep := func(to *atomic.Pointer[[]byte]) func(*Spec) {
		key := newKey(t)
		return func(s *Spec) {
			s.Key = key
			if text := to.Load(); text != nil {
				s.Kept = *text
			}
			s.Keep = func(_ context.Context, text []byte) error { to.Store(&text); return nil }
		}
	}
	withA, withB := keep(&keptA), keep(&keptB)
	addr := freeAddr(t)
	fixed := func(s *Spec) { withA(s); s.Config.Addr = addr }
	a, b := startNode(t, fixed), startNode(t, withB)
	joined, err := b.sdk().Join(t.Context(), a.invite(client.InvitationRequest{}).Invitation)
	if err != nil || !joined.Kept {
		t.Fatalf("%+v, %v", joined, err)
	}
	a.waitSession(b)
	testkit.WaitFor(t, "the one that invited keeps it, too", func() bool {
		var kept keptPeers
		return json.Unmarshal(*keptA.Load(), &kept) == nil && len(kept.Peers) == 1 && kept.Peers[0].ID == b.ID() && kept.Peers[0].Invited
	})
	a.stopNode()
	b.stopNode()
	a, b = startNode(t, fixed), startNode(t, withB)
	a.waitSession(b)
	testkit.Must(t, b.sdk().RemovePeer(t.Context(), a.ID().String()))
	var kept keptPeers
	if err := json.Unmarshal(*keptB.Load(), &kept); err != nil || len(kept.Peers) > 0 || !slices.Equal(kept.Removed, []oap.PeerID{a.ID()}) {
		t.Errorf("it was removed, and is kept: %s", *keptB.Load())
	}
	bad := startNode(t, func(*Spec) {})
	testkit.WantKind(t, bad.loadKept([]byte("{")), fault.Malformed, "a list that is damaged")
}

// A share lets others in for as long as it lasts, and leaves nothing behind.
func TestGuestsOfAShare(t *testing.T) {
	a, b := startNode(t, func(*Spec) {}), startNode(t, func(*Spec) {})
	put, _, err := a.store.Put(t.Context(), strings.NewReader("hello"), store.PutOptions{Size: store.Unknown})
	testkit.Must(t, err)
	made := a.invite(client.InvitationRequest{Name: "hello.txt", Object: &put.Address})
	joined, err := b.sdk().Join(t.Context(), made.Invitation)
	if err != nil || !joined.Share || joined.Object == nil || *joined.Object != put.Address || joined.Name != "hello.txt" {
		t.Fatalf("%+v, %v", joined, err)
	}
	if _, _, err := b.Fetch(t.Context(), b3.Of([]byte("hello")), nil); err != nil {
		t.Fatal(err)
	}
	if a.contacts.contains(b.ID()) {
		t.Error("a guest is a peer")
	}
	testkit.Must(t, a.sdk().Withdraw(t.Context(), made.ID))
	testkit.WaitFor(t, "the guest to leave", func() bool { return a.sessions.Find(b.ID()) == nil })
	testkit.WaitFor(t, "the guest to forget where it was", func() bool { return !b.contacts.contains(a.ID()) && b.contacts.token(a.ID()) == "" })
}

// A peer that was removed does not come back with the invitation that it has used.
func TestARemovedPeerStaysAway(t *testing.T) {
	table, secret, noon := newInvitationTable(), invitation.NewSecret(), time.Unix(1e9, 0)
	testkit.Must(t, table.add(secret, openInvitation{Uses: 3, Expires: noon.Add(time.Hour)}, noon))
	for _, id := range []oap.PeerID{{1}, {2}} {
		_, err := table.redeem(secret, id, noon)
		testkit.Must(t, err)
	}
	table.remove(oap.PeerID{1})
	_, err := table.redeem(secret, oap.PeerID{1}, noon)
	testkit.WantKind(t, err, fault.Unauthorized, "the one that was removed")
	testkit.WantKind(t, table.check(secret, oap.PeerID{1}, noon), fault.Unauthorized, "a guest that was removed")
	if _, err := table.redeem(secret, oap.PeerID{2}, noon); err != nil {
		t.Errorf("the other one: %v", err)
	}
	again := newInvitationTable()
	again.restore(table.all(noon))
	_, err = again.redeem(secret, oap.PeerID{1}, noon)
	testkit.WantKind(t, err, fault.Unauthorized, "after a restart")
}
