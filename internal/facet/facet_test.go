package facet

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"micronode/fault"
	"micronode/internal/config"
	"micronode/internal/flow"
	"micronode/internal/observe"
)

// TestOff asks a node on which every facet is off.
func TestOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t)
		asked := 0
		for _, route := range r.Routes() {
			for _, method := range route.Methods {
				path := strings.NewReplacer("{user}", "ann", "{a}", "ann", "{b}", "bob", "{node}", "ann", "{b3}", "b3:"+strings.Repeat("0", 64)).Replace(route.Pattern)
				next := expectRefusal(t, r.request(method, path, ""), fault.NotFound)
				if want := "facets." + route.Service + ".enabled = true"; !strings.Contains(next, want) {
					t.Errorf("%s %s: the next step is %q, without %q", method, path, next, want)
				}
				if r.metric(route.Service, "rejected_total", "reason=disabled") == 0 {
					t.Errorf("%s %s is not counted", method, path)
				}
				asked++
			}
		}
		if asked < 5 {
			t.Errorf("%d routes were asked", asked)
		}
		for _, stat := range r.inventory.Read() {
			if stat.Service == feedName || stat.Service == graphName && stat.Name == "graph_expand" || stat.Service == searchName || stat.Service == mediaName {
				t.Errorf("a facet that is off has %s/%s", stat.Service, stat.Name)
			}
		}
		for _, one := range r.supervisor.Status() {
			if strings.HasPrefix(one.Name, "feed") || strings.HasPrefix(one.Name, "facet") {
				t.Errorf("a facet that is off runs %s", one.Name)
			}
		}
	})
}

// TestOn looks at how much of the facets' work runs at a time.
func TestOn(t *testing.T) {
	c := DefaultConfig()
	if c.Feed.fanout() != 2*c.Graph.expand() || c.Graph.expand() < 1 || c.Search.queries() != c.Feed.fanout() || c.Media.jobs() != c.Graph.expand() {
		t.Errorf("%d, %d, %d and %d at a time", c.Feed.fanout(), c.Graph.expand(), c.Search.queries(), c.Media.jobs())
	}
	r := build(t, enable("feed", "graph"))
	defer r.end()
	bounds := map[string]int{}
	for _, stat := range r.inventory.Read() {
		bounds[stat.Service+"/"+stat.Name] = stat.Cap
	}
	if bounds["feed/feed_fanout"] != 4 || r.graph.turns.Running() != c.Graph.expand() || bounds["graph/graph_expand"] != maxWaiting {
		t.Errorf("the bounds are %v, and %d walks run", bounds, r.graph.turns.Running())
	}
}

// TestAnOwnerIsMissing makes facets of nothing.
func TestAnOwnerIsMissing(t *testing.T) {
	for _, name := range []string{"feed", "graph", "search", "media"} {
		inv, metrics := flow.NewInventory(), observe.NewMetrics(observe.Build{})
		spec := Spec{Config: DefaultConfig(), Metrics: metrics, Readiness: observe.NewReadiness(inv, nil)}
		enable(name)(&spec)
		if _, err := New(inv, nil, testStages, spec); fault.KindOf(err) != fault.Internal || fault.NextOf(err) == "" {
			t.Errorf("%s without anybody who does the work: %v", name, err)
		}
	}
}

func TestConfig(t *testing.T) {
	if err := validateAll(DefaultConfig()); err != nil {
		t.Fatalf("the defaults are refused: %v", err)
	}
	for key, wrong := range map[string][]func(*Config){
		"feed.enabled": {func(c *Config) { c.Feed.Enabled = true }},
		"fanout":       {func(c *Config) { c.Feed.Fanout = config.Auto[int]{} }, func(c *Config) { c.Feed.Fanout = config.Auto[int]{Value: 1025} }},
		"max_bytes":    {func(c *Config) { c.Feed.MaxBytes = 0 }, func(c *Config) { c.Feed.MaxBytes = 16*config.KiB + 1 }},
		"half_life":    {func(c *Config) { c.Feed.HalfLife = 0 }, func(c *Config) { c.Feed.HalfLife = 9000 * time.Hour }},

		"expand":        {func(c *Config) { c.Graph.Expand = config.Auto[int]{} }},
		"max_edges":     {func(c *Config) { c.Graph.MaxEdges = 0 }, func(c *Config) { c.Graph.MaxEdges = 10_000_001 }},
		"max_follows":   {func(c *Config) { c.Graph.MaxFollows = 0 }, func(c *Config) { c.Graph.MaxFollows = 1_000_001 }},
		"max_neighbors": {func(c *Config) { c.Graph.MaxNeighbors = 0 }, func(c *Config) { c.Graph.MaxNeighbors = 3001 }},
		"walk_edges":    {func(c *Config) { c.Graph.WalkEdges = 0 }, func(c *Config) { c.Graph.WalkEdges = 10_000_001 }},

		"queries": {func(c *Config) { c.Search.Queries = config.Auto[int]{} }},
		"jobs":    {func(c *Config) { c.Media.Jobs = config.Auto[int]{} }},
	} {
		for _, change := range wrong {
			c := DefaultConfig()
			change(&c)
			problem, is := errors.AsType[*config.Problem](validateAll(c))
			if !is || problem.Key != key || problem.Next == "" {
				t.Errorf("%s: %v", key, problem)
			}
		}
	}
	good := DefaultConfig()
	good.Feed.Enabled, good.Graph.Enabled = true, true
	good.Feed.Fanout = config.Auto[int]{Value: 1024}
	if err := validateAll(good); err != nil {
		t.Error(err)
	}
	if spec := good.Graph.Spec("there"); spec.Path != "there" || spec.MaxEdges != 1_000_000 || spec.MaxFollows != 10_000 || spec.WalkEdges != 200_000 {
		t.Errorf("the graph is made as %+v", spec)
	}
}

// validateAll validates a configuration and all its sections, as reading a file does.
func validateAll(c Config) error {
	return errors.Join(c.Validate(), c.Feed.Validate(), c.Graph.Validate(), c.Search.Validate(), c.Media.Validate())
}

// TestRoutesAreWhole looks at what the server and the documents need.
func TestRoutesAreWhole(t *testing.T) {
	r := build(t, enable("feed", "graph"))
	defer r.end()
	for _, route := range r.Routes() {
		changes := route.Methods[0] != http.MethodGet && route.Methods[0] != http.MethodHead
		if route.Service == "" || route.Docs.Summary == "" || len(route.Docs.Responses) == 0 || changes != (route.Scope != "") {
			t.Errorf("%v %s lacks something: %+v", route.Methods, route.Pattern, route)
		}
	}
}
