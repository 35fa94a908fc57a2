package overlay

import (
	"crypto/ed25519"
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	"micronode/client"
	"micronode/fault"
	"micronode/internal/oap"
	"micronode/internal/overlay/introduce"
	"micronode/internal/testkit"
)

// public is a node of a network that is not private.
func public(s *Spec) { s.Config.Exchange = DefaultConfig().Exchange }

// startStar starts a node and others that it has invited.
func startStar(t *testing.T, spokes int, changeHub, changeSpoke func(*Spec)) (hub *testNode, others []*testNode) {
	t.Helper()
	hub = startNode(t, changeHub)
	made := hub.invite(client.InvitationRequest{Local: true, Uses: spokes})
	for range spokes {
		one := startNode(t, changeSpoke)
		if _, err := one.sdk().Join(t.Context(), made.Invitation); err != nil {
			t.Fatal(err)
		}
		others = append(others, one)
	}
	return hub, others
}

// awaitIntroductions waits until all whom a node introduces to each other are
// connected.
func (n *testNode) awaitIntroductions(others []*testNode) {
	n.t.Helper()
	byID := map[oap.PeerID]*testNode{}
	for _, one := range others {
		byID[one.ID()] = one
	}
	testkit.WaitFor(n.t, "the peers of a node are introduced to each other", func() bool {
		plan := n.introductions.book.Tell(n.vouched, time.Now())
		connected := len(plan) == len(others)
		for id, nodes := range plan {
			for _, raw := range nodes {
				_, other, err := oap.OpenIntroduction(raw)
				connected = connected && err == nil && byID[id].sessions.Find(other) != nil
			}
		}
		return connected
	})
}

// When the only node that all others know dies, all messages arrive: the others
// have become acquainted.
func TestTheHubOfAStarDies(t *testing.T) {
	const spokes, each = 9, 10
	hub, others := startStar(t, spokes, public, public)
	hub.awaitIntroductions(others)
	for _, one := range others {
		if list := one.introductions.book.Introduced(); len(list) > introduce.MaxNeighbours {
			t.Errorf("%d were introduced to one", len(list))
		}
		for _, state := range one.Peers() {
			if state.ID != hub.ID() && state.IntroducedBy != hub.ID().String() {
				t.Errorf("%s is said to be introduced by %q", state.ID, state.IntroducedBy)
			}
		}
	}
	hub.stopNode()
	var collectors []*collector
	for _, one := range others {
		collectors = append(collectors, one.collect("after"))
	}
	for i := range each {
		for j, one := range others {
			one.mustPublish("after", fmt.Sprintf("%d from %d", i, j))
		}
	}
	for j, collected := range collectors {
		testkit.WaitFor(t, fmt.Sprintf("%d has all messages", j), func() bool {
			n, _ := collected.heard()
			return n == spokes*each
		})
		if _, twice := collected.heard(); len(twice) > 0 {
			t.Errorf("%d has these twice: %v", j, twice)
		}
	}
}

// In a private network nobody is introduced: neither where the one in the middle
// says so, nor to or by a member that says so for itself.
func TestPrivateNetworks(t *testing.T) {
	off := func(s *Spec) { s.Config.Exchange = false }
	hub, others := startStar(t, 3, off, public)
	testkit.WaitFor(t, "all have asked to be introduced", func() bool { return counterSum(t, hub, "overlay_introductions_total", "unasked") >= 3 })
	for _, one := range others {
		if len(one.Peers()) != 1 || len(hub.introductions.book.Tell(hub.vouched, time.Now())) != 0 {
			t.Errorf("%s knows %v", one.ID(), one.Peers())
		}
	}
	hub, others = startStar(t, 2, public, public)
	alone := startNode(t, off)
	made := hub.invite(client.InvitationRequest{Local: true})
	if _, err := alone.sdk().Join(t.Context(), made.Invitation); err != nil {
		t.Fatal(err)
	}
	hub.awaitIntroductions(others)
	others[0].waitSession(others[1])
	testkit.WaitFor(t, "it was told, and did not listen", func() bool { return counterSum(t, alone, "overlay_introductions_total", "unasked") > 0 })
	if len(alone.Peers()) != 1 || others[0].contacts.contains(alone.ID()) {
		t.Errorf("it knows %v", alone.Peers())
	}
}

// Where a registry lists the nodes, nobody is introduced, and who was before is a
// stranger again.
func TestARegistryEndsIntroductions(t *testing.T) {
	hub, others := startStar(t, 2, public, public)
	hub.awaitIntroductions(others)
	others[0].contacts.set("source 1", []Contact{{ID: oap.PeerID{9}}})
	others[0].expireIntroductions(time.Now())
	if others[0].contacts.contains(others[1].ID()) || others[0].introduces() {
		t.Error("it introduces, or knows whom it was introduced to")
	}
	testkit.WaitFor(t, "their session ends", func() bool { return others[0].sessions.Find(others[1].ID()) == nil })
	others[0].contacts.set("source 1", nil)
	others[0].expireIntroductions(time.Now())
	if !others[0].contacts.contains(others[1].ID()) {
		t.Error("the list is empty, and the introduced node is unknown")
	}
}

// A peer that was removed is not introduced again, and a peer that was introduced
// introduces nobody.
func TestRemovingWhoWasIntroduced(t *testing.T) {
	hub, others := startStar(t, 2, public, public)
	hub.awaitIntroductions(others)
	a, b := others[0], others[1]
	if a.vouched(b.ID()) || !a.vouched(hub.ID()) {
		t.Error("who was introduced may introduce, or who was named may not")
	}
	if err := a.sdk().RemovePeer(t.Context(), b.ID().String()); err != nil {
		t.Fatal(err)
	}
	a.introductions.book.Hear(hub.ID(), hub.introductions.book.Tell(hub.vouched, time.Now())[a.ID()], policyOf("127.0.0.1:1"), time.Now())
	if a.updateIntroduced(); a.contacts.contains(b.ID()) {
		t.Error("it is introduced again")
	}
	if counterSum(t, a, "overlay_introductions_total", "refused") == 0 {
		t.Error("that is not counted")
	}
	if err := a.sdk().RemovePeer(t.Context(), oap.PeerID{1}.String()); fault.KindOf(err) != fault.NotFound {
		t.Errorf("one that nobody knows: %v", err)
	}
	addContact(t, a, b)
	a.waitSession(b)
}

// introductionBy is what a new node has signed for an introducer.
func introductionBy(t *testing.T, via oap.PeerID, addr string) []byte {
	t.Helper()
	key := newKey(t)
	i := oap.Introduction{Key: [32]byte(key.Public().(ed25519.PublicKey)), Via: via, Seq: 1, Until: uint64(time.Now().Add(introduce.Life).UnixMilli()), Addrs: []string{addr}}
	raw, err := i.Seal(key)
	testkit.Must(t, err)
	return raw
}

// A hostile introducer fills its own places and no more: what is forged or meant for
// others is counted, and a flood is not read.
func TestAHostileIntroducer(t *testing.T) {
	n := startNode(t, public)
	hostile := newRawPeer(t)
	if _, err := n.AddPeer(Contact{ID: hostile.id}); err != nil {
		t.Fatal(err)
	}
	conn := hostile.dial(n.Addr().String())
	send := func(nodes ...[]byte) {
		t.Helper()
		frame, err := oap.Codec{Max: oap.MaxPayload}.AppendMessage(nil, oap.Event, 1, &oap.Introduce{Nodes: nodes})
		testkit.Must(t, err)
		if _, err := conn.Write(frame); err != nil {
			t.Fatal(err)
		}
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	defer listener.Close()
	var many [][]byte
	for range 14 {
		many = append(many, introductionBy(t, hostile.id, listener.Addr().String()))
	}
	send(append(many, make([]byte, 300), introductionBy(t, oap.PeerID{3}, listener.Addr().String()))...)
	for range 200 {
		send()
	}
	count := func(outcome introduce.Outcome) float64 {
		return counterSum(t, n, "overlay_introductions_total", string(outcome))
	}
	testkit.WaitFor(t, "the flood is over", func() bool { return count(introduce.Flooded) >= 200-2*introduceBurst })
	if count(introduce.Taken) != introduce.MaxNeighbours || count(introduce.Full) != 14-introduce.MaxNeighbours || count(introduce.Forged) != 1 || count(introduce.Foreign) != 1 {
		t.Errorf("taken %v, full %v, forged %v, foreign %v", count(introduce.Taken), count(introduce.Full), count(introduce.Forged), count(introduce.Foreign))
	}
	if len(n.introductions.book.Introduced()) != introduce.MaxNeighbours {
		t.Errorf("%d were introduced", len(n.introductions.book.Introduced()))
	}
}

// Who was introduced, and who was removed, is known after a restart.
func TestIntroductionsAreKept(t *testing.T) {
	hub, others := startStar(t, 2, public, public)
	hub.awaitIntroductions(others)
	a := others[0]
	a.introductions.book.Forget(oap.PeerID{5})
	kept, err := a.keptText()
	testkit.Must(t, err)
	again := startNode(t, func(s *Spec) { s.Kept, s.Config.Exchange = kept, true })
	if !again.contacts.contains(others[1].ID()) || !slices.Contains(again.introductions.book.Refused(), oap.PeerID{5}) {
		t.Error("what was kept is lost")
	}
	private := startNode(t, func(s *Spec) { s.Kept, s.Config.Exchange = kept, false })
	if private.contacts.contains(others[1].ID()) {
		t.Error("the network is private now, and a friend of a friend is known")
	}
}

// Who joins a node on another machine can be reached by the other peers of that one,
// for as long as it knows it; but not in a private network.
func TestTheDefaultListenerOpensForFriendsOfFriends(t *testing.T) {
	at := freeAddr(t)
	hub := startNode(t, func(s *Spec) {
		s.Config.Addr, s.Config.Exchange = at, true
		s.Addrs = func() []string { return []string{at, "192.0.2.1:9500"} }
	})
	made := hub.invite(client.InvitationRequest{Uses: 2})
	for exchange, opens := range map[bool]bool{true: true, false: false} {
		n := startNode(t, func(s *Spec) { s.Config.Addr, s.AnyPort, s.Config.Exchange = freeAddr(t), true, exchange })
		joined, err := n.sdk().Join(t.Context(), made.Invitation)
		if err != nil || n.onLoopback() == opens || (joined.Reach != "") != opens {
			t.Errorf("exchange %t: it listens on %s; %+v, %v", exchange, n.Addr(), joined, err)
		}
		testkit.Must(t, n.sdk().RemovePeer(t.Context(), hub.ID().String()))
		testkit.WaitFor(t, "it is on loopback", n.onLoopback)
	}
}

// Addresses on the word of a peer are as far away as the peer.
func TestPolicyOfAPeer(t *testing.T) {
	for addr, want := range map[string][2]bool{
		"127.0.0.1:1": {true, true}, "[::1]:1": {true, true}, "192.168.1.1:1": {false, true}, "[::ffff:10.0.0.1]:1": {false, true},
		"93.184.215.14:1": {}, "nonsense": {},
	} {
		if got := policyOf(addr); got.Loopback != want[0] || got.Private != want[1] || got.Any {
			t.Errorf("%s: %+v", addr, got)
		}
	}
}
