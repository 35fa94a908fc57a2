package facet

import (
	"errors"
	"runtime"
	"time"

	"micronode/internal/config"
	"micronode/internal/graph"
)

// Config is the section [facets] of the configuration.
type Config struct {
	Feed   FeedConfig   `toml:"feed" doc:"Posts to the followers of their author."`
	Graph  GraphConfig  `toml:"graph" doc:"The graph of followers."`
	Search SearchConfig `toml:"search" doc:"Full-text search."`
	Media  MediaConfig  `toml:"media" doc:"Objects with their media types, and thumbnails of pictures."`
}

// FeedConfig is [facets.feed].
type FeedConfig struct {
	Enabled  bool             `toml:"enabled" restart:"true" doc:"Whether this node has feeds. They need facets.graph, too."`
	Fanout   config.Auto[int] `toml:"fanout" restart:"true" default:"twice the cores" doc:"The number of posts delivered concurrently. Auto is two per core."`
	MaxBytes config.Size      `toml:"max_bytes" restart:"true" doc:"The maximum size of a post, at most 16KiB."`
	HalfLife config.Duration  `toml:"half_life" restart:"true" doc:"The time after which the score of a post halves."`
}

// GraphConfig is [facets.graph].
type GraphConfig struct {
	Enabled      bool             `toml:"enabled" restart:"true" doc:"Whether this node stores the graph of followers."`
	Expand       config.Auto[int] `toml:"expand" restart:"true" default:"cores" doc:"The number of concurrent walks of the graph. Auto is one per core."`
	MaxEdges     int              `toml:"max_edges" restart:"true" doc:"The maximum number of edges."`
	MaxFollows   int              `toml:"max_follows" restart:"true" doc:"The maximum number of nodes that one node may follow. The number of its followers has no limit."`
	MaxNeighbors int              `toml:"max_neighbors" restart:"true" doc:"The maximum number of neighbours of one request, at most 3000."`
	WalkEdges    int              `toml:"walk_edges" restart:"true" doc:"The maximum number of edges that one request may walk. Beyond it, the answer is marked as truncated."`
}

// SearchConfig is [facets.search].
type SearchConfig struct {
	Enabled  bool             `toml:"enabled" restart:"true" doc:"Whether this node has full-text search."`
	Queries  config.Auto[int] `toml:"queries" restart:"true" default:"twice the cores" doc:"The number of concurrent queries. Auto is two per core."`
	MaxBytes config.Size      `toml:"max_bytes" restart:"true" doc:"The maximum size of the catalogue, in memory or on disk with --persist. When it is full, new objects cannot be found."`
}

// MediaConfig is [facets.media].
type MediaConfig struct {
	Enabled    bool             `toml:"enabled" restart:"true" doc:"Whether this node serves objects as media."`
	Jobs       config.Auto[int] `toml:"jobs" restart:"true" default:"cores" doc:"The number of thumbnails made concurrently. Auto is one per core."`
	MaxBytes   config.Size      `toml:"max_bytes" restart:"true" doc:"The maximum size of the file of a picture for a thumbnail."`
	MaxPixels  int              `toml:"max_pixels" restart:"true" doc:"The maximum number of pixels of such a picture."`
	JobBytes   config.Size      `toml:"job_bytes" restart:"true" doc:"The maximum memory of one thumbnail job. All together use at most this times jobs."`
	CacheBytes config.Size      `toml:"cache_bytes" restart:"true" doc:"The memory of the cache of thumbnails. Zero disables it."`
}

// The bounds of what may be set.
const (
	longestPost  = 16 * config.KiB
	maxNeighbors = 3000 // so that an answer stays below 1 MiB
	maxPermits   = 1024
)

// DefaultConfig has the defaults: all facets are off.
func DefaultConfig() Config {
	auto := config.Auto[int]{Auto: true}
	return Config{
		Feed:   FeedConfig{Fanout: auto, MaxBytes: longestPost, HalfLife: 12 * time.Hour},
		Graph:  GraphConfig{Expand: auto, MaxEdges: 1_000_000, MaxFollows: 10_000, MaxNeighbors: 1000, WalkEdges: 200_000},
		Search: SearchConfig{Queries: auto, MaxBytes: 128 * config.MiB},
		Media:  MediaConfig{Jobs: auto, MaxBytes: 32 * config.MiB, MaxPixels: 40_000_000, JobBytes: 320 * config.MiB, CacheBytes: 16 * config.MiB},
	}
}

// problems collects what is wrong with a section.
type problems []error

func (p *problems) addIf(is bool, key, next, format string, args ...any) {
	if is {
		*p = append(*p, config.Invalid(key, next, format, args...))
	}
}

// checkPermits checks how much may run at a time.
func (p *problems) checkPermits(key string, of config.Auto[int]) {
	p.addIf(!of.Auto && (of.Value < 1 || of.Value > maxPermits), key, `Choose something from 1 to 1024, or "auto".`, "%d at a time", of.Value)
}

// Validate refuses values that must be mistakes.
func (c Config) Validate() error {
	var w problems
	w.addIf(c.Feed.Enabled && !c.Graph.Enabled, "feed.enabled", "Set facets.graph.enabled = true as well.", "feeds need facets.graph")
	return errors.Join(w...)
}

// Validate refuses values that must be mistakes.
func (c FeedConfig) Validate() error {
	var w problems
	w.checkPermits("fanout", c.Fanout)
	w.addIf(c.MaxBytes < 1 || c.MaxBytes > longestPost, "max_bytes", "Choose something from 1B to 16KiB.", "posts of %s", c.MaxBytes)
	w.addIf(c.HalfLife < time.Second || c.HalfLife > 365*24*time.Hour, "half_life", `Write a time such as "12h", from 1s to 8760h.`, "%s is out of range", c.HalfLife)
	return errors.Join(w...)
}

// Validate refuses values that must be mistakes.
func (c GraphConfig) Validate() error {
	var w problems
	w.checkPermits("expand", c.Expand)
	w.addIf(c.MaxEdges < 1 || c.MaxEdges > 10_000_000, "max_edges", "Choose something from 1 to 10000000.", "a graph of %d edges", c.MaxEdges)
	w.addIf(c.MaxFollows < 1 || c.MaxFollows > 1_000_000, "max_follows", "Choose something from 1 to 1000000.", "%d nodes to follow", c.MaxFollows)
	w.addIf(c.MaxNeighbors < 1 || c.MaxNeighbors > maxNeighbors, "max_neighbors", "Choose something from 1 to 3000.", "%d neighbours", c.MaxNeighbors)
	w.addIf(c.WalkEdges < 1 || c.WalkEdges > 10_000_000, "walk_edges", "Choose something from 1 to 10000000.", "a walk of %d edges", c.WalkEdges)
	return errors.Join(w...)
}

// Validate refuses values that must be mistakes.
func (c SearchConfig) Validate() error {
	var w problems
	w.checkPermits("queries", c.Queries)
	w.addIf(c.MaxBytes > 64*config.GiB, "max_bytes", "Choose something up to 64GiB.", "a catalogue of %s", c.MaxBytes)
	return errors.Join(w...)
}

// Validate refuses values that must be mistakes.
func (c MediaConfig) Validate() error {
	var w problems
	w.checkPermits("jobs", c.Jobs)
	w.addIf(c.MaxBytes > config.GiB, "max_bytes", "Choose something up to 1GiB.", "files of %s", c.MaxBytes)
	w.addIf(c.MaxPixels < 1 || c.MaxPixels > 1_000_000_000, "max_pixels", "Choose something from 1 to 1000000000.", "pictures of %d pixels", c.MaxPixels)
	w.addIf(c.JobBytes < config.MiB || c.JobBytes > 16*config.GiB, "job_bytes", "Choose something from 1MiB to 16GiB.", "%s for a job", c.JobBytes)
	w.addIf(c.CacheBytes > 16*config.GiB, "cache_bytes", "Choose something up to 16GiB, or 0 to keep none.", "%s for small pictures", c.CacheBytes)
	return errors.Join(w...)
}

func (c Config) anyOn() bool {
	return c.Feed.Enabled || c.Graph.Enabled || c.Search.Enabled || c.Media.Enabled
}

func (c FeedConfig) fanout() int    { return c.Fanout.Or(2 * runtime.GOMAXPROCS(0)) }
func (c GraphConfig) expand() int   { return c.Expand.Or(runtime.GOMAXPROCS(0)) }
func (c SearchConfig) queries() int { return c.Queries.Or(2 * runtime.GOMAXPROCS(0)) }
func (c MediaConfig) jobs() int     { return c.Jobs.Or(runtime.GOMAXPROCS(0)) }

// Concurrent is how many thumbnails are made at a time.
func (c MediaConfig) Concurrent() int { return c.jobs() }

// Spec is the spec of the configured graph, stored under a path; without one,
// in memory only.
func (c GraphConfig) Spec(path string) graph.Spec {
	return graph.Spec{MaxEdges: c.MaxEdges, MaxFollows: c.MaxFollows, WalkEdges: c.WalkEdges, Path: path}
}
