package gossip

import (
	"errors"
	"runtime"
	"slices"
	"testing"

	"micronode/internal/config"
	"micronode/internal/oap"
	"micronode/internal/testkit"
)

func TestDefaults(t *testing.T) {
	c := DefaultConfig()
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
	testkit.Equal(t, "workers", c.WorkerCount(), runtime.GOMAXPROCS(0))
	c.Workers = config.Auto[int]{Value: 7}
	testkit.Equal(t, "workers", c.WorkerCount(), 7)
	loaded, err := config.Load(struct {
		Gossip Config `toml:"gossip" doc:"Gossip."`
	}{DefaultConfig()}, config.Sources{Environ: []string{"MICRO_GOSSIP__UNSIGNED=a,b/c", "MICRO_GOSSIP__RELAY_FANOUT=5"}})
	testkit.Must(t, err)
	if got := loaded.Value.Gossip; got.RelayFanout != 5 || !slices.Equal(got.Unsigned, []string{"a", "b/c"}) {
		t.Errorf("loaded %+v", got)
	}
}

func TestWhatCannotBeMeant(t *testing.T) {
	for key, change := range map[string]func(*Config){
		"relay_fanout":        func(c *Config) { c.RelayFanout = 0 },
		"burst_budget_frames": func(c *Config) { c.Burst = 0 },
		"hops":                func(c *Config) { c.Hops = 65 },
		"ttl":                 func(c *Config) { c.TTL = 1 },
		"seen":                func(c *Config) { c.Seen = 0 },
		"workers":             func(c *Config) { c.Workers = config.Auto[int]{} },
		"unsigned":            func(c *Config) { c.Unsigned = []string{"a//b"} },
		"max_frame_bytes":     func(c *Config) { c.MaxFrameBytes = oap.MaxPayload + 1 },
		"chunk_bytes":         func(c *Config) { c.ChunkBytes = 0 },
	} {
		c := DefaultConfig()
		change(&c)
		problem, ok := errors.AsType[*config.Problem](c.Validate())
		if !ok || problem.Key != key || problem.Next == "" {
			t.Errorf("%s: %+v", key, problem)
		}
	}
}

func TestCountersMayBeNil(t *testing.T) {
	c := Counters{}.withDefaults()
	c.Taken(1)
	c.Rejected(oap.Expired)
	c.Dropped(DropSeen, 1)
	c.Pruned()
	reasons := DropReasons()
	slices.Sort(reasons)
	testkit.Equal(t, "different reasons", len(slices.Compact(reasons)), 10)
}
