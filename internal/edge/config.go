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
	Allow  []string `toml:"allow" doc:"Origins that may be fetched from, by HTTPS: host, host:port, or *.domain for every host below it."`
	Packs  []string `toml:"packs" doc:"Map packs: PMTiles and MBTiles files, or folders of them, which are watched."`
	Expect []string `toml:"expect" doc:"What packs must be, as FILENAME=b3:…. A pack that is something else is not mounted." restart:"true"`
	Assets string   `toml:"assets" doc:"A folder whose files are served under /edge/assets/." restart:"true"`

	MultiRange bool            `toml:"multi_range" doc:"Answer requests for several ranges at once." restart:"true"`
	MaxAge     config.Duration `toml:"max_age" doc:"How long clients may keep tiles and files before they ask again." restart:"true"`

	Workers        config.Auto[int] `toml:"workers" doc:"How many workers fetch from origins. Auto is four times the cores, four at least." restart:"true"`
	Reconcile      config.Duration  `toml:"reconcile" doc:"How often packs are compared with the disk, in case a change was not noticed." restart:"true"`
	DirectoryBytes config.Size      `toml:"directory_bytes" doc:"How much memory the directories of packs may take." restart:"true"`
	ShelfBytes     config.Size      `toml:"shelf_bytes" doc:"How much memory answers may take that are kept ready for the warm lane." restart:"true"`

	Fill  fill.Config      `toml:"fill" doc:"How origins are asked."`
	Cache fill.CacheConfig `toml:"cache" doc:"What is kept of their answers."`
}

// DefaultConfig is what holds where nobody says otherwise.
func DefaultConfig() Config {
	return Config{
		Allow: []string{}, Packs: []string{}, Expect: []string{},
		MaxAge:         5 * time.Minute,
		Workers:        config.Auto[int]{Auto: true},
		Reconcile:      30 * time.Second,
		DirectoryBytes: 32 * config.MiB,
		ShelfBytes:     64 * config.MiB,
		Fill:           fill.DefaultConfig(),
		Cache:          fill.DefaultCacheConfig(),
	}
}

// Validate refuses what cannot be meant.
func (c Config) Validate() error {
	var problems []error
	if !c.Workers.Auto && c.Workers.Value < 1 {
		problems = append(problems, config.Wrong("workers", `Choose 1 or more, or "auto".`, "%d workers fetch nothing", c.Workers.Value))
	}
	if c.Reconcile <= 0 {
		problems = append(problems, config.Wrong("reconcile", `Write a time such as "30s".`, "packs would never be compared with the disk"))
	}
	if c.MaxAge < 0 {
		problems = append(problems, config.Wrong("max_age", "Write 0s or more.", "%s is no age", c.MaxAge))
	}
	if _, err := fill.ParseAllow(c.Allow); err != nil {
		problems = append(problems, config.Wrong("allow", "Write hosts, such as tiles.example.org, tiles.example.org:8443 or *.example.org.", "%v", err))
	}
	if _, err := c.expectations(); err != nil {
		problems = append(problems, err)
	}
	if info, err := os.Stat(c.Assets); c.Assets != "" && (err != nil || !info.IsDir()) {
		problems = append(problems, config.Wrong("assets", "Name a folder that is there.", "%s is no folder", c.Assets))
	}
	return errors.Join(problems...)
}

// expectations reads what packs must be.
func (c Config) expectations() (map[string]b3.Address, error) {
	expected := map[string]b3.Address{}
	for _, one := range c.Expect {
		file, text, _ := strings.Cut(one, "=")
		address, err := b3.Parse(text)
		if file == "" || err != nil {
			return nil, config.Wrong("expect", "Write FILENAME=b3: and 64 hex digits; `b3sum FILE` prints them.", "%q says of no file what it must be", one)
		}
		expected[file] = address
	}
	return expected, nil
}

func (c Config) workers() int { return c.Workers.Or(max(4, 4*runtime.GOMAXPROCS(0))) }

// RAMSpec is the store of the cache of a node in amnesia.
func (c Config) RAMSpec() store.RAMSpec {
	budget := c.Cache.Budget(false)
	return store.RAMSpec{Service: service, Budget: budget, MaxObject: min(budget, int64(c.Fill.MaxBytes)), Zero: true}
}

// DiskSpec is the store of the cache of a node with a folder. What it holds can
// be had again, so it is not waited for until it is on the disk.
func (c Config) DiskSpec(folder string) store.DiskSpec {
	budget := c.Cache.Budget(true)
	return store.DiskSpec{Service: service, Folder: folder, Budget: budget, MaxObject: min(budget, int64(c.Fill.MaxBytes))}
}
