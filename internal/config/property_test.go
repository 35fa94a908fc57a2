package config_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"micronode/internal/config"
	"micronode/internal/testkit"
)

// writtenValue is a value in the two ways in which it is written, and as it is
// shown.
type writtenValue struct{ inFile, asText, shown string }

// settings generates values for one key of each type.
var settings = map[string]*rapid.Generator[writtenValue]{
	"http.addr": rapid.Custom(func(t *rapid.T) writtenValue {
		text := rapid.StringMatching(`[a-z"\\ =#\[\]]{0,12}`).Draw(t, "text")
		return writtenValue{strconv.Quote(text), text, text}
	}),
	"http.max_conns": rapid.Custom(func(t *rapid.T) writtenValue {
		n := strconv.Itoa(rapid.IntMin(0).Draw(t, "n"))
		return writtenValue{n, n, n}
	}),
	"http.body": rapid.Custom(func(t *rapid.T) writtenValue {
		n := rapid.Int64Min(0).Draw(t, "bytes")
		return writtenValue{strconv.FormatInt(n, 10), strconv.FormatInt(n, 10), config.Size(n).String()}
	}),
	"node.skew": rapid.Custom(func(t *rapid.T) writtenValue {
		d := time.Duration(rapid.Int64().Draw(t, "ns")).String()
		return writtenValue{strconv.Quote(d), d, ""}
	}),
	"index.dht.enabled": rapid.Custom(func(t *rapid.T) writtenValue {
		word := rapid.SampledFrom([]string{"true", "false", "auto"}).Draw(t, "word")
		if word == "auto" {
			return writtenValue{`"auto"`, word, word}
		}
		return writtenValue{word, word, word}
	}),
	"index.dht.threshold": rapid.Custom(func(t *rapid.T) writtenValue {
		n := strconv.FormatFloat(rapid.Float64Range(0, 1e9).Draw(t, "n"), 'g', -1, 64)
		return writtenValue{n, n, n}
	}),
	"edge.allow": rapid.Custom(func(t *rapid.T) writtenValue {
		list := rapid.SliceOfN(rapid.StringMatching(`[a-z.]{1,6}`), 0, 4).Draw(t, "list")
		quoted := make([]string, len(list))
		for i, text := range list {
			quoted[i] = strconv.Quote(text)
		}
		joined := strings.Join(list, ",")
		return writtenValue{"[" + strings.Join(quoted, ",") + "]", joined, joined}
	}),
	"amnesia.enforce": rapid.Custom(func(t *rapid.T) writtenValue {
		word := rapid.SampledFrom([]string{"auto", "on", "off"}).Draw(t, "word")
		return writtenValue{strconv.Quote(word), word, word}
	}),
}

// The model of layering is a loop: the last layer with a value wins.
func TestLayeringIsWhoeverComesLast(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.toml")
	keys := sortedKeys(settings)
	rapid.Check(t, func(t *rapid.T) {
		want := map[string]string{} // value and origin, as shown
		for _, e := range loadOrFail(t, config.Sources{}).Entries() {
			want[e.Key] = e.Value + " default"
		}
		from := config.Sources{File: path}
		var lines []string
		for _, layer := range []string{"file", "env", "flag"} {
			for _, key := range rapid.Permutation(keys).Draw(t, "order of "+layer) {
				if !rapid.Bool().Draw(t, layer+" gives "+key) {
					continue
				}
				w := settings[key].Draw(t, layer+" "+key)
				if w.shown == "" && key == "node.skew" {
					d, _ := time.ParseDuration(w.asText)
					w.shown = short(d)
				}
				variable := "MICRO_" + strings.ToUpper(strings.ReplaceAll(key, ".", "__"))
				switch layer {
				case "file":
					lines = append(lines, key+" = "+w.inFile)
					want[key] = fmt.Sprintf("%s file:%s:%d", w.shown, path, len(lines))
				case "env":
					from.Environ = append(from.Environ, variable+"="+w.asText)
					want[key] = w.shown + " env:" + variable
				case "flag":
					from.Flags = append(from.Flags, config.Flag{Key: key, Value: w.asText, Name: "--" + key})
					want[key] = w.shown + " flag:--" + key
				}
			}
		}
		if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
			t.Fatal(err)
		}
		loaded := loadOrFail(t, from)
		for _, e := range loaded.Entries() {
			if got := e.Value + " " + e.Origin.String(); got != want[e.Key] {
				t.Errorf("%s: %s, want %s", e.Key, got, want[e.Key])
			}
		}
		roundTrip(t, loaded, path)
	})
}

// short writes a duration without trailing zeros, in another way than the
// package does.
func short(d time.Duration) string {
	text := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zero) {
			text = text[:len(text)-2]
		}
	}
	return text
}

// roundTrip checks that the effective file gives the same values again, and
// that every entry gives the same value as a variable.
func roundTrip(t testkit.T, loaded *config.Loaded[testConfig], path string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(loaded.TOML()), 0o600); err != nil {
		t.Fatalf("%v", err)
	}
	again := loadOrFail(t, config.Sources{File: path})
	var environ []string
	for i, e := range again.Entries() {
		before := loaded.Entries()[i]
		if e.Value != before.Value && !e.Secret {
			t.Errorf("%s was %q, and is %q when its own file is loaded", e.Key, before.Value, e.Value)
		}
		if !e.Secret && !listWithComma(loaded.Value, e.Key) && !strings.Contains(e.Value, "\x00") {
			environ = append(environ, e.Variable+"="+e.Value)
		}
	}
	for i, e := range loadOrFail(t, config.Sources{Environ: environ}).Entries() {
		before := loaded.Entries()[i]
		if e.Origin.Layer == config.LayerEnvironment && e.Value != before.Value {
			t.Errorf("%s was %q, and is %q as a variable", e.Key, before.Value, e.Value)
		}
	}
}

// listWithComma reports lists that a file can hold and a variable cannot: with
// commas or spaces in an element, or with an empty one.
func listWithComma(value testConfig, key string) bool {
	list := map[string][]string{"edge.allow": value.Edge.Allow, "edge.headers": value.Edge.Headers}[key]
	return slices.ContainsFunc(list, func(text string) bool {
		return text == "" || strings.Contains(text, ",") || strings.TrimSpace(text) != text
	})
}

func loadOrFail(t testkit.T, from config.Sources) *config.Loaded[testConfig] {
	t.Helper()
	loaded, err := config.Load(defaults(), from)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return loaded
}

func sortedKeys[V any](m map[string]V) []string {
	var keys []string
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
