package node

import (
	"fmt"
	"net"
	"net/url"
	"runtime"
	"strings"
	"time"

	"micronode/fault"
	"micronode/internal/config"
	"micronode/internal/edge"
	"micronode/internal/facet"
	"micronode/internal/index"
	"micronode/internal/ingress"
	"micronode/internal/mailbox"
	"micronode/internal/observe"
	"micronode/internal/overlay"
	"micronode/internal/registry"
	"micronode/internal/store"
)

// Config is everything that can be set. Each service owns its section and what
// is valid in it; here they are only combined.
type Config struct {
	Node     NodeSection     `toml:"node" doc:"The node as a whole."`
	HTTP     ingress.HTTP    `toml:"http" doc:"The listener of the gateway, and its deadlines."`
	Admin    ingress.Admin   `toml:"admin" doc:"The listener of the admin plane."`
	Limits   ingress.Limits  `toml:"limits" doc:"Limits for each client and for all clients together."`
	Store    store.Config    `toml:"store" doc:"Objects."`
	Edge     edge.Config     `toml:"edge" doc:"Map packs, files, and the cache of origins."`
	Overlay  overlay.Config  `toml:"overlay" doc:"Sessions with other nodes, and gossip over them."`
	Registry registry.Config `toml:"registry" doc:"A log of nodes, names and signers, approved by M of N."`
	Index    index.Config    `toml:"index" doc:"Names, and providers of objects."`
	Mailbox  mailbox.Config  `toml:"mailbox" doc:"Messages that are kept until they are acknowledged."`
	Facets   facet.Config    `toml:"facets" doc:"Feed, graph, search, media. All are off by default."`
	Amnesia  AmnesiaSection  `toml:"amnesia" doc:"Protection against writes to disk."`
	Auth     AuthSection     `toml:"auth" doc:"Capabilities."`
	Log      LogSection      `toml:"log" doc:"Log lines."`
	Trace    TraceSection    `toml:"trace" doc:"Traces."`
}

// NodeSection is [node]: what belongs to no service.
type NodeSection struct {
	Identity string           `toml:"identity" doc:"The node's key: ephemeral (a new one at each start), file:PATH, env:VARIABLE or fd:NUMBER." restart:"true"`
	Workers  config.Auto[int] `toml:"workers" doc:"The number of workers of the work queue. Auto is twice the cores, at least two." restart:"true"`
	Drain    config.Duration  `toml:"drain" doc:"The deadline of a shutdown, at most 5s." seed:"drain_deadline" restart:"true"`

	SocketGroup string `toml:"socket_group" doc:"A group, by name or number, whose members may use the local socket like the node's own user, and root. The socket must be a path (--socket). Empty for nobody else." restart:"true"`

	ClockSkew config.Duration `toml:"clock_skew" doc:"The maximum difference between the clocks of nodes." restart:"true"`

	Advertise []string `toml:"advertise" doc:"The addresses of this node for other nodes, if they differ from its listeners: HOST:PORT of its overlay, https://HOST of its gateway." restart:"true"`

	Bandwidth BandwidthSection `toml:"bandwidth" doc:"How fast this node sends and receives beyond this machine. Each process has limits of its own."`

	Queues Queues `toml:"queues" doc:"The sizes of the node's own queues. A full queue refuses or drops, and counts it."`
	Retry  Retry  `toml:"retry" doc:"Retries of idempotent calls between the parts of a node that runs as several processes."`

	Parts Parts `toml:"parts" doc:"The addresses of the parts of this node that run in other processes, with --only."`
}

// Queues is [node.queues].
type Queues struct {
	Work      int `toml:"work" doc:"Jobs that wait for a worker. A full queue refuses with 429." seed:"work" restart:"true"`
	Telemetry int `toml:"telemetry" doc:"Log lines that wait to be written. A full queue drops the oldest." seed:"telemetry" restart:"true"`
	Bus       int `toml:"bus" doc:"Events kept for slow readers of the node bus. A reader that falls further behind receives a lag error with the number of lost events." seed:"bus,bus.channel_bound" restart:"true"`
}

// maxQueueCap keeps a queue from being practically unbounded.
const maxQueueCap = 1 << 16

// Validate checks the section by itself.
func (q Queues) Validate() error {
	for key, places := range map[string]int{"work": q.Work, "telemetry": q.Telemetry, "bus": q.Bus} {
		if places < 1 || places > maxQueueCap {
			return config.Invalid(key, fmt.Sprintf("Choose something from 1 to %d.", maxQueueCap), "%d is out of range", places)
		}
	}
	return nil
}

// Retry is [node.retry]: the pauses double from the first one to the cap.
type Retry struct {
	Tries   int             `toml:"tries" doc:"The number of attempts of a call. 1 disables retries." seed:"max_tries" restart:"true"`
	Initial config.Duration `toml:"initial" doc:"The minimum of the first pause; jitter makes it up to twice as long." seed:"initial" restart:"true"`
	Cap     config.Duration `toml:"cap" doc:"The longest pause." seed:"cap" restart:"true"`
}

// Validate checks the section by itself.
func (r Retry) Validate() error {
	switch {
	case r.Tries < 1 || r.Tries > 10:
		return config.Invalid("tries", "Choose something from 1 to 10.", "%d is out of range", r.Tries)
	case r.Initial <= 0 || r.Initial > r.Cap:
		return config.Invalid("initial", "Choose something above 0s and up to cap.", "%s is out of range", r.Initial)
	case r.Cap > 2*time.Second:
		return config.Invalid("cap", "Choose 2s or less: callers have deadlines.", "%s is too long a pause", r.Cap)
	}
	return nil
}

// maxDrain is the longest shutdown that the contract allows.
const maxDrain = 5 * time.Second

// Validate checks the section by itself.
func (s NodeSection) Validate() error {
	switch {
	case s.Drain <= 0 || s.Drain > maxDrain:
		return config.Invalid("drain", "Choose something above 0s and up to 5s.", "%s is out of range", s.Drain)
	case s.ClockSkew < 0 || s.ClockSkew > time.Hour:
		return config.Invalid("clock_skew", "Choose something from 0s to 1h.", "%s is out of range", s.ClockSkew)
	case !s.Workers.Auto && s.Workers.Value < 1:
		return config.Invalid("workers", `Choose 1 or more, or "auto".`, "%d is below 1", s.Workers.Value)
	}
	for _, one := range s.Advertise {
		if !isReachableAddr(one) {
			return config.Invalid("advertise", "Write HOST:PORT for the overlay, https://HOST or http://HOST:PORT for the gateway.", "%q is not an address of a node", one)
		}
	}
	if err := checkIdentity(s.Identity); err != nil {
		return config.Invalid("identity", fault.NextOf(err), "%s", fault.DetailOf(err))
	}
	return nil
}

// isReachableAddr reports whether a text is an address at which a node can be
// reached.
func isReachableAddr(text string) bool {
	if !strings.Contains(text, "://") {
		host, port, err := net.SplitHostPort(text)
		return err == nil && host != "" && port != ""
	}
	at, err := url.Parse(text)
	return err == nil && (at.Scheme == "http" || at.Scheme == "https") && at.Host != "" && at.User == nil && at.Path == "" && at.RawQuery == "" && at.Fragment == ""
}

func (s NodeSection) workers() int { return s.Workers.Or(max(2, 2*runtime.GOMAXPROCS(0))) }

// AmnesiaSection is [amnesia].
type AmnesiaSection struct {
	Enforce         string `toml:"enforce" enum:"auto,on,off" doc:"Whether the kernel prevents writes to disk: auto (if it can), on (the node does not start otherwise), off." restart:"true"`
	PurgeIntervalMS int    `toml:"purge_interval_ms" unit:"ms" doc:"The interval at which unused memory is released. Zero disables it." restart:"true"`
}

// AuthSection is [auth].
type AuthSection struct {
	Root config.Secret `toml:"root" doc:"The secret under which capabilities are minted: file:PATH, env:VARIABLE, fd:NUMBER, or at least 32 bytes in hex or base64. Without it, a new one at each start." restart:"true"`
}

// LogSection is [log].
type LogSection struct {
	Format string `toml:"format" enum:"text,json" doc:"The format of the log on standard error." restart:"true"`
	Level  string `toml:"level" enum:"debug,info,warn,error" doc:"The minimum level of log lines."`
}

// TraceSection is [trace].
type TraceSection struct {
	Endpoint    string  `toml:"endpoint" doc:"The collector for spans, by OTLP over HTTP: http://host:port. Empty sends none."`
	SampleRatio float64 `toml:"sample_ratio" doc:"The share of traces begun by this node that are sent, from 0 to 1."`
}

// Validate checks the section by itself.
func (s TraceSection) Validate() error {
	if s.SampleRatio < 0 || s.SampleRatio > 1 {
		return config.Invalid("sample_ratio", "Choose a number from 0 to 1.", "%g is out of range", s.SampleRatio)
	}
	return nil
}

func (s TraceSection) traces() observe.TraceConfig {
	return observe.TraceConfig{Endpoint: s.Endpoint, SampleRatio: s.SampleRatio}
}

// Profiles are the names of the sets of defaults.
var Profiles = []string{"micronode", "macronode"}

// Defaults are the built-in defaults of a profile. A profile changes defaults,
// never which settings and routes a node has.
func Defaults(profile string) (Config, error) {
	c := Config{
		Node: NodeSection{Identity: "ephemeral", Advertise: []string{}, Workers: config.Auto[int]{Auto: true}, Drain: 2 * time.Second, ClockSkew: 2 * time.Minute,
			Queues: Queues{Work: 256, Telemetry: 256, Bus: 512}, Retry: Retry{Tries: 2, Initial: 25 * time.Millisecond, Cap: 100 * time.Millisecond}},
		HTTP:     ingress.DefaultHTTP(),
		Admin:    ingress.DefaultAdmin(),
		Limits:   ingress.DefaultLimits(),
		Store:    store.DefaultConfig(),
		Edge:     edge.DefaultConfig(),
		Overlay:  overlay.DefaultConfig(),
		Registry: registry.DefaultConfig(),
		Index:    index.DefaultConfig(),
		Mailbox:  mailbox.DefaultConfig(),
		Facets:   facet.DefaultConfig(),
		Amnesia:  AmnesiaSection{Enforce: "auto", PurgeIntervalMS: 30_000},
		Log:      LogSection{Format: "text", Level: "info"},
		Trace:    TraceSection{SampleRatio: 1},
	}
	switch profile {
	case "", "micronode":
		return c, nil
	case "macronode":
		c.Log.Format = "json"
		c.Overlay.Large()
		return c, nil
	}
	return Config{}, fault.New("node.config", fault.Malformed, "there is no profile %q", profile).
		Advise("Use micronode or macronode.")
}

// Load builds the configuration: defaults, file, environment, flags. The
// default memory budgets fit into the memory of this process.
func Load(profile string, from config.Sources) (*config.Loaded[Config], error) {
	defaults, err := Defaults(profile)
	if err != nil {
		return nil, err
	}
	asked, err := config.Load(defaults, from) // for what is on: that is what has to fit
	if err != nil {
		return nil, err
	}
	limit := findMemoryLimit()
	changed := limit.scaleDefaults(&defaults, asked.Value.Facets)
	loaded, err := config.Load(defaults, from)
	if err != nil {
		return nil, err
	}
	for _, key := range changed {
		loaded.Explain(key, "a share of "+limit.String())
	}
	return loaded, nil
}
