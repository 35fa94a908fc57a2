package node

import (
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
// is valid in it; here they are only put side by side.
type Config struct {
	Node     Section         `toml:"node" doc:"What belongs to no service."`
	HTTP     ingress.HTTP    `toml:"http" doc:"Where the gateway listens, and how long things may take."`
	Admin    ingress.Admin   `toml:"admin" doc:"Where the admin plane listens."`
	Limits   ingress.Limits  `toml:"limits" doc:"What one client, and all together, may use."`
	Store    store.Config    `toml:"store" doc:"Objects."`
	Edge     edge.Config     `toml:"edge" doc:"Map packs, files, and what is fetched from origins."`
	Overlay  overlay.Config  `toml:"overlay" doc:"Sessions with other nodes, and gossip over them."`
	Registry registry.Config `toml:"registry" doc:"A log of nodes, names and signers, approved by M of N."`
	Index    index.Config    `toml:"index" doc:"Who has what, and what names mean."`
	Mailbox  mailbox.Config  `toml:"mailbox" doc:"Messages that wait until somebody has dealt with them."`
	Facets   facet.Config    `toml:"facets" doc:"What is made of the rest: feed, graph, search, media. All are off unless they are turned on."`
	Amnesia  AmnesiaSection  `toml:"amnesia" doc:"What keeps the node from writing to disk."`
	Auth     AuthSection     `toml:"auth" doc:"Capabilities."`
	Log      LogSection      `toml:"log" doc:"Log lines."`
	Trace    TraceSection    `toml:"trace" doc:"Traces."`
}

// Section is [node]: what belongs to no service.
type Section struct {
	Identity string           `toml:"identity" doc:"The node's key: ephemeral (a new one at each start), file:PATH, env:VARIABLE or fd:NUMBER." restart:"true"`
	Workers  config.Auto[int] `toml:"workers" doc:"How many workers take jobs from the work queue. Auto is twice the cores, two at least." restart:"true"`
	Drain    config.Duration  `toml:"drain" doc:"How long a shutdown may take in all, at most 5s." seed:"drain_deadline" restart:"true"`

	ClockSkew config.Duration `toml:"clock_skew" doc:"By how much the clocks of nodes may differ." restart:"true"`

	Advertise []string `toml:"advertise" doc:"Where others can reach this node, if that is not where it listens: HOST:PORT of its overlay, https://HOST of its gateway." restart:"true"`

	Parts Parts `toml:"parts" doc:"Where the parts of this node are that run in other processes, with --only."`
}

// maxDrain is the longest shutdown that the contract allows.
const maxDrain = 5 * time.Second

// Validate checks the section by itself.
func (s Section) Validate() error {
	switch {
	case s.Drain <= 0 || s.Drain > maxDrain:
		return config.Wrong("drain", "Choose something above 0s and up to 5s.", "%s is not a time for a shutdown", s.Drain)
	case s.ClockSkew < 0 || s.ClockSkew > time.Hour:
		return config.Wrong("clock_skew", "Choose something from 0s to 1h.", "%s is not a difference between clocks", s.ClockSkew)
	case !s.Workers.Auto && s.Workers.Value < 1:
		return config.Wrong("workers", `Choose 1 or more, or "auto".`, "%d workers do no work", s.Workers.Value)
	}
	for _, one := range s.Advertise {
		if !isPlace(one) {
			return config.Wrong("advertise", "Write HOST:PORT for the overlay, https://HOST or http://HOST:PORT for the gateway.", "%q is no place where a node can be reached", one)
		}
	}
	if err := checkIdentity(s.Identity); err != nil {
		return config.Wrong("identity", fault.NextOf(err), "%s", fault.DetailOf(err))
	}
	return nil
}

// isPlace reports whether a text says where a node can be reached.
func isPlace(text string) bool {
	if !strings.Contains(text, "://") {
		host, port, err := net.SplitHostPort(text)
		return err == nil && host != "" && port != ""
	}
	at, err := url.Parse(text)
	return err == nil && (at.Scheme == "http" || at.Scheme == "https") && at.Host != "" && at.User == nil && at.Path == "" && at.RawQuery == "" && at.Fragment == ""
}

func (s Section) workers() int { return s.Workers.Or(max(2, 2*runtime.GOMAXPROCS(0))) }

// AmnesiaSection is [amnesia].
type AmnesiaSection struct {
	Enforce         string `toml:"enforce" enum:"auto,on,off" doc:"Whether the kernel keeps the node from writing to disk: auto (where it can), on (or do not start), off." restart:"true"`
	PurgeIntervalMS int    `toml:"purge_interval_ms" unit:"ms" doc:"How often memory that nobody needs any more is given up. Zero is never." restart:"true"`
}

// AuthSection is [auth].
type AuthSection struct {
	Root config.Secret `toml:"root" doc:"The secret under which capabilities are minted: file:PATH, env:VARIABLE, fd:NUMBER, or 32 bytes or more in hex or base64. Without it, a new one at each start." restart:"true"`
}

// LogSection is [log].
type LogSection struct {
	Format string `toml:"format" enum:"text,json" doc:"How log lines are written to standard error." restart:"true"`
	Level  string `toml:"level" enum:"debug,info,warn,error" doc:"The least important lines that are written."`
}

// TraceSection is [trace].
type TraceSection struct {
	Endpoint    string  `toml:"endpoint" doc:"Where spans are sent by OTLP over HTTP: http://host:port. Empty is nowhere."`
	SampleRatio float64 `toml:"sample_ratio" doc:"How many of the traces that begin here are sent, from 0 to 1."`
}

// Validate checks the section by itself.
func (s TraceSection) Validate() error {
	if s.SampleRatio < 0 || s.SampleRatio > 1 {
		return config.Wrong("sample_ratio", "Choose a number from 0 to 1.", "%g is no share", s.SampleRatio)
	}
	return nil
}

func (s TraceSection) traces() observe.TraceConfig {
	return observe.TraceConfig{Endpoint: s.Endpoint, SampleRatio: s.SampleRatio}
}

// Profiles are the sets of defaults that there are.
var Profiles = []string{"micronode", "macronode"}

// Defaults is what holds where nobody says otherwise. A profile changes
// defaults, never what can be asked of a node.
func Defaults(profile string) (Config, error) {
	c := Config{
		Node:     Section{Identity: "ephemeral", Advertise: []string{}, Workers: config.Auto[int]{Auto: true}, Drain: 2 * time.Second, ClockSkew: 2 * time.Minute},
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
	err := fault.New("node.config", fault.Malformed, "there is no profile %q", profile)
	err.Next = "Use micronode or macronode."
	return Config{}, err
}

// Load puts the configuration together: defaults, file, environment, flags.
func Load(profile string, from config.Sources) (*config.Loaded[Config], error) {
	defaults, err := Defaults(profile)
	if err != nil {
		return nil, err
	}
	return config.Load(defaults, from)
}
