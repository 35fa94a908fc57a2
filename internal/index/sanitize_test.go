package index

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"micronode/fault"
	"micronode/internal/config"
	"micronode/internal/index/record"
	"micronode/internal/testkit"
)

// Answers of targets are bounded, and addresses that untrusted peers must not
// make this node dial are left out.
func TestLiarsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		many := make([]string, 1000)
		for i := range many {
			many[i] = fmt.Sprintf("203.0.113.%d:%d", i%250, 1000+i)
		}
		crowd := make([]record.Provider, 10_000)
		for i := range crowd {
			crowd[i] = record.Provider{ID: fmt.Sprint("node", i), Overlay: many, Other: many, Region: strings.Repeat("x", 1000), Seen: time.Now().Add(time.Hour), Source: record.Local}
		}
		var loud []Target
		for i := range 5 {
			part := slices.Clone(crowd)
			for j := range part {
				part[j].ID = fmt.Sprint("crowd", i, "-", j)
			}
			loud = append(loud, target(fmt.Sprint(i), answersAfter(0, part...)))
		}
		r := open(t, withEngine(newFakeEngine(loud...)), withConfig(func(c *Config) { c.DHT.Alpha, c.DHT.Quorum = 5, 32 }))
		got, err := r.Resolve(t.Context(), byAddress(address("x")), Options{})
		testkit.Must(t, err)
		testkit.Equal(t, "providers", len(got.Providers), maxProviders)
		for i := range loud {
			part := make([]record.Provider, 1000)
			for j := range part {
				part[j].ID = fmt.Sprint("useless", i, "-", j)
			}
			r.spec.Engine.(*fakeEngine).near[i] = target(fmt.Sprint(i), answersAfter(0, part...))
		}
		useless, err := r.Resolve(t.Context(), byAddress(address("y")), Options{})
		testkit.Must(t, err)
		testkit.Equal(t, "useless providers", len(useless.Providers), maxProviders)
		one := got.Providers[0].Provider
		if len(one.Overlay) > maxAddresses || len(one.Other) > maxAddresses || one.Region != "" || one.Seen.After(time.Now()) || one.Source != record.DHT {
			t.Errorf("kept: %+v", one)
		}
		if r.cache.Bytes() > 1<<20 {
			t.Errorf("the cache takes %d bytes", r.cache.Bytes())
		}
	})
}

// Garbage is not accepted as a provider.
func TestGarbageIsLeftOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		good := providerOf("bob")
		good.Overlay = append(good.Overlay, "no port", "host:", "host:0", "host:port", ":9500", strings.Repeat("a", 300)+":1", "169.254.169.254:80", "[fe80::1]:80", "0.0.0.0:1", "224.0.0.1:1", "ho st:1")
		good.HTTP = append(good.HTTP, "ftp://x", "http://", "://", "http://user@host", "http://host?q", "http://169.254.169.254", "http://host#f", "http://[fe80::1%25eth0]:80")
		good.Other = []string{"/ip4/1.2.3.4/udp/1/quic-v1", "with space", "bell\a"}
		good.Region = "two words"
		r := open(t, withEngine(newFakeEngine(target("a", answersAfter(0, record.Provider{}, record.Provider{ID: "bell\a"}, record.Provider{ID: strings.Repeat("x", 200)}, providerOf("self"), good)))))
		got, err := r.Resolve(t.Context(), byAddress(address("x")), Options{})
		testkit.Must(t, err)
		if len(got.Providers) != 1 {
			t.Fatalf("providers: %v", providerIDs(got))
		}
		p := got.Providers[0].Provider
		if !slices.Equal(p.Overlay, []string{"127.0.0.1:9500"}) || !slices.Equal(p.HTTP, []string{"http://127.0.0.1:8080"}) || len(p.Other) != 1 || p.Region != "" {
			t.Errorf("kept: %+v", p)
		}
	})
}

// Which private addresses may be dialled depends on the addresses of the peers
// and routers, and not on the listen address.
func TestPrivateAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		claimed := record.Provider{ID: "stranger", Overlay: []string{"127.0.0.1:1", "localhost:1", "[::ffff:127.0.0.1]:1", "10.1.2.3:1", "[fd00::1]:1", "203.0.113.9:1", "example.org:1", "[2001:db8::1]:1",
			"169.254.169.254:1", "[fd00:ec2::254]:1", "100.100.100.200:1", "[64:ff9b::a9fe:a9fe]:1", "[2002:a9fe:a9fe::1]:1", "[::ffff:169.254.169.254]:1"}}
		loopback, private, public := claimed.Overlay[:3], claimed.Overlay[3:5], claimed.Overlay[5:8]
		auto := config.Auto[bool]{Auto: true}
		for _, one := range []struct {
			peers     []string
			delegated []string
			sessions  []string
			dht       DHT
			allow     config.Auto[bool]
			want      []string
		}{
			{allow: auto, want: public}, // it listens on loopback, which is no evidence
			{peers: []string{"127.0.0.1:9500"}, allow: auto, want: slices.Concat(loopback, public)},
			{peers: []string{"localhost:9500"}, allow: auto, want: slices.Concat(loopback, public)},
			{peers: []string{"192.168.1.1:9500"}, allow: auto, want: slices.Concat(private, public)},
			{peers: []string{"192.168.1.1:9500", "127.0.0.1:1"}, allow: auto, want: slices.Concat(loopback, private, public)},
			{peers: []string{"127.0.0.1:9500", "198.51.100.1:9500"}, allow: auto, want: public},
			{peers: []string{"127.0.0.1:9500", "example.org:9500"}, allow: auto, want: public},
			{delegated: []string{"http://127.0.0.1:1"}, allow: auto, want: slices.Concat(loopback, public)},
			{delegated: []string{"https://router.example"}, peers: []string{"127.0.0.1:9500"}, allow: auto, want: public},
			{sessions: []string{"127.0.0.1:9500"}, allow: auto, want: slices.Concat(loopback, public)},
			{sessions: []string{"172.17.0.1:9500"}, allow: auto, want: public}, // connections through a container's bridge look so
			{sessions: []string{"198.51.100.1:9500"}, peers: []string{"127.0.0.1:9500"}, allow: auto, want: public},
			{dht: DHT{Bootstrap: []string{"/ip4/10.0.0.1/tcp/1/p2p/x"}, Addr: "10.0.0.2:1"}, allow: auto, want: slices.Concat(private, public)},
			{dht: DHT{Bootstrap: []string{"/ip4/10.0.0.1/tcp/1/p2p/x"}, Addr: "0.0.0.0:1"}, allow: auto, want: public}, // it accepts peers from anywhere
			{dht: DHT{Bootstrap: []string{"/dns4/dht.example/tcp/1/p2p/x"}, Addr: "127.0.0.1:1"}, allow: auto, want: public},
			{peers: []string{"198.51.100.1:9500"}, allow: config.Auto[bool]{Value: true}, want: slices.Concat(loopback, private, public)},
			{peers: []string{"127.0.0.1:9500"}, allow: config.Auto[bool]{Value: false}, want: public},
		} {
			v := &fakeOverlay{}
			for i, addr := range one.sessions {
				v.join(fmt.Sprint("session", i), answersEmpty)
				v.peers[i].Addr = addr
			}
			r := open(t, withEngine(newFakeEngine(target("a", answersAfter(0, claimed)))), withPeers(v), withNamedPeers(one.peers...), withConfig(func(c *Config) {
				c.AllowPrivate, c.Delegated, c.DHT.Bootstrap = one.allow, one.delegated, one.dht.Bootstrap
				c.DHT.Addr = cmp.Or(one.dht.Addr, c.DHT.Addr)
			}))
			var kept []string // an answer has eight addresses at most
			for part := range slices.Chunk(claimed.Overlay, maxAddresses) {
				stranger := r.sanitizedTarget(Target{Ask: answersAfter(0, record.Provider{ID: "stranger", Overlay: part})})
				clean, err := stranger.Ask(t.Context(), record.Question{Kind: record.CID})
				testkit.Must(t, err)
				kept = append(kept, clean.Providers[0].Overlay...)
			}
			if !slices.Equal(kept, one.want) {
				t.Errorf("%+v: %q", one, kept)
			}
			r.stopAndReport()
		}
	})
}

// A provider with no address that may be dialled is not enough.
func TestWhoCannotBeCalledIsNotEnough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, withEngine(newFakeEngine(
			target("a", answersAfter(0, record.Provider{ID: "inside", Overlay: []string{"10.0.0.1:1"}})),
			target("b", answersAfter(50*time.Millisecond, record.Provider{ID: "outside", Overlay: []string{"203.0.113.9:1"}})))),
			withNamedPeers("198.51.100.1:1"))
		got, err := r.Resolve(t.Context(), byAddress(address("x")), Options{})
		testkit.Must(t, err)
		if !slices.Equal(providerIDs(got), []string{"outside", "inside"}) {
			t.Errorf("providers: %v", providerIDs(got))
		}
	})
}

// Only records of a name that its owner has signed are accepted, and never an
// old one.
func TestRecordsThatLie(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		id := mustParseID(t, "docs@"+idOfNode("bob").String())
		good := signed("bob", "docs", address("new"), 9)
		forged := *good
		forged.Manifest = address("evil")
		future := record.SignName(keyOfNode("bob"), record.Name{Name: "docs", Manifest: address("x"), Seq: 1, Issued: time.Now().Add(2 * record.MaxAhead), Expires: time.Now().Add(4 * time.Hour)})
		expired := record.SignName(keyOfNode("bob"), record.Name{Name: "docs", Manifest: address("x"), Seq: 99, Issued: time.Now().Add(-2 * time.Hour), Expires: time.Now().Add(-time.Hour)})
		for what, lie := range map[string]*record.Name{"forged": &forged, "of another": signed("eve", "docs", address("evil"), 99), "of another name": signed("bob", "other", address("evil"), 99), "from the future": &future} {
			r := open(t, withEngine(newFakeEngine(target("liar", answersName(lie)), target("honest", func(ctx context.Context, q record.Question) (record.Answer, error) {
				if q.Kind == record.CID {
					return record.Answer{}, nil
				}
				return record.Answer{Name: good}, nil
			}))))
			got, err := r.Resolve(t.Context(), id, Options{})
			testkit.Must(t, err)
			testkit.Equal(t, what+": it stands for", got.Manifest, address("new"))
			synctest.Wait()
			if lies := r.log.ofType(Lied); len(lies) != 1 || lies[0].Key != "dht liar" {
				t.Errorf("%s: the events are %v", what, lies)
			}
			r.stopAndReport()
		}
		r := open(t, withEngine(newFakeEngine(target("late", answersName(&expired)))))
		_, err := r.Resolve(t.Context(), id, Options{})
		testkit.WantKind(t, err, fault.NotFound)
		testkit.Equal(t, "lies", len(r.log.ofType(Lied)), 0)
	})
}

// A replayed old record is not accepted.
func TestAnOldRecordDoesNotComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		id := mustParseID(t, "docs@"+idOfNode("bob").String())
		network := newFakeEngine(target("a", answersName(signed("bob", "docs", address("new"), 9))))
		r := open(t, withEngine(network))
		got, err := r.Resolve(t.Context(), id, Options{})
		testkit.Must(t, err)
		testkit.Equal(t, "it stands for", got.Manifest, address("new"))
		network.mu.Lock()
		network.near = []Target{target("a", answersName(signed("bob", "docs", address("old"), 8)))}
		network.mu.Unlock()
		time.Sleep(20 * time.Second)
		if got, err = r.Resolve(t.Context(), id, Options{}); err != nil || got.Manifest != address("new") || got.Source != record.DHT {
			t.Errorf("%+v, %v", got, err)
		}
	})
}
