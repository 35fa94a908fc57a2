package index

import (
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
)

// Whatever targets say, what is kept of it is bounded, and what strangers must
// not make us call is left out.
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
			loud = append(loud, target(fmt.Sprint(i), knowing(0, part...)))
		}
		r := open(t, over(newNetwork(loud...)), with(func(c *Config) { c.DHT.Alpha, c.DHT.Quorum = 5, 32 }))
		got, err := r.Resolve(t.Context(), byAddress(address("x")), Options{})
		must(t, err)
		equal(t, "providers", len(got.Providers), mostProviders)
		for i := range loud {
			part := make([]record.Provider, 1000)
			for j := range part {
				part[j].ID = fmt.Sprint("useless", i, "-", j)
			}
			r.spec.Engine.(*network).near[i] = target(fmt.Sprint(i), knowing(0, part...))
		}
		useless, err := r.Resolve(t.Context(), byAddress(address("y")), Options{})
		must(t, err)
		equal(t, "useless providers", len(useless.Providers), mostProviders)
		one := got.Providers[0].Provider
		if len(one.Overlay) > mostAddresses || len(one.Other) > mostAddresses || one.Region != "" || one.Seen.After(time.Now()) || one.Source != record.DHT {
			t.Errorf("kept: %+v", one)
		}
		if r.cache.Bytes() > 1<<20 {
			t.Errorf("the cache takes %d bytes", r.cache.Bytes())
		}
	})
}

// Garbage is no provider.
func TestGarbageIsLeftOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		good := where("bob")
		good.Overlay = append(good.Overlay, "no port", "host:", "host:0", "host:port", ":9500", strings.Repeat("a", 300)+":1", "169.254.169.254:80", "[fe80::1]:80", "0.0.0.0:1", "224.0.0.1:1", "ho st:1")
		good.HTTP = append(good.HTTP, "ftp://x", "http://", "://", "http://user@host", "http://host?q", "http://169.254.169.254", "http://host#f", "http://[fe80::1%25eth0]:80")
		good.Other = []string{"/ip4/1.2.3.4/udp/1/quic-v1", "with space", "bell\a"}
		good.Region = "two words"
		r := open(t, over(newNetwork(target("a", knowing(0, record.Provider{}, record.Provider{ID: "bell\a"}, record.Provider{ID: strings.Repeat("x", 200)}, where("self"), good)))))
		got, err := r.Resolve(t.Context(), byAddress(address("x")), Options{})
		must(t, err)
		if len(got.Providers) != 1 {
			t.Fatalf("providers: %v", ids(got))
		}
		p := got.Providers[0].Provider
		if !slices.Equal(p.Overlay, []string{"127.0.0.1:9500"}) || !slices.Equal(p.HTTP, []string{"http://127.0.0.1:8080"}) || len(p.Other) != 1 || p.Region != "" {
			t.Errorf("kept: %+v", p)
		}
	})
}

// Where a node may be sent by strangers depends on where it is itself.
func TestPrivateAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := record.Provider{ID: "stranger", Overlay: []string{"127.0.0.1:1", "localhost:1", "10.1.2.3:1", "[fd00::1]:1", "100.64.0.1:1", "[::ffff:127.0.0.1]:1", "203.0.113.9:1", "example.org:1", "[2001:db8::1]:1"}}
		public := []string{"203.0.113.9:1", "example.org:1", "[2001:db8::1]:1"}
		private := append([]string{"10.1.2.3:1", "[fd00::1]:1", "100.64.0.1:1"}, public...)
		for _, one := range []struct {
			at    string
			allow config.Auto[bool]
			want  []string
		}{
			{"198.51.100.1:9500", config.Auto[bool]{Auto: true}, public},
			{"192.168.1.1:9500", config.Auto[bool]{Auto: true}, private},
			{"127.0.0.1:9500", config.Auto[bool]{Auto: true}, told.Overlay[:8]},
			{"localhost:9500", config.Auto[bool]{Auto: true}, told.Overlay[:8]},
			{"198.51.100.1:9500", config.Auto[bool]{Value: true}, told.Overlay[:8]},
			{"127.0.0.1:9500", config.Auto[bool]{Value: false}, public},
		} {
			r := open(t, over(newNetwork(target("a", knowing(0, told)))), with(func(c *Config) { c.AllowPrivate = one.allow }),
				at(func() record.Provider { return record.Provider{Overlay: []string{one.at}} }))
			got, err := r.Resolve(t.Context(), byAddress(address("x")), Options{})
			must(t, err)
			if !slices.Equal(got.Providers[0].Provider.Overlay, one.want) {
				t.Errorf("at %s, with %v: %q, want %q", one.at, one.allow, got.Providers[0].Provider.Overlay, one.want)
			}
			r.drained()
		}
	})
}

// A provider with nothing but addresses that may not be called is not enough.
func TestWhoCannotBeCalledIsNotEnough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, over(newNetwork(
			target("a", knowing(0, record.Provider{ID: "inside", Overlay: []string{"10.0.0.1:1"}})),
			target("b", knowing(50*time.Millisecond, record.Provider{ID: "outside", Overlay: []string{"203.0.113.9:1"}})))),
			at(func() record.Provider { return record.Provider{Overlay: []string{"198.51.100.1:1"}} }))
		got, err := r.Resolve(t.Context(), byAddress(address("x")), Options{})
		must(t, err)
		if !slices.Equal(ids(got), []string{"outside", "inside"}) {
			t.Errorf("providers: %v", ids(got))
		}
	})
}

// Of the records of a name only those count that its owner has signed, and an
// old one does not come back.
func TestRecordsThatLie(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		id := parsed(t, "docs@"+idOfNode("bob").String())
		good := signed("bob", "docs", address("new"), 9)
		forged := *good
		forged.Manifest = address("evil")
		future := record.SignName(keyOfNode("bob"), record.Name{Name: "docs", Manifest: address("x"), Seq: 1, Issued: time.Now().Add(time.Hour), Expires: time.Now().Add(2 * time.Hour)})
		past := record.SignName(keyOfNode("bob"), record.Name{Name: "docs", Manifest: address("x"), Seq: 99, Issued: time.Now().Add(-2 * time.Hour), Expires: time.Now().Add(-time.Hour)})
		for what, lie := range map[string]*record.Name{"forged": &forged, "of another": signed("eve", "docs", address("evil"), 99), "of another name": signed("bob", "other", address("evil"), 99), "from the future": &future} {
			r := open(t, over(newNetwork(target("liar", says(lie)), target("honest", func(ctx context.Context, q record.Question) (record.Answer, error) {
				if q.Kind == record.CID {
					return record.Answer{}, nil
				}
				return record.Answer{Name: good}, nil
			}))))
			got, err := r.Resolve(t.Context(), id, Options{})
			must(t, err)
			equal(t, what+": it stands for", got.Manifest, address("new"))
			synctest.Wait()
			if lies := r.log.of(Lied); len(lies) != 1 || lies[0].Key != "dht liar" {
				t.Errorf("%s: told %v", what, lies)
			}
			r.drained()
		}
		r := open(t, over(newNetwork(target("late", says(&past)))))
		_, err := r.Resolve(t.Context(), id, Options{})
		is(t, err, fault.NotFound)
		equal(t, "lies", len(r.log.of(Lied)), 0)
	})
}

// Who repeats an old record does not bring it back.
func TestAnOldRecordDoesNotComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		id := parsed(t, "docs@"+idOfNode("bob").String())
		network := newNetwork(target("a", says(signed("bob", "docs", address("new"), 9))))
		r := open(t, over(network))
		got, err := r.Resolve(t.Context(), id, Options{})
		must(t, err)
		equal(t, "it stands for", got.Manifest, address("new"))
		network.mu.Lock()
		network.near = []Target{target("a", says(signed("bob", "docs", address("old"), 8)))}
		network.mu.Unlock()
		time.Sleep(20 * time.Second)
		if got, err = r.Resolve(t.Context(), id, Options{}); err != nil || got.Manifest != address("new") || got.Source != record.DHT {
			t.Errorf("%+v, %v", got, err)
		}
	})
}
