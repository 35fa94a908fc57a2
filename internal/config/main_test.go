package config_test

import (
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"micronode/internal/config"
	"micronode/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testConfig stands for the struct that package node combines. It has every
// type of setting and sections at several depths.
type testConfig struct {
	Node    node    `toml:"node" doc:"The node itself."`
	HTTP    http    `toml:"http" doc:"The gateway."`
	Index   index   `toml:"index" doc:"Names and providers."`
	Edge    edge    `toml:"edge" doc:"Bytes from elsewhere."`
	Auth    auth    `toml:"auth" doc:"Who may do what."`
	Amnesia amnesia `toml:"amnesia" doc:"No disk writes."`
}

type node struct {
	Drain   config.Duration `toml:"drain" doc:"How long a shutdown may take." seed:"drain_deadline"`
	Workers int             `toml:"workers" doc:"How many workers." default:"2 × cores, at least 2" restart:"true"`
	Skew    config.Duration `toml:"skew" doc:"What is added to the clock." negative:"true"`
}

type http struct {
	Addr     string          `toml:"addr" doc:"Where the gateway listens." restart:"true"`
	Idle     config.Duration `toml:"idle" doc:"How long a connection may be idle." seed:"idle_timeout,timeouts.idle"`
	Body     config.Size     `toml:"body" doc:"The largest request body." seed:"ingress.body_bytes"`
	MaxConns int             `toml:"max_conns" doc:"The maximum number of connections."`

	started bool // not a setting: it is not exported
	Clock   any  `toml:"-"` // not a setting: its tag says so
}

type index struct {
	DHT   dht             `toml:"dht" doc:"The distributed table."`
	Cache config.Duration `toml:"cache" doc:"How long an answer is kept."`
}

type dht struct {
	Enabled   config.Auto[bool]            `toml:"enabled" doc:"Whether to ask it."`
	HedgeMS   config.Auto[int]             `toml:"hedge_ms" doc:"When to ask a second time." unit:"ms"`
	Threshold float64                      `toml:"threshold" doc:"The share of failures that opens a breaker."`
	Refresh   config.Auto[config.Duration] `toml:"refresh" doc:"How often to look for peers."`
}

type edge struct {
	Allow    []string                 `toml:"allow" doc:"Hosts to fill from."`
	Headers  []string                 `toml:"headers" doc:"What is passed on." enum:"accept,range,vary"`
	Query    bool                     `toml:"query" doc:"Whether the query is passed on."`
	MaxBytes config.Auto[config.Size] `toml:"max_bytes" doc:"How much is kept."`
}

type auth struct {
	Root config.Secret `toml:"root" doc:"What tokens are made from."`
}

type amnesia struct {
	Enforce string `toml:"enforce" doc:"Whether the kernel is asked to help." enum:"auto,on,off" restart:"true"`
}

func defaults() testConfig {
	return testConfig{
		Node:    node{Drain: 2 * time.Second, Workers: 4},
		HTTP:    http{Addr: "127.0.0.1:8080", Idle: time.Minute, Body: config.MiB, MaxConns: 4096, started: true},
		Index:   index{DHT: dht{Enabled: config.Auto[bool]{Auto: true}, HedgeMS: config.Auto[int]{Value: 150}, Threshold: 0.5, Refresh: config.Auto[config.Duration]{Auto: true}}, Cache: 10 * time.Second},
		Edge:    edge{Headers: []string{"accept", "range"}, Query: true, MaxBytes: config.Auto[config.Size]{Value: 64 * config.MiB}},
		Amnesia: amnesia{Enforce: "auto"},
	}
}

// writeConfig writes a file into a folder of its own and moves there, so that
// errors can name it without naming the machine.
func writeConfig(t *testing.T, text string) string {
	t.Helper()
	t.Chdir(t.TempDir())
	testkit.WriteFile(t, "m.toml", text)
	return "m.toml"
}

// mustLoad loads what is expected to load.
func mustLoad(t *testing.T, from config.Sources) *config.Loaded[testConfig] {
	t.Helper()
	loaded, err := config.Load(defaults(), from)
	if err != nil {
		t.Fatal(err)
	}
	return loaded
}

// entry finds one line of what `config show` would print.
func entry[T any](t *testing.T, loaded *config.Loaded[T], key string) config.Entry {
	t.Helper()
	for _, e := range loaded.Entries() {
		if e.Key == key {
			return e
		}
	}
	t.Fatalf("no entry %s", key)
	return config.Entry{}
}

// problems is the text of an error without the operation.
func problems(err error) string {
	if err == nil {
		return ""
	}
	return strings.TrimPrefix(err.Error(), "config.load: ")
}
