package index

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"micronode/fault"
	"micronode/internal/config"
	"micronode/internal/flow"
	"micronode/internal/observe"
	"micronode/internal/testkit"
)

// Dashboards rely on these names, and find a zero and not a gap.
func TestWhatIsPromisedIsCountedFromTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t)
		families, err := r.observed.Gatherer().Gather()
		testkit.Must(t, err)
		there := map[string]int{}
		for _, family := range families {
			for _, series := range family.GetMetric() {
				if hasLabels(series, []string{"service=index"}) {
					there[family.GetName()]++
				}
			}
		}
		for name, series := range map[string]int{
			"resolve_latency_seconds": 7, "index_dht_lookup_ms": 1, "resolve_deadline_hit_total": 1, "hedge_total": 4, "index_cache_hits_total": 1,
			"index_cache_misses_total": 1, "breaker_state": 3, "breaker_open_total": 1, "index_announcements_total": 2, "index_dht_peers": 1,
			"index_cache_entries": 1, "index_cache_bytes": 1,
		} {
			testkit.Equal(t, "series of "+name, there[name], series)
		}
		for _, queue := range []string{"work", "provide", "reindex"} {
			testkit.Equal(t, "depth of "+queue, r.count("queue_depth", "queue="+queue), 0)
		}
	})
}

// With tracing on, spans show where the time went.
func TestAResolveLeavesSpans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spans := tracetest.NewSpanRecorder()
		provider := sdk.NewTracerProvider(sdk.WithSpanProcessor(spans))
		network := newFakeEngine(target("a", answersAfter(0, providerOf("bob"))))
		r := open(t, withEngine(network), func(s *Spec) { s.Tracer = provider.Tracer("test") })
		testkit.Must(t, <-r.ask("x", 0))
		network.mu.Lock()
		network.near = []Target{target("b", alwaysFails)}
		network.walk = alwaysFails
		network.mu.Unlock()
		_, err := r.Resolve(t.Context(), byAddress(address("y")), Options{})
		testkit.WantKind(t, err, fault.UpstreamFailed)
		_, err = r.Providers(t.Context(), address("y"), ProviderOptions{})
		testkit.WantKind(t, err, fault.UpstreamFailed)
		synctest.Wait()
		seen := map[string]int{}
		parents := map[string]bool{}
		for _, span := range spans.Ended() {
			seen[span.Name()+" "+span.Status().Code.String()]++
			parents[span.Name()] = span.Parent().IsValid()
			if span.Status().Code == codes.Error && span.Status().Description != "UpstreamFailed" {
				t.Errorf("%s says %q", span.Name(), span.Status().Description)
			}
		}
		for what, want := range map[string]int{"index.resolve Unset": 1, "index.lookup Unset": 1, "index.resolve Error": 1, "index.lookup Error": 2, "index.providers Error": 1} {
			testkit.Equal(t, what, seen[what], want)
		}
		if !parents["index.lookup"] || parents["index.resolve"] {
			t.Errorf("parents: %v", parents)
		}
	})
}

// A slow audit reader loses events, and that is counted; publishing never waits
// for it.
func TestASlowRecordKeeperLosesEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := build(t)
		r.log.hold = make(chan struct{})
		r.run()
		defer r.stopAndReport()
		for i := range 5000 {
			r.audit(Event{Type: Reconfigured, Key: fmt.Sprint(i)})
		}
		synctest.Wait()
		close(r.log.hold)
		synctest.Wait()
		events := r.log.ofType(Reconfigured)
		if n := len(events); n < 1024 || n > 1025 || events[n-1].Key != "4999" {
			t.Errorf("%d events were logged", n)
		}
		lost := r.count("bus_lagged_total", "consumer=audit")
		testkit.Equal(t, "logged and lost", len(events)+int(lost), 5000)
	})
}

// Readiness reflects whether there are targets.
func TestReadinessKnowsTheRoutingTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newFakeEngine(target("a", alwaysFails))
		network.size.Store(0)
		r := open(t, withEngine(network), withConfig(func(c *Config) { c.Delegated = []string{"http://127.0.0.1:1"} }))
		reason := func(dep string) string {
			for _, one := range r.readiness.Evaluate().Reasons {
				if one.Dep == "index/"+dep {
					if one.Next == "" {
						t.Errorf("%s: no next step", dep)
					}
					return one.Reason
				}
			}
			return ""
		}
		time.Sleep(3 * time.Second)
		if verdict := r.readiness.Evaluate(); !strings.Contains(reason("dht"), "empty") || !verdict.Degraded || !verdict.Ready {
			t.Errorf("with an empty table: %+v", verdict)
		}
		network.size.Store(3)
		time.Sleep(3 * time.Second)
		testkit.Equal(t, "with peers", reason("dht"), "")
		for range 10 {
			if done, err := r.breakers.Allow(endpointKey("http://127.0.0.1:1")); err == nil {
				done(fault.UpstreamFailed)
			}
		}
		time.Sleep(3 * time.Second)
		if !strings.Contains(reason("delegated"), "all 1") {
			t.Errorf("with broken endpoints: %q", reason("delegated"))
		}
		time.Sleep(time.Minute)
		testkit.Equal(t, "after the cool-down", reason("delegated"), "")
		testkit.Equal(t, "peers", r.count("index_dht_peers"), 3)
	})
}

// The keys of the configuration are looked up at the start and after a reload.
func TestWarmUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		r := open(t, withEngine(newFakeEngine(target("a", countingAsk(&asked, answersAfter(time.Millisecond, providerOf("bob")))))), withConfig(func(c *Config) {
			c.Cache.WarmupKeys = []string{address("1").String(), address("2").String(), "docs"}
		}))
		time.Sleep(time.Second)
		testkit.Equal(t, "asked", asked.Load(), 2)
		testkit.Equal(t, "remembered", r.cache.Len(), 2)
		next := r.settings.Load().Config
		next.Cache.WarmupKeys = []string{address("3").String()}
		testkit.Must(t, r.Reconfigure(next))
		time.Sleep(time.Second)
		testkit.Equal(t, "asked after a reload", asked.Load(), 3)
	})
}

// A warm-up yields to waiting requests.
func TestWarmUpGivesWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newFakeEngine(target("a", neverAnswers))
		network.walk = neverAnswers
		r := open(t, withEngine(network))
		r.flood(0)
		next := r.settings.Load().Config
		next.Cache.WarmupKeys = []string{address("later").String(), "not an id at all:"}
		testkit.Must(t, r.Reconfigure(next))
		synctest.Wait()
		testkit.Equal(t, "in the queue", r.work.Len(workBand), maxWaiting)
		testkit.Equal(t, "refused", r.count("busy_rejections_total", "endpoint=work"), 1)
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		if err := r.warm(ctx, address("later").String()); err == nil {
			t.Error("a warm-up that is cancelled goes on")
		}
		time.Sleep(10 * time.Second)
	})
}

// Close closes the engine.
func TestCloseClosesTheEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newFakeEngine(target("a", neverAnswers))
		r := build(t, withEngine(network))
		result := r.ask("x", 0)
		synctest.Wait()
		testkit.Must(t, r.Close())
		testkit.WantKind(t, <-result, fault.Canceled)
		testkit.Equal(t, "closed", network.closed.Load(), 1)
		testkit.Must(t, r.ram.Close())
		time.Sleep(2 * time.Second) // the look-up has no waiters any more, and ends with its budget
	})
}

// What the rest of the node needs of the packages below index.
func TestTheDoorOfTheRooms(t *testing.T) {
	id, err := ParseID("docs@" + idOfNode("bob").String())
	if err != nil || id.Owner != idOfNode("bob") {
		t.Errorf("%v, %v", id, err)
	}
	if name, err := DecodeName(signed("bob", "docs", address("x"), 1).Encode()); err != nil || name.Manifest != address("x") {
		t.Errorf("%v, %v", name, err)
	}
}

// New returns an error for an invalid spec.
func TestNewRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := build(t)
		spec := r.spec
		spec.Config.Delegated = []string{"ftp://nowhere"}
		_, err := New(t.Context(), r.inventory, r.supervisor, testStages, spec)
		testkit.WantKind(t, err, fault.Malformed)
		testkit.Must(t, r.Close())
		next := r.settings.Load().Config
		next.Delegated = []string{"ftp://nowhere"}
		testkit.WantKind(t, r.Reconfigure(next), fault.Malformed)

		inv := flow.NewInventory()
		spec = r.spec
		spec.Metrics, spec.Readiness = observe.NewMetrics(observe.Build{}), observe.NewReadiness(inv, nil)
		_, err = New(t.Context(), inv, r.supervisor, Stages{State: "nowhere", Workers: "workers"}, spec)
		testkit.WantKind(t, err, fault.Malformed)
	})
}

// Invalid settings are rejected, with the key and what to write.
func TestConfigurationsThatCannotBeMeant(t *testing.T) {
	testkit.Must(t, DefaultConfig().Validate())
	for key, change := range map[string]func(*Config){
		"workers":          func(c *Config) { c.Workers = config.Auto[int]{Value: 0} },
		"region":           func(c *Config) { c.Region = "two words" },
		"provide_interval": func(c *Config) { c.ProvideInterval = time.Second },
		"delegated":        func(c *Config) { c.Delegated = []string{"http://example.org"} },
		"delegated ":       func(c *Config) { c.Delegated = slices.Repeat([]string{"https://example.org"}, 100) },
		"warmup_keys ":     func(c *Config) { c.Cache.WarmupKeys = slices.Repeat([]string{"docs"}, 20_000) },
		"addr":             func(c *Config) { c.DHT.Addr = "nowhere" },
		"alpha":            func(c *Config) { c.DHT.Alpha = 0 },
		"beta":             func(c *Config) { c.DHT.Beta = 33 },
		"deadline_ms":      func(c *Config) { c.DHT.DeadlineMS = 10_001 },
		"hedge_ms":         func(c *Config) { c.DHT.HedgeMS = config.Auto[int]{Value: 1200} },
		"quorum":           func(c *Config) { c.DHT.Quorum = 0 },
		"hedge_budget":     func(c *Config) { c.DHT.HedgeBudget = 1.5 },
		"ttl":              func(c *Config) { c.Cache.TTL = 0 },
		"negative_ttl":     func(c *Config) { c.Cache.NegativeTTL = 2 * time.Hour },
		"stale":            func(c *Config) { c.Cache.Stale = 48 * time.Hour },
		"warmup_keys":      func(c *Config) { c.Cache.WarmupKeys = []string{"b3:zz"} },
		"window":           func(c *Config) { c.Breaker.Window = 0 },
		"threshold":        func(c *Config) { c.Breaker.Threshold = 0 },
		"least":            func(c *Config) { c.Breaker.Least = 0 },
		"cooldown":         func(c *Config) { c.Breaker.Cooldown = 0 },
		"probes":           func(c *Config) { c.Breaker.Probes = 0 },
	} {
		c := DefaultConfig()
		change(&c)
		err := errors.Join(c.Validate(), c.DHT.Validate(), c.Cache.Validate(), c.Breaker.Validate())
		if wrong, ok := errors.AsType[*config.Problem](err); !ok || wrong.Key != strings.TrimSpace(key) || wrong.Next == "" {
			t.Errorf("%s: %v", key, err)
		}
	}
	for url, good := range map[string]bool{"https://routing.example.org": true, "http://127.0.0.1:8190": true, "http://localhost": true, "https://u@h": false, "https://h?q": false, "%": false, "x": false} {
		testkit.Equal(t, url, isEndpoint(url), good)
	}
	if on := (DHT{Enabled: config.Auto[bool]{Auto: true}, Bootstrap: []string{"x"}}).On(); !on || DefaultConfig().DHT.On() {
		t.Error("auto is not whether there are bootstrap peers")
	}
	loaded, err := config.Load(struct {
		Index Config `toml:"index" doc:"The index."`
	}{DefaultConfig()}, config.Sources{})
	testkit.Must(t, err)
	testkit.Equal(t, "loaded", loaded.Value.Index.DHT.DeadlineMS, 1200)
}
