package edge

import (
	"errors"
	"os"
	"runtime"
	"strings"
	"time"

	"micronode/b3"
	"micronode/internal/config"
	"micronode/internal/edge/fill"
	"micronode/internal/store"
)

// Config is the section [edge] of the configuration.
type Config struct {
	Allow  []string `toml:"allow" doc:"Origins that the edge may fetch from by HTTPS: host, host:port, or *.domain for every host below it."`
	Packs  []string `toml:"packs" doc:"Map packs: PMTiles and MBTiles files, or folders of them, which are watched."`
	Expect []string `toml:"expect" doc:"The expected addresses of packs, as FILENAME=b3:…. A pack with another address is not mounted." restart:"true"`
	Assets string   `toml:"assets" doc:"A folder whose files are served under /edge/assets/." restart:"true"`

	Sites []string `toml:"sites" pairs:"true" doc:"Hosts that show a folder as a site, each with an origin of its own: [edge.sites] \"docs.example.org\" = \"name:docs\"; in a list or a variable docs.example.org=name:docs."`

	AnonymousFetch bool `toml:"anonymous_fetch" doc:"Whether a request without a capability may make this node fetch a missing object (b3:…, or the object of a name). Stored objects are served to every client." restart:"true"`

	MultiRange bool            `toml:"multi_range" doc:"Answer requests for several ranges with all of them; otherwise with the whole." restart:"true"`
	MaxAge     config.Duration `toml:"max_age" doc:"The max-age of tiles and files for clients." restart:"true"`

	Workers        config.Auto[int] `toml:"workers" doc:"The number of workers that fetch from origins. One origin may use at most as many as remain free: half of them if it is the only one. Auto is four times the cores, at least four." restart:"true"`
	Queue          int              `toml:"queue" doc:"The number of objects that wait to be fetched. A full queue refuses with 429, those of the busiest origin first." restart:"true"`
	Reconcile      config.Duration  `toml:"reconcile" doc:"The interval at which packs are compared with the disk, in case a notification was lost." restart:"true"`
	DirectoryBytes config.Size      `toml:"directory_bytes" doc:"The memory for the directories of packs." restart:"true"`
	PreparedBytes  config.Size      `toml:"shelf_bytes" doc:"The memory for prepared answers of the warm lane." restart:"true"`

	Fill    fill.Config        `toml:"fill" doc:"Requests to origins."`
	Cache   fill.CacheConfig   `toml:"cache" doc:"The cache of answers of origins."`
	Breaker fill.BreakerConfig `toml:"breaker" doc:"The circuit breaker of each origin."`
}

// DefaultConfig is the configuration without any settings.
func DefaultConfig() Config {
	return Config{
		Allow: []string{}, Packs: []string{}, Expect: []string{}, Sites: []string{},
		AnonymousFetch: true,
		MaxAge:         5 * time.Minute,
		Workers:        config.Auto[int]{Auto: true},
		Queue:          512,
		Reconcile:      30 * time.Second,
		DirectoryBytes: 32 * config.MiB,
		PreparedBytes:  64 * config.MiB,
		Fill:           fill.DefaultConfig(),
		Cache:          fill.DefaultCacheConfig(),
		Breaker:        fill.DefaultBreakerConfig(),
	}
}

// Validate rejects settings that cannot work.
func (c Config) Validate() error {
	var problems []error
	if !c.Workers.Auto && c.Workers.Value < 1 {
		problems = append(problems, config.Invalid("workers", `Choose 1 or more, or "auto".`, "%d workers are below 1", c.Workers.Value))
	}
	if c.Queue < 1 || c.Queue > 1<<16 {
		problems = append(problems, config.Invalid("queue", "Choose something from 1 to 65536.", "%d places", c.Queue))
	}
	if c.Reconcile <= 0 {
		problems = append(problems, config.Invalid("reconcile", `Write a time such as "30s".`, "packs would never be compared with the disk"))
	}
	if c.MaxAge < 0 {
		problems = append(problems, config.Invalid("max_age", "Write 0s or more.", "%s is below zero", c.MaxAge))
	}
	if _, err := fill.ParseAllow(c.Allow); err != nil {
		problems = append(problems, config.Invalid("allow", "Write hosts, such as tiles.example.org, tiles.example.org:8443 or *.example.org.", "%v", err))
	}
	if _, err := c.expectations(); err != nil {
		problems = append(problems, err)
	}
	if _, err := parseSites(c.Sites); err != nil {
		problems = append(problems, err)
	}
	if info, err := os.Stat(c.Assets); c.Assets != "" && (err != nil || !info.IsDir()) {
		problems = append(problems, config.Invalid("assets", "Name an existing folder.", "%s is not a folder", c.Assets))
	}
	return errors.Join(problems...)
}

// expectations parses the expected addresses of packs, by file name.
func (c Config) expectations() (map[string]b3.Address, error) {
	expected := map[string]b3.Address{}
	for _, one := range c.Expect {
		file, text, _ := strings.Cut(one, "=")
		address, err := b3.Parse(text)
		if file == "" || err != nil {
			return nil, config.Invalid("expect", "Write FILENAME=b3: and 64 hex digits; `b3sum FILE` prints them.", "%q is not FILENAME=b3:HASH", one)
		}
		expected[file] = address
	}
	return expected, nil
}

func (c Config) workers() int { return c.Workers.Or(max(4, 4*runtime.GOMAXPROCS(0))) }

// RAMSpec is the spec of the cache's store on a node in amnesia.
func (c Config) RAMSpec() store.RAMSpec {
	budget := c.Cache.Budget(false)
	return store.RAMSpec{Budget: budget, MaxObject: min(budget, int64(c.Fill.MaxBytes)), Zero: true}
}

// DiskSpec is the spec of the cache's store on a node with a folder. Its
// contents can be fetched again, so writes do not wait for a sync to disk.
func (c Config) DiskSpec(folder string) store.DiskSpec {
	budget := c.Cache.Budget(true)
	return store.DiskSpec{Folder: folder, Budget: budget, MaxObject: min(budget, int64(c.Fill.MaxBytes))}
}
