package kad

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/routing"

	"micronode/fault"
	"micronode/internal/index/record"
	"micronode/internal/oap"
	"micronode/internal/testkit"
)

func TestAnObjectIsFoundWithWhereItsNodeListens(t *testing.T) {
	advertised := []string{"/ip4/127.0.0.1/tcp/9500/tls", "/dns/node.example/tcp/443/tls/http", "/ip4/127.0.0.1/tcp/8080/http", "no multiaddr"}
	a := open(t, 1)
	b := open(t, 2, withBootstrap(a), func(s *Spec) { s.Advertise = func() []string { return advertised } })
	c := open(t, 3, withBootstrap(a))
	testkit.WaitFor(t, "all know each other", func() bool { return a.Size() == 2 && b.Size() == 2 && c.Size() == 2 })
	testkit.Must(t, b.Provide(budget(t), objectNo(1)))
	check := func(how string, answer record.Answer, err error) {
		t.Helper()
		if err != nil || len(answer.Providers) != 1 {
			t.Fatalf("%s: %+v, %v", how, answer, err)
		}
		p := answer.Providers[0]
		if p.ID != peerNo(2).String() || p.Source != record.DHT || !slices.Equal(p.Overlay, []string{"127.0.0.1:9500"}) ||
			!slices.Contains(p.HTTP, "http://127.0.0.1:8080") || !slices.Contains(p.HTTP, "https://node.example:443") || len(p.HTTP) != 2 {
			t.Errorf("%s: %+v", how, p)
		}
		if len(p.Other) != 2 || !strings.HasPrefix(p.Other[0], "/ip4/127.0.0.1/tcp/") || !strings.HasPrefix(p.Other[1], "/p2p/12D3Koo") {
			t.Errorf("%s: the DHT's own address and its name are not there: %q", how, p.Other)
		}
	}
	answer, err := c.Walk(budget(t), asks(objectNo(1)))
	check("a walk", answer, err)
	heard := 0
	for _, target := range c.Closest(asks(objectNo(1)), 10) {
		if target.Source != record.DHT || !strings.HasPrefix(target.Key, "dht:12D3Koo") {
			t.Errorf("target %q of %q", target.Key, target.Source)
		}
		answer, err := target.Ask(budget(t), asks(objectNo(1)))
		testkit.Must(t, err)
		if len(answer.Providers) > 0 { // b itself knows, and a has the record
			check("a single peer", answer, err)
			heard++
		}
	}
	if heard == 0 {
		t.Error("no single peer knows the provider")
	}
	if s := c.Stats(); s.Walks != 1 || s.Found != 1 || s.Peers != 2 || s.Connections < 2 {
		t.Errorf("stats %+v", s)
	}
	// There is no acknowledgement, so b cannot know when a has the record.
	testkit.WaitFor(t, "a keeps the provider record", func() bool { return a.Stats().Providers == 1 })
}

func TestAddressesThatChangeAreToldAnew(t *testing.T) {
	var current = make(chan []string, 1)
	current <- []string{"/ip4/127.0.0.1/tcp/9500/tls"}
	now := func() []string { advertised := <-current; current <- advertised; return advertised }
	a, b := pair(t)
	c := open(t, 3, withBootstrap(a), func(s *Spec) { s.Advertise = now })
	testkit.WaitFor(t, "c knows both", func() bool { return c.Size() == 2 })
	<-current
	current <- []string{"/ip4/127.0.0.1/tcp/9999/tls"}
	testkit.Must(t, c.Provide(budget(t), objectNo(1)))
	testkit.WaitFor(t, "the new address is found", func() bool {
		answer, err := b.Walk(budget(t), asks(objectNo(1)))
		return err == nil && len(answer.Providers) == 1 && slices.Contains(answer.Providers[0].Overlay, "127.0.0.1:9999")
	})
}

func TestNobodyHasItIsAnAnswer(t *testing.T) {
	a, _ := pair(t)
	for _, q := range []record.Question{asks(objectNo(404)), asksName(9, "docs")} {
		answer, err := a.Walk(budget(t), q)
		if err != nil || len(answer.Providers) != 0 || answer.Name != nil {
			t.Errorf("%s: %+v, %v", q.Kind, answer, err)
		}
		answer, err = askClosest(t, a, q)
		if err != nil || len(answer.Providers) != 0 || answer.Name != nil {
			t.Errorf("one peer, %s: %+v, %v", q.Kind, answer, err)
		}
	}
	if s := a.Stats(); s.Empty != 2 || s.Answered == 0 || s.Hops[1] != 2 {
		t.Errorf("stats %+v", s)
	}
}

func TestANodeDoesNotFindItself(t *testing.T) {
	a, b := pair(t)
	testkit.Must(t, a.Provide(budget(t), objectNo(1)))
	testkit.WaitFor(t, "b keeps the record", func() bool { return b.Stats().Providers == 1 })
	answer, err := a.Walk(budget(t), asks(objectNo(1)))
	if err != nil || len(answer.Providers) != 0 {
		t.Errorf("a walk: %+v, %v", answer, err)
	}
	answer, err = askClosest(t, a, asks(objectNo(1)))
	if err != nil || len(answer.Providers) != 0 {
		t.Errorf("one peer: %+v, %v", answer, err)
	}
}

func TestWithoutPeersThereIsNoRoute(t *testing.T) {
	n := open(t, 1)
	if near := n.Closest(asks(objectNo(1)), 3); len(near) != 0 {
		t.Errorf("near: %v", near)
	}
	_, err := n.Walk(t.Context(), asks(objectNo(1)))
	outcomes := map[string]error{
		"walk": err, "provide": n.Provide(t.Context(), objectNo(1)), "publish": n.Publish(t.Context(), signed(1, "docs", 1, 1)),
	}
	for what, err := range outcomes {
		if fault.KindOf(err) != fault.NoRoute || !strings.Contains(fault.NextOf(err), "index.dht.bootstrap") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if n.Size() != 0 {
		t.Errorf("size %d", n.Size())
	}
}

func TestTimeThatIsOverIsTold(t *testing.T) {
	a, _ := pair(t)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	late, done := context.WithTimeout(t.Context(), 1)
	defer done()
	name := signed(1, "docs", 1, 1)
	for kind, ctx := range map[fault.Kind]context.Context{fault.Canceled: over, fault.Timeout: late} {
		_, walked := a.Walk(ctx, asks(objectNo(1)))
		_, named := a.Walk(ctx, asksName(2, "docs"))
		_, asked := a.Closest(asks(objectNo(1)), 1)[0].Ask(ctx, asks(objectNo(1)))
		for what, err := range map[string]error{
			"walk": walked, "name": named, "ask": asked, "provide": a.Provide(ctx, objectNo(1)), "publish": a.Publish(ctx, name),
		} {
			if fault.KindOf(err) != kind {
				t.Errorf("%s is %s: %v", what, fault.KindOf(err), err)
			}
		}
	}
	if s := a.Stats(); s.TimedOut != 4 {
		t.Errorf("stats %+v", s)
	}
}

func TestAPeerThatHasGoneIsNoRoute(t *testing.T) {
	a, b := pair(t)
	targets := a.Closest(asks(objectNo(1)), 1)
	testkit.Must(t, b.Close())
	testkit.WaitFor(t, "the connection is gone", func() bool { return a.Stats().Connections == 0 })
	_, err := targets[0].Ask(budget(t), asks(objectNo(1)))
	if fault.KindOf(err) != fault.NoRoute {
		t.Fatalf("asked: %v", err)
	}
}

// openUnreachablePeer is a network that knows one peer without an address. The
// library may notice that by itself, and remove the peer.
func openUnreachablePeer(t *testing.T) (*Network, peer.ID) {
	n := open(t, 1)
	id, err := peer.Decode(record.Libp2pID(publicNo(99)))
	testkit.Must(t, err)
	if added, err := n.dht.RoutingTable().TryAddPeer(id, true, false); !added || err != nil {
		t.Fatal(added, err)
	}
	return n, id
}

func TestAPeerThatCannotBeReachedIsForgotten(t *testing.T) {
	n, id := openUnreachablePeer(t)
	if _, err := n.ask(budget(t), id, asks(objectNo(1))); fault.KindOf(err) != fault.NoRoute {
		t.Errorf("asked: %v", err)
	}
	if n.Size() != 0 {
		t.Error("it is still in the routing table")
	}
}

func TestAWalkOnWhichNobodyAnswersIsNoRoute(t *testing.T) {
	for what, ask := range map[string]func(*Network) error{
		"walk":    func(n *Network) error { _, err := n.Walk(budget(t), asks(objectNo(1))); return err },
		"provide": func(n *Network) error { return n.Provide(budget(t), objectNo(1)) },
	} {
		n, _ := openUnreachablePeer(t)
		err := ask(n)
		if fault.KindOf(err) != fault.NoRoute || n.Size() != 0 {
			t.Errorf("%s: %v", what, err)
		}
		if s := n.Stats(); what == "walk" && s.Failed != 1 {
			t.Errorf("stats %+v", s)
		}
		_ = n.Close()
	}
}

func TestATrailCountsHops(t *testing.T) {
	near, middle, far := peer.ID("near"), peer.ID("middle"), peer.ID("far")
	trail := newWalkTrace()
	for _, event := range []routing.QueryEvent{
		{Type: routing.SendingQuery, ID: near},
		{Type: routing.PeerResponse, ID: near, Responses: []*peer.AddrInfo{{ID: middle}, {ID: near}}},
		{Type: routing.SendingQuery, ID: middle},
		{Type: routing.PeerResponse, ID: middle, Responses: []*peer.AddrInfo{{ID: far}, {ID: near}}},
		{Type: routing.SendingQuery, ID: far}, // it never answers
		{Type: routing.DialingPeer, ID: far},
	} {
		trail.onEvent(&event)
	}
	if trail.asked != 3 || trail.answered != 2 || trail.hops != 2 || trail.depth[far] != 3 || trail.depth[near] != 1 {
		t.Errorf("%+v", trail)
	}
}

func TestAPeerIsCalledAgainWithoutAWait(t *testing.T) {
	first := open(t, 1, onFreePort(t))
	addrs := first.Addrs()
	testkit.Must(t, first.Close())
	n := open(t, 2)
	var err error
	if n.bootstrap, err = parseBootstrap(addrs, n.ID()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if n.connectBootstrap(budget(t)) {
			t.Fatal("nobody is there")
		}
	}
	listen, _, _ := strings.Cut(addrs[0], "/p2p/")
	open(t, 1, func(s *Spec) { s.Listen = []string{listen} })
	for range 2 { // the second time there is a connection
		if !n.connectBootstrap(budget(t)) {
			t.Error("somebody is there, and the library still waits")
		}
	}
}

func TestAPeerToBeginWithMayComeLater(t *testing.T) {
	first := open(t, 1, onFreePort(t))
	addrs := first.Addrs()
	testkit.Must(t, first.Close())
	early := open(t, 2, func(s *Spec) { s.Bootstrap = addrs })
	missed := early.bootstrap[0]
	testkit.WaitFor(t, "it has called in vain", func() bool { return early.network.Backoff().Backoff(missed.ID, missed.Addrs[0]) })
	listen, _, _ := strings.Cut(addrs[0], "/p2p/")
	again := open(t, 1, func(s *Spec) { s.Listen = []string{listen} })
	testkit.WaitFor(t, "they have met", func() bool { return early.Size() == 1 && again.Size() == 1 })
	if err := errors.Join(early.Close(), early.Close()); err != nil {
		t.Error(err)
	}
	select {
	case <-early.searchDone:
	default:
		t.Error("Close did not wait for the search")
	}
}

func TestWhatCannotBeMeantIsRefused(t *testing.T) {
	own := record.Libp2pID(publicNo(1))
	other := record.Libp2pID(publicNo(2))
	many := slices.Repeat([]string{"/ip4/127.0.0.1/tcp/1/p2p/" + other}, 65)
	group := tasks(t)
	for name, c := range map[string]struct {
		spec Spec
		kind fault.Kind
		text string
	}{
		"no multiaddr":       {Spec{Bootstrap: []string{"127.0.0.1:9700"}}, fault.Malformed, "index.dht.bootstrap"},
		"no peer":            {Spec{Bootstrap: []string{"/ip4/127.0.0.1/tcp/9700"}}, fault.Malformed, "index.dht.bootstrap"},
		"no address":         {Spec{Bootstrap: []string{"/p2p/" + other}}, fault.Malformed, "index.dht.bootstrap"},
		"not an ID":          {Spec{Bootstrap: []string{"/ip4/127.0.0.1/tcp/9700/p2p/12D3KooX"}}, fault.Malformed, "index.dht.bootstrap"},
		"QUIC":               {Spec{Bootstrap: []string{"/ip4/127.0.0.1/udp/9700/quic-v1/p2p/" + other}}, fault.Malformed, "plain TCP"},
		"too many":           {Spec{Bootstrap: many}, fault.Malformed, "65 peers"},
		"no port":            {Spec{Listen: []string{"127.0.0.1"}}, fault.Malformed, "not a valid listen address"},
		"a name":             {Spec{Listen: []string{"node.example:1"}}, fault.Malformed, "not a valid listen address"},
		"a port of letters":  {Spec{Listen: []string{"127.0.0.1:http"}}, fault.Malformed, "not a valid listen address"},
		"a bad multiaddr":    {Spec{Listen: []string{"/ip4/1/tcp/1"}}, fault.Malformed, "not a valid listen address"},
		"UDP":                {Spec{Listen: []string{"/ip4/127.0.0.1/udp/1"}}, fault.Malformed, "not a valid listen address"},
		"another's address":  {Spec{Listen: []string{"192.0.2.1:0"}}, fault.Malformed, "192.0.2.1"},
		"a short key":        {Spec{Key: ed25519.PrivateKey{1}}, fault.Internal, "1 bytes"},
		"a prefix":           {Spec{Prefix: "micronode"}, fault.Internal, "prefix"},
		"nothing to run it ": {Spec{Bootstrap: []string{"/ip4/127.0.0.1/tcp/1/p2p/" + other}, Tasks: nil}, fault.Internal, "nothing to run"},
	} {
		if c.spec.Key == nil {
			c.spec.Key = keyNo(1)
		}
		if c.text != "nothing to run" {
			c.spec.Tasks = group
		}
		n, err := Open(t.Context(), c.spec)
		if n != nil || fault.KindOf(err) != c.kind || !strings.Contains(fmt.Sprint(err, fault.NextOf(err)), c.text) {
			t.Errorf("%s: %s: %v", name, fault.KindOf(err), err)
		}
	}
	// All nodes of a network may have the same list.
	n := open(t, 1, func(s *Spec) { s.Bootstrap = []string{"/dns4/node.example/tcp/9700/p2p/" + own} })
	if len(n.bootstrap) != 0 {
		t.Error("it would call itself")
	}
}

func TestAPortThatIsTakenIsAConflict(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	defer taken.Close()
	_, err = Open(t.Context(), Spec{Key: keyNo(1), Listen: []string{taken.Addr().String()}})
	if fault.KindOf(err) != fault.Conflict || !strings.Contains(fault.NextOf(err), "index.dht.addr") {
		t.Errorf("%v; %s", err, fault.NextOf(err))
	}
}

func TestAllFormsOfListening(t *testing.T) {
	for text, want := range map[string]string{
		"localhost:7": "[/ip4/127.0.0.1/tcp/7]", "[::1]:7": "[/ip6/::1/tcp/7]", ":7": "[/ip4/0.0.0.0/tcp/7 /ip6/::/tcp/7]",
		"[::ffff:127.0.0.1]:7": "[/ip4/127.0.0.1/tcp/7]", "/ip4/127.0.0.1/tcp/0": "[/ip4/127.0.0.1/tcp/0]",
	} {
		if addrs, err := parseListen(text); err != nil || fmt.Sprint(addrs) != want {
			t.Errorf("%s: %v, %v", text, addrs, err)
		}
	}
}

// refusing rejects all tasks.
type refusing struct{}

func (refusing) Go(func(context.Context) error) error { return fault.Canceled }

func TestASearchThatIsRefusedClosesAll(t *testing.T) {
	_, err := Open(t.Context(), Spec{
		Key: keyNo(1), Listen: []string{"127.0.0.1:0"}, Tasks: refusing{},
		Bootstrap: []string{"/ip4/127.0.0.1/tcp/1/p2p/" + record.Libp2pID(publicNo(2))},
	})
	if !errors.Is(err, fault.Canceled) {
		t.Errorf("%v", err)
	}
}

func TestTheIDIsThatOfTheKey(t *testing.T) {
	n := open(t, 7)
	key, ok := record.KeyOfLibp2p(n.ID())
	if !ok || oap.PeerIDOf(key) != peerNo(7) {
		t.Errorf("the ID %s is not of the key", n.ID())
	}
	for _, addr := range n.Addrs() {
		if !strings.HasPrefix(addr, "/ip4/127.0.0.1/tcp/") || !strings.HasSuffix(addr, "/p2p/"+n.ID()) {
			t.Errorf("address %s", addr)
		}
	}
	if len(n.Addrs()) != 1 || n.Closest(asks(objectNo(1)), 0) != nil {
		t.Errorf("addresses %v", n.Addrs())
	}
}

func TestNetworksWithOtherPrefixesDoNotMeet(t *testing.T) {
	a := open(t, 1)
	b := open(t, 2, withBootstrap(a), func(s *Spec) { s.Prefix = "/elsewhere" })
	testkit.WaitFor(t, "they are connected", func() bool { return b.Stats().Connections == 1 })
	c := open(t, 3, withBootstrap(a))
	testkit.WaitFor(t, "a third has met the first", func() bool { return c.Size() == 1 && a.dht.RoutingTable().Find(c.selfID) != "" })
	if a.Size() != 1 || b.Size() != 0 {
		t.Errorf("a knows %d and b %d", a.Size(), b.Size())
	}
}

func TestNodesThatStopSearchWhenTold(t *testing.T) {
	group := tasks(t)
	n := open(t, 1, func(s *Spec) {
		s.Tasks = group
		s.Bootstrap = []string{"/ip4/127.0.0.1/tcp/1/p2p/" + record.Libp2pID(publicNo(2))}
	})
	group.Close()
	<-n.searchDone
}
