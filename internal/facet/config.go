package facet

import (
	"errors"
	"runtime"
	"time"

	"micronode/internal/config"
	"micronode/internal/index"
)

// Config is the section [facets] of the configuration.
type Config struct {
	Feed   FeedConfig   `toml:"feed" doc:"Posts that come to those who follow their author."`
	Graph  GraphConfig  `toml:"graph" doc:"Who follows whom."`
	Search SearchConfig `toml:"search" doc:"What is found by words."`
	Media  MediaConfig  `toml:"media" doc:"Objects as browsers want them, and small pictures of large ones."`
}

// FeedConfig is [facets.feed].
type FeedConfig struct {
	Enabled  bool             `toml:"enabled" restart:"true" doc:"Whether this node has feeds. They need facets.graph, too."`
	Fanout   config.Auto[int] `toml:"fanout" restart:"true" default:"twice the cores" doc:"How many posts are delivered at a time. Auto is two for each core."`
	MaxBytes config.Size      `toml:"max_bytes" restart:"true" doc:"How long a post may be, 16KiB at most."`
	HalfLife config.Duration  `toml:"half_life" restart:"true" doc:"After which time a post weighs half as much when a feed is put in order."`
}

// GraphConfig is [facets.graph].
type GraphConfig struct {
	Enabled      bool             `toml:"enabled" restart:"true" doc:"Whether this node keeps who follows whom."`
	Expand       config.Auto[int] `toml:"expand" restart:"true" default:"cores" doc:"How many neighbourhoods are walked at a time. Auto is one for each core."`
	MaxEdges     int              `toml:"max_edges" restart:"true" doc:"How many edges are kept in all."`
	MaxFollows   int              `toml:"max_follows" restart:"true" doc:"How many others one node may follow. How many follow it is not bounded."`
	MaxNeighbors int              `toml:"max_neighbors" restart:"true" doc:"How many neighbours one question may ask for, 3000 at most."`
	WalkEdges    int              `toml:"walk_edges" restart:"true" doc:"How many edges one question may walk. Then it ends, and the answer says that it is not all."`
}

// SearchConfig is [facets.search].
type SearchConfig struct {
	Enabled  bool             `toml:"enabled" restart:"true" doc:"Whether what this node has can be searched."`
	Queries  config.Auto[int] `toml:"queries" restart:"true" default:"twice the cores" doc:"How many queries run at a time. Auto is two for each core."`
	MaxBytes config.Size      `toml:"max_bytes" restart:"true" doc:"How large the catalogue may become, in memory or on the disk with --persist. What is put when it is full cannot be found."`
}

// MediaConfig is [facets.media].
type MediaConfig struct {
	Enabled    bool             `toml:"enabled" restart:"true" doc:"Whether objects are shown as media."`
	Jobs       config.Auto[int] `toml:"jobs" restart:"true" default:"cores" doc:"How many pictures are made smaller at a time. Auto is one for each core."`
	MaxBytes   config.Size      `toml:"max_bytes" restart:"true" doc:"How long the file of a picture may be that is made smaller."`
	MaxPixels  int              `toml:"max_pixels" restart:"true" doc:"How many pixels it may have."`
	JobBytes   config.Size      `toml:"job_bytes" restart:"true" doc:"How much memory one such job may take. All of them take this times jobs, at most."`
	CacheBytes config.Size      `toml:"cache_bytes" restart:"true" doc:"How much memory small pictures may take that are kept for the next who asks. With zero, none are kept."`
}

// The bounds of what may be set.
const (
	longestPost   = 16 * config.KiB
	mostNeighbors = 3000 // so that an answer stays below 1 MiB
	mostPermits   = 1024
)

// DefaultConfig is what holds where nobody says otherwise: all facets are off.
func DefaultConfig() Config {
	auto := config.Auto[int]{Auto: true}
	return Config{
		Feed:   FeedConfig{Fanout: auto, MaxBytes: longestPost, HalfLife: 12 * time.Hour},
		Graph:  GraphConfig{Expand: auto, MaxEdges: 1_000_000, MaxFollows: 10_000, MaxNeighbors: 1000, WalkEdges: 200_000},
		Search: SearchConfig{Queries: auto, MaxBytes: 128 * config.MiB},
		Media:  MediaConfig{Jobs: auto, MaxBytes: 32 * config.MiB, MaxPixels: 40_000_000, JobBytes: 320 * config.MiB, CacheBytes: 16 * config.MiB},
	}
}

// wrongs collects what is wrong with a section.
type wrongs []error

func (w *wrongs) add(is bool, key, next, format string, args ...any) {
	if is {
		*w = append(*w, config.Wrong(key, next, format, args...))
	}
}

// permits checks how much may run at a time.
func (w *wrongs) permits(key string, of config.Auto[int]) {
	w.add(!of.Auto && (of.Value < 1 || of.Value > mostPermits), key, `Choose something from 1 to 1024, or "auto".`, "%d at a time", of.Value)
}

// Validate refuses what cannot be meant.
func (c Config) Validate() error {
	var w wrongs
	w.add(c.Feed.Enabled && !c.Graph.Enabled, "feed.enabled", "Set facets.graph.enabled = true as well.", "without facets.graph nobody can follow an author")
	return errors.Join(w...)
}

// Validate refuses what cannot be meant.
func (c FeedConfig) Validate() error {
	var w wrongs
	w.permits("fanout", c.Fanout)
	w.add(c.MaxBytes < 1 || c.MaxBytes > longestPost, "max_bytes", "Choose something from 1B to 16KiB.", "posts of %s", c.MaxBytes)
	w.add(c.HalfLife < time.Second || c.HalfLife > 365*24*time.Hour, "half_life", `Write a time such as "12h", from 1s to 8760h.`, "%s is no half-life of a post", c.HalfLife)
	return errors.Join(w...)
}

// Validate refuses what cannot be meant.
func (c GraphConfig) Validate() error {
	var w wrongs
	w.permits("expand", c.Expand)
	w.add(c.MaxEdges < 1 || c.MaxEdges > 10_000_000, "max_edges", "Choose something from 1 to 10000000.", "a graph of %d edges", c.MaxEdges)
	w.add(c.MaxFollows < 1 || c.MaxFollows > 1_000_000, "max_follows", "Choose something from 1 to 1000000.", "%d nodes to follow", c.MaxFollows)
	w.add(c.MaxNeighbors < 1 || c.MaxNeighbors > mostNeighbors, "max_neighbors", "Choose something from 1 to 3000.", "%d neighbours", c.MaxNeighbors)
	w.add(c.WalkEdges < 1 || c.WalkEdges > 10_000_000, "walk_edges", "Choose something from 1 to 10000000.", "a walk of %d edges", c.WalkEdges)
	return errors.Join(w...)
}

// Validate refuses what cannot be meant.
func (c SearchConfig) Validate() error {
	var w wrongs
	w.permits("queries", c.Queries)
	w.add(c.MaxBytes > 64*config.GiB, "max_bytes", "Choose something up to 64GiB.", "a catalogue of %s", c.MaxBytes)
	return errors.Join(w...)
}

// Validate refuses what cannot be meant.
func (c MediaConfig) Validate() error {
	var w wrongs
	w.permits("jobs", c.Jobs)
	w.add(c.MaxBytes > config.GiB, "max_bytes", "Choose something up to 1GiB.", "files of %s", c.MaxBytes)
	w.add(c.MaxPixels < 1 || c.MaxPixels > 1_000_000_000, "max_pixels", "Choose something from 1 to 1000000000.", "pictures of %d pixels", c.MaxPixels)
	w.add(c.JobBytes < config.MiB || c.JobBytes > 16*config.GiB, "job_bytes", "Choose something from 1MiB to 16GiB.", "%s for a job", c.JobBytes)
	w.add(c.CacheBytes > 16*config.GiB, "cache_bytes", "Choose something up to 16GiB, or 0 to keep none.", "%s for small pictures", c.CacheBytes)
	return errors.Join(w...)
}

func (c Config) anyOn() bool {
	return c.Feed.Enabled || c.Graph.Enabled || c.Search.Enabled || c.Media.Enabled
}

func (c FeedConfig) fanout() int    { return c.Fanout.Or(2 * runtime.GOMAXPROCS(0)) }
func (c GraphConfig) expand() int   { return c.Expand.Or(runtime.GOMAXPROCS(0)) }
func (c SearchConfig) queries() int { return c.Queries.Or(2 * runtime.GOMAXPROCS(0)) }
func (c MediaConfig) jobs() int     { return c.Jobs.Or(runtime.GOMAXPROCS(0)) }

// Spec is the graph that the section asks for, kept under a path; without one,
// in memory only.
func (c GraphConfig) Spec(path string) index.GraphSpec {
	return index.GraphSpec{MaxEdges: c.MaxEdges, MaxFollows: c.MaxFollows, WalkEdges: c.WalkEdges, Path: path}
}
