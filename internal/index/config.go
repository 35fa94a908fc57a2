package index

import (
	"errors"
	"net"
	"net/url"
	"runtime"
	"strings"
	"time"

	"micronode/internal/breaker"
	"micronode/internal/config"
	"micronode/internal/index/cache"
	"micronode/internal/index/record"
	"micronode/internal/netguard"
)

// Config is the section [index] of the configuration.
type Config struct {
	Workers         config.Auto[int]  `toml:"workers" default:"cores, 2 at least" doc:"The number of workers that start look-ups. Auto is one per core, at least two; workers do not wait for answers, so that more seldom help." restart:"true"`
	Queue           int               `toml:"queue" doc:"The number of look-ups that wait for a worker. A full queue refuses with 429, those of the busiest client first." restart:"true"`
	Region          string            `toml:"region" doc:"The region of this node, in a word that its neighbours use too, such as eu-west. Providers of the same region come first." restart:"true"`
	Delegated       []string          `toml:"delegated" doc:"Endpoints of Delegated Routing V1 to ask for providers, as https://HOST; http:// only on this machine."`
	AllowPrivate    config.Auto[bool] `toml:"allow_private" doc:"Whether the node dials loopback and private addresses that other nodes announce. Auto: yes if all configured peers, routers and bootstrap peers have such addresses. Link-local and cloud metadata addresses are never dialled." restart:"true"`
	ProvideInterval config.Duration   `toml:"provide_interval" doc:"The interval at which the node announces all its objects in the DHT." restart:"true"`

	DHT     DHT     `toml:"dht" doc:"Look-ups of providers."`
	Fetch   Fetch   `toml:"fetch" doc:"Limits of one fetch of an object."`
	Cache   Cache   `toml:"cache" doc:"The cache of answers."`
	Breaker Breaker `toml:"breaker" doc:"The circuit breaker of each target."`
}

// DHT is [index.dht].
type DHT struct {
	Enabled   config.Auto[bool] `toml:"enabled" doc:"Whether this node takes part in the DHT. Auto: yes if there are bootstrap peers." restart:"true"`
	Addr      string            `toml:"addr" doc:"The listen address of the DHT, as HOST:PORT. Port 0 picks a free one." restart:"true"`
	Bootstrap []string          `toml:"bootstrap" doc:"Bootstrap peers of the DHT, as multiaddrs that end in /p2p/ID." restart:"true"`

	Alpha       int              `toml:"alpha" doc:"The number of targets in the first wave of a look-up." seed:"dht.alpha"`
	Beta        int              `toml:"beta" doc:"The number of targets in the second wave, when the first are slow or have failed. Zero disables it." seed:"dht.beta"`
	HedgeMS     config.Auto[int] `toml:"hedge_ms" unit:"ms" doc:"The delay of the second wave. Auto is about the 95th percentile of recent answers." seed:"dht.hedge_ms"`
	DeadlineMS  int              `toml:"deadline_ms" unit:"ms" doc:"The deadline of a request, at most 10000." seed:"dht.deadline_ms"`
	Quorum      int              `toml:"quorum" doc:"The number of usable providers that ends a look-up."`
	HedgeBudget float64          `toml:"hedge_budget" doc:"The share of look-ups that may start a whole second wave because the first is slow, from 0 to 1; the others ask one target of it at a time."`
}

// Fetch is [index.fetch]: what one request may make this node do to others.
// Untrusted peers name the providers of an object; without these limits one of
// them could make a node dial a thousand addresses.
type Fetch struct {
	Providers   int `toml:"providers" doc:"The number of providers that one fetch tries, best first."`
	Addresses   int `toml:"addresses" doc:"The number of gateways of one provider that it tries."`
	Hosts       int `toml:"hosts" doc:"The total number of hosts and ports that it tries."`
	Connections int `toml:"connections" doc:"The total number of connections that it opens, including all addresses of a host name."`

	Unproven config.Size `toml:"unproven" doc:"The maximum size of an object from a gateway that serves no proof of its size and parts. Nodes of this kind serve a proof for every object."`
}

// Cache is [index.cache].
type Cache struct {
	Entries       int             `toml:"entries" doc:"The maximum number of cached answers. Zero disables the cache."`
	Bytes         config.Size     `toml:"bytes" doc:"The maximum memory of cached answers."`
	TTL           config.Duration `toml:"ttl" doc:"The time for which an answer is fresh."`
	NegativeTTL   config.Duration `toml:"negative_ttl" doc:"The time for which a negative answer is cached."`
	Stale         config.Duration `toml:"stale" doc:"The additional time for which an answer is kept for requests with fresh=false."`
	WarmupKeys    []string        `toml:"warmup_keys" doc:"Addresses and names that the node looks up at start and after each reload." seed:"cache.warmup_keys"`
	PreparedBytes config.Size     `toml:"shelf_bytes" doc:"The memory for prepared answers of the warm lane." restart:"true"`
}

// Breaker is [index.breaker].
type Breaker struct {
	Window    config.Duration `toml:"window" doc:"The window in which failures are counted." seed:"breaker.error_window_s"`
	Threshold float64         `toml:"threshold" doc:"The breaker opens above this share of failures, from above 0 to 1; with 1 it never opens." seed:"breaker.trip_threshold"`
	Least     int             `toml:"least" doc:"The minimum number of results in the window before the breaker may open."`
	Cooldown  config.Duration `toml:"cooldown" doc:"The time for which an open breaker refuses requests." seed:"breaker.cooldown_s"`
	Probes    int             `toml:"probes" doc:"The number of probes after the cool-down. The breaker closes if all succeed." seed:"breaker.half_open_probes"`
}

// DefaultConfig returns the defaults.
func DefaultConfig() Config {
	return Config{
		Workers: config.Auto[int]{Auto: true}, Queue: maxWaiting, Delegated: []string{}, AllowPrivate: config.Auto[bool]{Auto: true}, ProvideInterval: 12 * time.Hour,
		DHT: DHT{
			Enabled: config.Auto[bool]{Auto: true}, Addr: "127.0.0.1:9700", Bootstrap: []string{},
			Alpha: 3, Beta: 2, HedgeMS: config.Auto[int]{Value: 150}, DeadlineMS: 1200, Quorum: 1, HedgeBudget: 0.2,
		},
		Fetch: Fetch{Providers: 16, Addresses: 4, Hosts: 16, Connections: 32, Unproven: 8 * config.MiB},
		Cache: Cache{
			Entries: 100_000, Bytes: 64 * config.MiB, TTL: 10 * time.Second, NegativeTTL: 2 * time.Second, Stale: 5 * time.Minute,
			WarmupKeys: []string{}, PreparedBytes: 8 * config.MiB,
		},
		Breaker: Breaker{Window: 30 * time.Second, Threshold: 0.5, Least: 5, Cooldown: 10 * time.Second, Probes: 2},
	}
}

// Limits of the settings.
const (
	maxWave       = 32               // targets in a wave
	maxQuorum     = 32               // providers
	maxEndpoints  = 32               // of Delegated Routing
	maxTried      = 256              // of anything, by one fetch
	maxWarmup     = 10_000           // keys
	longestBudget = 10 * time.Second // of a request
)

// problems collects the errors of a section.
type problems []error

func (p *problems) addIf(wrong bool, key, next, format string, args ...any) {
	if wrong {
		*p = append(*p, config.Invalid(key, next, format, args...))
	}
}

// Validate rejects invalid values.
func (c Config) Validate() error {
	var w problems
	w.addIf(!c.Workers.Auto && (c.Workers.Value < 1 || c.Workers.Value > 1024), "workers", `Choose something from 1 to 1024, or "auto".`, "%d workers", c.Workers.Value)
	w.addIf(c.Queue < 1 || c.Queue > 1<<16, "queue", "Choose something from 1 to 65536.", "%d places", c.Queue)
	w.addIf(len(c.Region) > maxRegion || !isPlainWord(c.Region), "region", "Choose a short word, such as eu-west.", "%q is not a valid region name", c.Region)
	w.addIf(c.ProvideInterval < time.Minute, "provide_interval", `Write a time such as "12h", one minute at least.`, "%s is below one minute", c.ProvideInterval)
	w.addIf(len(c.Delegated) > maxEndpoints, "delegated", "Name 32 or fewer.", "%d endpoints", len(c.Delegated))
	for _, endpoint := range c.Delegated[:min(len(c.Delegated), maxEndpoints)] {
		w.addIf(!isEndpoint(endpoint), "delegated", "Write https://HOST, or http:// with a loopback address.", "%q is not a valid endpoint", endpoint)
	}
	return errors.Join(w...)
}

// Validate rejects invalid values.
func (d DHT) Validate() error {
	var w problems
	_, _, err := net.SplitHostPort(d.Addr)
	w.addIf(err != nil, "addr", "Write HOST:PORT, such as 127.0.0.1:0; port 0 picks a free one.", "%q is not a valid listen address", d.Addr)
	w.addIf(d.Alpha < 1 || d.Alpha > maxWave, "alpha", "Choose something from 1 to 32.", "a first wave of %d", d.Alpha)
	w.addIf(d.Beta < 0 || d.Beta > maxWave, "beta", "Choose something from 0 to 32.", "a second wave of %d", d.Beta)
	w.addIf(d.DeadlineMS < 1 || d.deadline() > longestBudget, "deadline_ms", "Choose something from 1 to 10000.", "%d ms for a request", d.DeadlineMS)
	w.addIf(!d.HedgeMS.Auto && (d.HedgeMS.Value < 1 || d.HedgeMS.Value >= max(2, d.DeadlineMS)), "hedge_ms", `Choose something from 1 up to less than deadline_ms, or "auto".`, "a second wave after %d ms", d.HedgeMS.Value)
	w.addIf(d.Quorum < 1 || d.Quorum > maxQuorum, "quorum", "Choose something from 1 to 32.", "%d providers", d.Quorum)
	w.addIf(!(d.HedgeBudget >= 0 && d.HedgeBudget <= 1), "hedge_budget", "Choose a number from 0 to 1.", "%g is out of range", d.HedgeBudget)
	return errors.Join(w...)
}

// Validate rejects invalid values.
func (f Fetch) Validate() error {
	var w problems
	for key, n := range map[string]int{"providers": f.Providers, "addresses": f.Addresses, "hosts": f.Hosts, "connections": f.Connections} {
		w.addIf(n < 1 || n > maxTried, key, "Choose something from 1 to 256.", "%d is out of range", n)
	}
	w.addIf(f.Unproven < maxBlock, "unproven", `Write a size such as "8MiB", at least 2MiB: a block of IPFS has no proof.`, "%s is below 2MiB", f.Unproven)
	return errors.Join(w...)
}

// Validate rejects invalid values.
func (c Cache) Validate() error {
	var w problems
	w.addIf(c.TTL <= 0 || c.TTL > 24*time.Hour, "ttl", `Write a time such as "10s", 24h at most.`, "%s is not a valid TTL", c.TTL)
	w.addIf(c.NegativeTTL < 0 || c.NegativeTTL > time.Hour, "negative_ttl", `Write a time such as "2s", or 0s to cache no negative answers; at most 1h.`, "%s is not a valid TTL", c.NegativeTTL)
	w.addIf(c.Stale < 0 || c.Stale > 24*time.Hour, "stale", `Write a time such as "5m", or 0s for never; 24h at most.`, "%s is out of range", c.Stale)
	w.addIf(len(c.WarmupKeys) > maxWarmup, "warmup_keys", "Name 10000 or fewer.", "%d keys", len(c.WarmupKeys))
	for _, key := range c.WarmupKeys[:min(len(c.WarmupKeys), maxWarmup)] {
		_, err := record.ParseID(key)
		w.addIf(err != nil, "warmup_keys", "Write b3: addresses, or names such as name:docs@PEER-ID.", "%q is not a valid ID", key)
	}
	return errors.Join(w...)
}

// Validate rejects invalid values.
func (b Breaker) Validate() error {
	var w problems
	w.addIf(b.Window < time.Second, "window", `Write a time such as "30s", one second at least.`, "%s is not a valid window", b.Window)
	w.addIf(!(b.Threshold > 0 && b.Threshold <= 1), "threshold", "Choose a number above 0 and up to 1.", "%g is out of range", b.Threshold)
	w.addIf(b.Least < 1, "least", "Choose 1 or more.", "%d is below 1", b.Least)
	w.addIf(b.Cooldown <= 0, "cooldown", `Write a time such as "10s".`, "%s is not a valid cool-down", b.Cooldown)
	w.addIf(b.Probes < 1, "probes", "Choose 1 or more.", "%d is below 1", b.Probes)
	return errors.Join(w...)
}

// isEndpoint reports whether a text is an acceptable URL of an endpoint: HTTPS,
// or on this machine.
func isEndpoint(text string) bool {
	at, err := url.Parse(text)
	if err != nil || at.Hostname() == "" || at.User != nil || at.RawQuery != "" || at.Fragment != "" {
		return false
	}
	return at.Scheme == "https" || at.Scheme == "http" && config.IsLoopbackHost(at.Hostname())
}

// isPlainWord reports whether a text has only ASCII letters, digits and a few
// punctuation marks.
func isPlainWord(text string) bool {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:/"
	return !strings.ContainsFunc(text, func(r rune) bool { return !strings.ContainsRune(plain, r) })
}

func (c Config) workers() int { return c.Workers.Or(max(2, runtime.GOMAXPROCS(0))) }

// hosts lists the hosts through which this node talks to the DHT: the bootstrap
// peers, and its own listen address.
func (d DHT) hosts() (hosts []string) {
	if !d.On() {
		return nil
	}
	for _, multiaddr := range d.Bootstrap {
		host := ""
		if parts := strings.Split(multiaddr, "/"); len(parts) > 2 {
			host = parts[2]
		}
		hosts = append(hosts, host)
	}
	return append(hosts, netguard.HostOf(d.Addr))
}

// On reports whether this node takes part in the DHT.
func (d DHT) On() bool { return d.Enabled.Or(len(d.Bootstrap) > 0) }

func (d DHT) deadline() time.Duration { return time.Duration(d.DeadlineMS) * time.Millisecond }

func (c Cache) spec() cache.Spec {
	return cache.Spec{Entries: c.Entries, Bytes: int64(c.Bytes), TTL: c.TTL, NegativeTTL: c.NegativeTTL, StaleTTL: c.Stale}
}

// maxTargets is how many targets the breakers remember.
const maxTargets = 4096

func (b Breaker) spec() breaker.Spec {
	return breaker.Spec{Window: b.Window, Threshold: b.Threshold, MinResults: b.Least, Cooldown: b.Cooldown, Probes: b.Probes, MaxTargets: maxTargets}
}
