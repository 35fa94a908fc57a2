package index

import (
	"errors"
	"net"
	"net/url"
	"runtime"
	"strings"
	"time"

	"micronode/internal/config"
	"micronode/internal/index/breaker"
	"micronode/internal/index/cache"
	"micronode/internal/index/record"
)

// Config is the section [index] of the configuration.
type Config struct {
	Workers         config.Auto[int]  `toml:"workers" default:"cores, 2 at least" doc:"How many workers start look-ups. Auto is one for each core, two at least; they do not wait for answers, so more are seldom of use." restart:"true"`
	Region          string            `toml:"region" doc:"Where this node is, in a word that its neighbours use too, such as eu-west. Providers of the same region come first." restart:"true"`
	Delegated       []string          `toml:"delegated" doc:"Endpoints of Delegated Routing V1 to ask for providers, as https://HOST; http:// only on this machine."`
	AllowPrivate    config.Auto[bool] `toml:"allow_private" doc:"Whether loopback and private addresses that strangers tell us are used. Auto: if this node listens on such an address itself. Link-local ones never are." restart:"true"`
	ProvideInterval config.Duration   `toml:"provide_interval" doc:"How often all objects of this node are announced anew in the DHT." restart:"true"`

	DHT     DHT     `toml:"dht" doc:"How providers are looked for."`
	Cache   Cache   `toml:"cache" doc:"What is remembered of answers."`
	Breaker Breaker `toml:"breaker" doc:"When a target that fails is left alone."`
}

// DHT is [index.dht].
type DHT struct {
	Enabled   config.Auto[bool] `toml:"enabled" doc:"Whether this node takes part in the DHT. Auto: if there are bootstrap peers." restart:"true"`
	Addr      string            `toml:"addr" doc:"Where peers of the DHT can reach this node, as HOST:PORT. Port 0 picks a free one." restart:"true"`
	Bootstrap []string          `toml:"bootstrap" doc:"Peers of the DHT to begin with, as multiaddrs that end in /p2p/ID." restart:"true"`

	Alpha       int              `toml:"alpha" doc:"How many targets a look-up asks at first." seed:"dht.alpha"`
	Beta        int              `toml:"beta" doc:"How many others it asks when the first are slow or have failed. Zero is no second wave." seed:"dht.beta"`
	HedgeMS     config.Auto[int] `toml:"hedge_ms" unit:"ms" doc:"When the second wave starts. Auto is about the 95th percentile of recent answers." seed:"dht.hedge_ms"`
	DeadlineMS  int              `toml:"deadline_ms" unit:"ms" doc:"How long a request may take in all, at most 10000." seed:"dht.deadline_ms"`
	Quorum      int              `toml:"quorum" doc:"How many usable providers are enough."`
	HedgeBudget float64          `toml:"hedge_budget" doc:"The share of look-ups that may start a second wave only because the first is slow, from 0 to 1."`
}

// Cache is [index.cache].
type Cache struct {
	Entries     int             `toml:"entries" doc:"How many answers are remembered. Zero is none."`
	Bytes       config.Size     `toml:"bytes" doc:"How much memory they may take."`
	TTL         config.Duration `toml:"ttl" doc:"How long an answer is taken for true."`
	NegativeTTL config.Duration `toml:"negative_ttl" doc:"How long it is remembered that nobody has something."`
	Stale       config.Duration `toml:"stale" doc:"How much longer an answer is kept for those who take an old one (fresh=false)."`
	WarmupKeys  []string        `toml:"warmup_keys" doc:"Addresses and names that are looked up at the start and after each reload." seed:"cache.warmup_keys"`
	ShelfBytes  config.Size     `toml:"shelf_bytes" doc:"How much memory answers may take that are kept ready for the warm lane." restart:"true"`
}

// Breaker is [index.breaker].
type Breaker struct {
	Window    config.Duration `toml:"window" doc:"Over which time failures are counted." seed:"breaker.error_window_s"`
	Threshold float64         `toml:"threshold" doc:"The share of failures from which a target is left alone, above 0 and up to 1." seed:"breaker.trip_threshold"`
	Least     int             `toml:"least" doc:"How many answers and failures it takes to judge a target."`
	Cooldown  config.Duration `toml:"cooldown" doc:"How long it is left alone." seed:"breaker.cooldown_s"`
	Probes    int             `toml:"probes" doc:"How many questions then try it out. All must succeed." seed:"breaker.half_open_probes"`
}

// DefaultConfig is what holds where nobody says otherwise.
func DefaultConfig() Config {
	return Config{
		Workers: config.Auto[int]{Auto: true}, Delegated: []string{}, AllowPrivate: config.Auto[bool]{Auto: true}, ProvideInterval: 12 * time.Hour,
		DHT: DHT{
			Enabled: config.Auto[bool]{Auto: true}, Addr: "127.0.0.1:9700", Bootstrap: []string{},
			Alpha: 3, Beta: 2, HedgeMS: config.Auto[int]{Value: 150}, DeadlineMS: 1200, Quorum: 1, HedgeBudget: 0.2,
		},
		Cache: Cache{
			Entries: 100_000, Bytes: 64 * config.MiB, TTL: 10 * time.Second, NegativeTTL: 2 * time.Second, Stale: 5 * time.Minute,
			WarmupKeys: []string{}, ShelfBytes: 8 * config.MiB,
		},
		Breaker: Breaker{Window: 30 * time.Second, Threshold: 0.5, Least: 5, Cooldown: 10 * time.Second, Probes: 2},
	}
}

// The bounds of what may be set.
const (
	mostWave      = 32               // targets in a wave
	mostQuorum    = 32               // providers
	mostEndpoints = 32               // of Delegated Routing
	mostWarmup    = 10_000           // keys
	longestBudget = 10 * time.Second // of a request
)

// wrongs collects what is wrong with a section.
type wrongs []error

func (w *wrongs) add(is bool, key, next, format string, args ...any) {
	if is {
		*w = append(*w, config.Wrong(key, next, format, args...))
	}
}

// Validate refuses what cannot be meant.
func (c Config) Validate() error {
	var w wrongs
	w.add(!c.Workers.Auto && (c.Workers.Value < 1 || c.Workers.Value > 1024), "workers", `Choose something from 1 to 1024, or "auto".`, "%d workers", c.Workers.Value)
	w.add(len(c.Region) > mostRegion || !printable(c.Region), "region", "Choose a short word, such as eu-west.", "%q is no name of a region", c.Region)
	w.add(c.ProvideInterval < time.Minute, "provide_interval", `Write a time such as "12h", one minute at least.`, "%s would announce without a pause", c.ProvideInterval)
	w.add(len(c.Delegated) > mostEndpoints, "delegated", "Name 32 or fewer.", "%d endpoints", len(c.Delegated))
	for _, endpoint := range c.Delegated[:min(len(c.Delegated), mostEndpoints)] {
		w.add(!isEndpoint(endpoint), "delegated", "Write https://HOST, or http:// with a loopback address.", "%q is no endpoint", endpoint)
	}
	return errors.Join(w...)
}

// Validate refuses what cannot be meant.
func (d DHT) Validate() error {
	var w wrongs
	_, _, err := net.SplitHostPort(d.Addr)
	w.add(err != nil, "addr", "Write HOST:PORT, such as 127.0.0.1:0; port 0 picks a free one.", "%q is no address to listen on", d.Addr)
	w.add(d.Alpha < 1 || d.Alpha > mostWave, "alpha", "Choose something from 1 to 32.", "a first wave of %d", d.Alpha)
	w.add(d.Beta < 0 || d.Beta > mostWave, "beta", "Choose something from 0 to 32.", "a second wave of %d", d.Beta)
	w.add(d.DeadlineMS < 1 || d.deadline() > longestBudget, "deadline_ms", "Choose something from 1 to 10000.", "%d ms for a request", d.DeadlineMS)
	w.add(!d.HedgeMS.Auto && (d.HedgeMS.Value < 1 || d.HedgeMS.Value >= max(2, d.DeadlineMS)), "hedge_ms", `Choose something from 1 up to less than deadline_ms, or "auto".`, "a second wave after %d ms", d.HedgeMS.Value)
	w.add(d.Quorum < 1 || d.Quorum > mostQuorum, "quorum", "Choose something from 1 to 32.", "%d providers", d.Quorum)
	w.add(!(d.HedgeBudget >= 0 && d.HedgeBudget <= 1), "hedge_budget", "Choose a number from 0 to 1.", "%g is no share", d.HedgeBudget)
	return errors.Join(w...)
}

// Validate refuses what cannot be meant.
func (c Cache) Validate() error {
	var w wrongs
	w.add(c.TTL <= 0 || c.TTL > 24*time.Hour, "ttl", `Write a time such as "10s", 24h at most.`, "%s is no life for an answer", c.TTL)
	w.add(c.NegativeTTL < 0 || c.NegativeTTL > time.Hour, "negative_ttl", `Write a time such as "2s", or 0s to forget at once; 1h at most.`, "%s is no life for an answer", c.NegativeTTL)
	w.add(c.Stale < 0 || c.Stale > 24*time.Hour, "stale", `Write a time such as "5m", or 0s for never; 24h at most.`, "%s is no time to keep old answers", c.Stale)
	w.add(len(c.WarmupKeys) > mostWarmup, "warmup_keys", "Name 10000 or fewer.", "%d keys", len(c.WarmupKeys))
	for _, key := range c.WarmupKeys[:min(len(c.WarmupKeys), mostWarmup)] {
		_, err := record.ParseID(key)
		w.add(err != nil, "warmup_keys", "Write b3: addresses, or names such as name:docs@PEER-ID.", "%q is no ID", key)
	}
	return errors.Join(w...)
}

// Validate refuses what cannot be meant.
func (b Breaker) Validate() error {
	var w wrongs
	w.add(b.Window < time.Second, "window", `Write a time such as "30s", one second at least.`, "%s is no time to count failures in", b.Window)
	w.add(!(b.Threshold > 0 && b.Threshold <= 1), "threshold", "Choose a number above 0 and up to 1.", "%g is no share of failures", b.Threshold)
	w.add(b.Least < 1, "least", "Choose 1 or more.", "%d answers are nothing to judge by", b.Least)
	w.add(b.Cooldown <= 0, "cooldown", `Write a time such as "10s".`, "%s is no pause", b.Cooldown)
	w.add(b.Probes < 1, "probes", "Choose 1 or more.", "with %d questions nothing is tried out", b.Probes)
	return errors.Join(w...)
}

// isEndpoint reports whether a text is the URL of an endpoint that may be
// asked: by HTTPS, or on this machine.
func isEndpoint(text string) bool {
	at, err := url.Parse(text)
	if err != nil || at.Hostname() == "" || at.User != nil || at.RawQuery != "" || at.Fragment != "" {
		return false
	}
	return at.Scheme == "https" || at.Scheme == "http" && config.OnThisMachine(at.Hostname())
}

// printable reports whether a text is plain: letters, digits and a few marks.
func printable(text string) bool {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:/"
	return !strings.ContainsFunc(text, func(r rune) bool { return !strings.ContainsRune(plain, r) })
}

func (c Config) workers() int { return c.Workers.Or(max(2, runtime.GOMAXPROCS(0))) }

// On reports whether this node takes part in the DHT.
func (d DHT) On() bool { return d.Enabled.Or(len(d.Bootstrap) > 0) }

func (d DHT) deadline() time.Duration { return time.Duration(d.DeadlineMS) * time.Millisecond }

func (c Cache) spec() cache.Spec {
	return cache.Spec{Entries: c.Entries, Bytes: int64(c.Bytes), TTL: c.TTL, Negative: c.NegativeTTL, Stale: c.Stale}
}

// mostTargets is how many targets the breakers remember.
const mostTargets = 4096

func (b Breaker) spec() breaker.Spec {
	return breaker.Spec{Window: b.Window, Threshold: b.Threshold, Least: b.Least, Cooldown: b.Cooldown, Probes: b.Probes, Max: mostTargets}
}
