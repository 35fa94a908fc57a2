package config_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"micronode/internal/config"
)

func TestWithoutSourcesTheDefaultsHold(t *testing.T) {
	loaded := mustLoad(t, config.Sources{})
	if loaded.Value.HTTP.Addr != "127.0.0.1:8080" || !loaded.Value.HTTP.started || !loaded.Value.Index.DHT.Enabled.Auto {
		t.Errorf("got %+v", loaded.Value)
	}
	for _, e := range loaded.Entries() {
		if e.Origin.String() != "default" {
			t.Errorf("%s comes from %s", e.Key, e.Origin)
		}
	}
}

func TestEachLayerWinsOverThoseBefore(t *testing.T) {
	file := writeConfig(t, "[http]\naddr = \"file:1\"\nidle = \"1s\"\nmax_conns = 1\n")
	environ := []string{"HOME=/", "MICRO_HTTP__ADDR=env:2", "MICRO_HTTP__IDLE=2s"}
	flags := []config.Flag{{Key: "http.addr", Value: "flag:3", Name: "--http"}}
	loaded := mustLoad(t, config.Sources{File: file, Environ: environ, Flags: flags})

	for key, want := range map[string]string{
		"http.addr":      "flag:3 flag:--http",
		"http.idle":      "2s env:MICRO_HTTP__IDLE",
		"http.max_conns": "1 file:m.toml:4",
		"http.body":      "1MiB default",
	} {
		if e := entry(t, loaded, key); e.Value+" "+e.Origin.String() != want {
			t.Errorf("%s: %s %s, want %s", key, e.Value, e.Origin, want)
		}
	}
}

func TestZeroMeansZero(t *testing.T) {
	file := writeConfig(t, `
[http]
addr = ""
idle = "0s"
body = 0
max_conns = 0
[index.dht]
enabled = false
hedge_ms = 0
threshold = 0
refresh = "0s"
[edge]
headers = []
query = false
max_bytes = 0
`)
	environ := []string{"MICRO_NODE__DRAIN=0s", "MICRO_NODE__WORKERS=0", "MICRO_EDGE__ALLOW="}
	got := mustLoad(t, config.Sources{File: file, Environ: environ}).Value
	if got.HTTP.Addr != "" || got.HTTP.Idle != 0 || got.HTTP.Body != 0 || got.HTTP.MaxConns != 0 || got.Node.Drain != 0 || got.Node.Workers != 0 {
		t.Errorf("a configured zero became something else: %+v", got)
	}
	if d := got.Index.DHT; d.Enabled.Or(true) || d.HedgeMS.Or(9) != 0 || d.Threshold != 0 || d.Refresh.Or(time.Hour) != 0 {
		t.Errorf("a configured zero became auto: %+v", d)
	}
	if e := got.Edge; len(e.Headers) != 0 || len(e.Allow) != 0 || e.Query || e.MaxBytes.Or(9) != 0 {
		t.Errorf("a configured zero became the default: %+v", e)
	}
}

// Every type, in every possible spelling.
func TestHowValuesAreWritten(t *testing.T) {
	for _, c := range []struct{ key, file, text, shown string }{
		{"node.drain", `"1200ms"`, "1200ms", "1.2s"},
		{"node.drain", `"60s"`, "1m", "1m"},
		{"node.drain", `"1h"`, "60m", "1h"},
		{"node.skew", `"-5s"`, "-5s", "-5s"},
		{"node.workers", `0x10`, "16", "16"},
		{"http.addr", `'C:\x'`, `C:\x`, `C:\x`},
		{"http.body", `65536`, "64 KiB", "64KiB"},
		{"http.body", `"64 KiB"`, "64KiB", "64KiB"},
		{"http.body", `"1025B"`, "1025", "1025B"},
		{"http.body", `"8388607TiB"`, "8388607TiB", "8388607TiB"},
		{"http.body", `"0"`, "0B", "0B"},
		{"http.max_conns", `1_000`, "1000", "1000"},
		{"index.dht.threshold", `1`, "1.0", "1"},
		{"index.dht.threshold", `2.5e-1`, "0.25", "0.25"},
		{"index.dht.enabled", `true`, "true", "true"},
		{"index.dht.enabled", `"auto"`, "auto", "auto"},
		{"index.dht.hedge_ms", `"auto"`, "auto", "auto"},
		{"index.dht.hedge_ms", `7`, "7", "7"},
		{"index.dht.refresh", `"5m"`, "300s", "5m"},
		{"edge.max_bytes", `"1GiB"`, "1024MiB", "1GiB"},
		{"edge.allow", `["a.example", "b.example"]`, " a.example, b.example ", "a.example,b.example"},
		{"edge.headers", `["vary"]`, "vary", "vary"},
		{"edge.query", `true`, "1", "true"},
		{"amnesia.enforce", `"off"`, "off", "off"},
	} {
		t.Run(c.key+"="+c.text, func(t *testing.T) {
			byFile := mustLoad(t, config.Sources{File: writeConfig(t, c.key+" = "+c.file)})
			byText := mustLoad(t, config.Sources{Flags: []config.Flag{{Key: c.key, Value: c.text, Name: "--x"}}})
			for how, loaded := range map[string]*config.Loaded[testConfig]{"file": byFile, "text": byText} {
				if e := entry(t, loaded, c.key); e.Value != c.shown {
					t.Errorf("from %s: %s, want %s", how, e.Value, c.shown)
				}
			}
		})
	}
}

func TestOriginsNameTheLine(t *testing.T) {
	file := writeConfig(t, "\ufeff# a comment\r\nnode.drain = \"1s\"\r\n\nhttp = { addr = \"x:1\",\n  idle = \"3s\" }\n[edge]\nallow = [\n  \"a\",\n  \"b\",\n]\n[index.dht]\n\"hedge_ms\" = 5\n")
	loaded := mustLoad(t, config.Sources{File: file})
	for key, want := range map[string]string{
		"node.drain":         "file:m.toml:2",
		"http.addr":          "file:m.toml:4",
		"http.idle":          "file:m.toml:5",
		"edge.allow":         "file:m.toml:7",
		"index.dht.hedge_ms": "file:m.toml:12",
		"index.cache":        "default",
	} {
		if got := loaded.Origin(key).String(); got != want {
			t.Errorf("%s: %s, want %s", key, got, want)
		}
	}
}

func TestEntriesAreInDeclaredOrderAndComplete(t *testing.T) {
	var keys []string
	for _, e := range mustLoad(t, config.Sources{}).Entries() {
		keys = append(keys, e.Key)
		if e.Doc == "" || e.Type == "" || !strings.HasPrefix(e.Variable, "MICRO_") {
			t.Errorf("incomplete: %+v", e)
		}
	}
	want := strings.Fields(`node.drain node.workers node.skew http.addr http.idle http.body http.max_conns
		index.dht.enabled index.dht.hedge_ms index.dht.threshold index.dht.refresh index.cache
		edge.allow edge.headers edge.query edge.max_bytes auth.root amnesia.enforce`)
	if !slices.Equal(keys, want) {
		t.Errorf("got  %v\nwant %v", keys, want)
	}
}

func TestEntriesAsJSON(t *testing.T) {
	loaded := mustLoad(t, config.Sources{Environ: []string{"MICRO_INDEX__DHT__HEDGE_MS=auto", "MICRO_AUTH__ROOT=hunter2"}})
	for key, want := range map[string]string{
		"index.dht.hedge_ms": `{"key":"index.dht.hedge_ms","value":"auto","origin":"env:MICRO_INDEX__DHT__HEDGE_MS","type":"integer, or \"auto\"","unit":"ms","doc":"When to ask a second time.","variable":"MICRO_INDEX__DHT__HEDGE_MS"}`,
		"auth.root":          `{"key":"auth.root","value":"[redacted]","origin":"env:MICRO_AUTH__ROOT","type":"secret text","doc":"What tokens are made from.","variable":"MICRO_AUTH__ROOT","secret":true}`,
		"amnesia.enforce":    `{"key":"amnesia.enforce","value":"auto","origin":"default","type":"text","doc":"Whether the kernel is asked to help.","variable":"MICRO_AMNESIA__ENFORCE","restart":true}`,
	} {
		got, err := json.Marshal(entry(t, loaded, key))
		if err != nil || string(got) != want {
			t.Errorf("%s, %v\nwant %s", got, err, want)
		}
	}
}

func TestFlagsOfOneListAddUp(t *testing.T) {
	file := writeConfig(t, `edge.allow = ["file"]`)
	flags := []config.Flag{{"edge.allow", "a,b", "--allow"}, {"edge.allow", "c", "--allow"}}
	got := mustLoad(t, config.Sources{File: file, Flags: flags}).Value.Edge.Allow
	if !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("got %q: the flags replace the file and add up among themselves", got)
	}
}

func TestReservedVariablesAreNotKeys(t *testing.T) {
	environ := []string{"MICRO_URL=http://x", "MICRO_TOKEN=t", "MICRO_THREADS=1", "MICRO_EDITOR=vi", "MICROSCOPE=1", "AMNESIA=1"}
	mustLoad(t, config.Sources{Environ: environ, Reserved: []string{"MICRO_EDITOR"}})
}

func TestLoadedListsAreNotTheDefaults(t *testing.T) {
	standard := defaults()
	loaded, err := config.Load(standard, config.Sources{})
	if err != nil {
		t.Fatal(err)
	}
	loaded.Value.Edge.Headers[0] = "range"
	if standard.Edge.Headers[0] != "accept" {
		t.Error("who changes a loaded list changes the defaults")
	}
}

func TestTheEffectiveFile(t *testing.T) {
	loaded := mustLoad(t, config.Sources{Environ: []string{"MICRO_AUTH__ROOT=hunter2", "MICRO_HTTP__ADDR=a\"b\\c\td\ne\x7f"}})
	const want = `[node]
drain = "2s"
workers = 4
skew = "0s"

[http]
addr = "a\"b\\c\td\ne\u007F"
idle = "1m"
body = "1MiB"
max_conns = 4096

[index]
cache = "10s"

[index.dht]
enabled = "auto"
hedge_ms = 150
threshold = 0.5
refresh = "auto"

[edge]
allow = []
headers = ["accept", "range"]
query = true
max_bytes = "64MiB"

[auth]
# root is a secret and not shown

[amnesia]
enforce = "auto"
`
	if got := loaded.TOML(); got != want {
		t.Errorf("got\n%s", got)
	}
	again := mustLoad(t, config.Sources{File: writeConfig(t, want)})
	if again.Value.HTTP.Addr != loaded.Value.HTTP.Addr {
		t.Errorf("loaded again: %q", again.Value.HTTP.Addr)
	}
}

// flat has settings outside of any section.
type flat struct {
	Profile string `toml:"profile" doc:"Which defaults."`
	Inner   struct {
		N int `toml:"n" doc:"A number."`
	} `toml:"inner" doc:"Inside."`
}

func TestSettingsOutsideOfSections(t *testing.T) {
	loaded, err := config.Load(flat{Profile: "micro"}, config.Sources{Environ: []string{"MICRO_PROFILE=macro", "MICRO_INNER__N=3"}})
	if err != nil || loaded.Value.Profile != "macro" || loaded.Value.Inner.N != 3 {
		t.Fatalf("%+v, %v", loaded, err)
	}
	if got := loaded.TOML(); got != "profile = \"macro\"\n\n[inner]\nn = 3\n" {
		t.Errorf("got %q", got)
	}
}
