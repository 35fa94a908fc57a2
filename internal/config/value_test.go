package config_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/pelletier/go-toml/v2"

	"micronode/internal/config"
)

// A secret inside an unexported field is where most redaction ends: fmt does
// not call the methods of such a value.
type holder struct{ inside config.Secret }

func TestASecretIsNeverShown(t *testing.T) {
	const text = "hunter2"
	secret := config.NewSecret(text)
	shown := map[string]string{}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t", "%10s", "%T"} {
		shown[verb] = fmt.Sprintf(verb, secret)
		if shown[verb] != "[redacted]" && verb != "%T" {
			t.Errorf("%s prints %s", verb, shown[verb])
		}
		shown[verb+" of a pointer"] = fmt.Sprintf(verb, &secret)
		shown[verb+" of a holder"] = fmt.Sprintf(verb, holder{secret})
		shown[verb+" of a list"] = fmt.Sprintf(verb, []config.Secret{secret})
	}
	inJSON, _ := json.Marshal(map[string]any{"root": secret, "pointer": &secret})
	inTOML, _ := toml.Marshal(map[string]any{"root": secret})
	var log bytes.Buffer
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "root", secret, "holder", holder{secret})
	shown["JSON"], shown["TOML"], shown["log"], shown["text"] = string(inJSON), string(inTOML), log.String(), secret.String()

	loaded := mustLoad(t, config.Sources{Environ: []string{"MICRO_AUTH__ROOT=" + text}})
	shown["entries"] = fmt.Sprint(loaded.Entries())
	shown["loaded"] = fmt.Sprintf("%+v %#v", loaded, loaded.Value)
	shown["effective file"] = loaded.TOML()

	for how, got := range shown {
		if strings.Contains(got, text) || strings.Contains(got, fmt.Sprintf("%x", text)) {
			t.Errorf("%s shows it: %s", how, got)
		}
	}
	if shown["%v"] != "[redacted]" || shown["text"] != "[redacted]" || !strings.Contains(shown["log"], "root=[redacted]") ||
		string(inJSON) != `{"pointer":"[redacted]","root":"[redacted]"}` {
		t.Errorf("not what a reader expects: %v", shown)
	}
	if loaded.Value.Auth.Root.Reveal() != text || !loaded.Value.Auth.Root.IsSet() {
		t.Error("who asks for it does not get it")
	}
}

func TestSecretsCompare(t *testing.T) {
	var zero config.Secret
	if zero.IsSet() || zero.Reveal() != "" || !zero.Equal(config.NewSecret("")) {
		t.Error("the zero secret is the empty text")
	}
	if a := config.NewSecret("a"); !a.Equal(config.NewSecret("a")) || a.Equal(config.NewSecret("b")) || a.Equal(zero) {
		t.Error("secrets compare by their texts")
	}
	if e := entry(t, mustLoad(t, config.Sources{}), "auth.root"); e.Value != "" {
		t.Errorf("a secret that is not set is shown as %q", e.Value)
	}
}

func TestAuto(t *testing.T) {
	var zero config.Auto[int]
	if zero.Or(7) != 0 || zero.String() != "0" {
		t.Error("the zero value is a configured zero")
	}
	auto := config.Auto[config.Duration]{Auto: true, Value: time.Hour}
	if auto.Or(time.Second) != time.Second || auto.String() != "auto" {
		t.Error("auto leaves the value to the node")
	}
}

func TestSizesInWords(t *testing.T) {
	for size, want := range map[config.Size]string{
		0: "0B", 1: "1B", 1023: "1023B", config.KiB: "1KiB", config.KiB + 1: "1025B", 1536: "1536B",
		3 * config.MiB: "3MiB", config.GiB: "1GiB", 1024 * config.GiB: "1TiB", 5000 * config.TiB: "5000TiB",
	} {
		if size.String() != want {
			t.Errorf("%d is written %s, want %s", size, size, want)
		}
	}
}

func TestWhatIsNotASize(t *testing.T) {
	for _, text := range []string{"", "MiB", "-1", "+1", "1.5GiB", "1mib", "1MB", "1  MiB", "1MiB ", "1 ", "0x10", "9223372036854775808", "9007199254740992KiB"} {
		if _, err := config.Load(defaults(), config.Sources{Environ: []string{"MICRO_HTTP__BODY=" + text}}); err == nil {
			t.Errorf("%q was taken for a size", text)
		}
	}
}
