package config_test

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"

	"micronode/fault"
	"micronode/internal/config"
)

// FuzzLoad: whatever is in the file, it loads or there is an error that names
// the file and what to do. If it loads, no key of the file was ignored, no
// other setting has it as its origin, and the effective file gives the same
// values again.
func FuzzLoad(f *testing.F) {
	f.Add([]byte("[http]\naddr = \"127.0.0.1:0\"\nidle = \"5s\"\nbody = \"64 KiB\"\nmax_conns = 0\n"))
	f.Add([]byte("index = { dht = { enabled = \"auto\", hedge_ms = 0x10, threshold = 1e-3 }, cache = '0' }\n"))
	f.Add([]byte("edge.allow = [\"a,b\", \"\", '''x\ny''']\nedge.headers = []\nauth.root = \"hunter2\"\n"))
	f.Add([]byte("[[index]]\n[index.dht]\nhedge_ms = 1\n[htpp]\n\"http.addr\" = 1\nhttp = 5\n"))
	f.Add([]byte("\ufeffhttp.addr = \"\\u0000\\u007F\\U0001F600\"\r\nnode.skew = \"-1h0m0s\"\r\n"))
	f.Add([]byte("[http]\naddr = \"a\"\naddr = \"b\"\n"))
	path := filepath.Join(f.TempDir(), "m.toml")
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		loaded, err := config.Load(defaults(), config.Sources{File: path})
		if err != nil {
			checkProblems(t, err, "file:"+path)
			return
		}
		var document map[string]any
		if err := toml.Unmarshal([]byte(strings.TrimPrefix(string(data), "\ufeff")), &document); err != nil {
			t.Fatalf("loaded what is not TOML: %v", err)
		}
		given := map[string]bool{}
		leaves(given, "", document)
		for _, e := range loaded.Entries() {
			if fromFile := e.Origin.Layer == config.LayerFile; fromFile != given[e.Key] {
				t.Errorf("%s: given in the file %t, origin %s", e.Key, given[e.Key], e.Origin)
			}
			delete(given, e.Key)
		}
		if len(given) > 0 {
			t.Errorf("passed over: %q", slices.Sorted(maps.Keys(given)))
		}
		roundTrip(t, loaded, path)
	})
}

// FuzzEnv: the same for variables, one a line.
func FuzzEnv(f *testing.F) {
	f.Add("MICRO_HTTP__ADDR=127.0.0.1:0\nMICRO_HTTP__IDLE=5s\nMICRO_URL=x")
	f.Add("MICRO_EDGE__ALLOW= a , b\nMICRO_EDGE__HEADERS=\nMICRO_EDGE__QUERY=T\nMICRO_AUTH__ROOT==")
	f.Add("MICRO_\nMICRO_HTTP\nMICRO_HTTP__=1\nMICRO_HTTP__ADDR__=1\nMICRO_\xff=\xfe")
	f.Add("MICRO_INDEX__DHT__THRESHOLD=NaN\nMICRO_INDEX__DHT__HEDGE_MS=+0\nMICRO_HTTP__BODY=9 TiB")
	path := filepath.Join(f.TempDir(), "m.toml")
	f.Fuzz(func(t *testing.T, text string) {
		loaded, err := config.Load(defaults(), config.Sources{Environ: strings.Split(text, "\n")})
		if err != nil {
			checkProblems(t, err, "env:MICRO_")
			return
		}
		roundTrip(t, loaded, path)
	})
}

// checkProblems demands that an error is useful to its reader.
func checkProblems(t *testing.T, err error, where string) {
	t.Helper()
	list, several := errors.AsType[config.Problems](err)
	if !several {
		one, _ := errors.AsType[*config.Problem](err)
		list = config.Problems{one}
	}
	for _, p := range list {
		if p == nil || !strings.HasPrefix(p.Where, where) || p.What == "" || p.Next == "" || p.Kind != fault.Malformed {
			t.Errorf("of no use: %+v", p)
		}
	}
}

// leaves lists the full keys of everything in a document that is not a table.
func leaves(into map[string]bool, key string, value any) {
	table, isTable := value.(map[string]any)
	if !isTable {
		into[strings.TrimPrefix(key, ".")] = true
		return
	}
	for name, inner := range table {
		leaves(into, key+"."+name, inner)
	}
}
