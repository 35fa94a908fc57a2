package observe_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"testing/slogtest"
	"testing/synctest"
	"time"

	"micronode/fault"
	"micronode/internal/corr"
	"micronode/internal/observe"
)

func newLogs(t *testing.T, format string) (*observe.Logs, *bytes.Buffer) {
	t.Helper()
	out := new(bytes.Buffer)
	logs, err := observe.NewLogs(out, format)
	if err != nil {
		t.Fatal(err)
	}
	return logs, out
}

func TestLogsKeepTheRulesOfSlog(t *testing.T) {
	var out bytes.Buffer
	slogtest.Run(t, func(t *testing.T) slog.Handler {
		out.Reset()
		logs, err := observe.NewLogs(&out, "json")
		if err != nil {
			t.Fatal(err)
		}
		return logs.Logger().Handler()
	}, func(t *testing.T) map[string]any {
		var line map[string]any
		if err := json.Unmarshal(out.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		return line
	})
}

// A capability of this node is not in a log line, wherever in it and however it
// was encoded: in a URL, an error, a header, a message.
func TestNoCapabilityIsLogged(t *testing.T) {
	const token = "mn1_AgIZAQEICh4jT2dKv-AAAAAAAAAAAgAABiDx_2y0x7VhQ2pq9bM3n4kR5tL8sWcZ1eYdUfGhIjKl"
	escaped := strings.ReplaceAll(strings.ReplaceAll(token, "_", "%5F"), "A", "%41")
	secretPart := token[20:40]
	for name, text := range map[string]string{
		"as it is":        token,
		"percent-encoded": escaped,
		"twice":           url.QueryEscape(escaped),
		"base64":          base64.StdEncoding.EncodeToString([]byte("user:" + token)),
		"base64 of a URL": url.QueryEscape(base64.URLEncoding.EncodeToString([]byte(token))),
	} {
		for _, format := range []string{"json", "text"} {
			logs, out := newLogs(t, format)
			logs.SetLevel(slog.LevelDebug)
			target := &url.URL{Scheme: "https", Host: "tiles.test", Path: "/x", RawQuery: "q=" + text}
			logs.Logger().Debug("asked for /"+text+"/x", "url", target, "path", "/"+text+"/x", "err", &url.Error{Op: "Get", URL: target.String(), Err: errors.New("Bearer " + text)},
				"header", http.Header{"Referer": {"https://tiles.test/?" + text}, "X-" + text: {"1"}}, "query", url.Values{text: {text}})
			line := out.String()
			if strings.Count(line, "[redacted]") < 5 {
				t.Errorf("%s: %s", name, line)
			}
			for _, part := range []string{secretPart, text[len(text)-30:]} {
				if strings.Contains(line, part) {
					t.Errorf("%s: %q is in %s", name, part, line)
				}
			}
		}
	}
}

// A journal has the time of each line; a program that reads JSON wants it too.
func TestAJournalAddsTheTime(t *testing.T) {
	for format, want := range map[string]string{"text": `level=INFO msg=hello http.time=noon` + "\n", "json": `{"time":`} {
		out := new(bytes.Buffer)
		logs, err := observe.NewJournalLogs(out, format)
		if err != nil {
			t.Fatal(err)
		}
		logs.Logger().WithGroup("http").Info("hello", "time", "noon")
		if !strings.HasPrefix(out.String(), want) {
			t.Errorf("%s: %s", format, out)
		}
	}
}

func TestLogLinesCarryTheCorrelationID(t *testing.T) {
	logs, out := newLogs(t, "json")
	ctx := corr.With(context.Background(), "request-1")
	logger := logs.Logger().With("service", "edge")

	logger.InfoContext(ctx, "plain")
	logger.WithGroup("http").With("route", "/o/{b3}").WithGroup("client").InfoContext(ctx, "grouped", "tries", 2)
	logger.InfoContext(context.Background(), "nobody asked")

	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	for i, want := range []string{
		`"msg":"plain","service":"edge","corr_id":"request-1"}`,
		`"msg":"grouped","service":"edge","http":{"route":"/o/{b3}","client":{"tries":2}},"corr_id":"request-1"}`,
		`"msg":"nobody asked","service":"edge"}`,
	} {
		if !strings.HasSuffix(lines[i], want) {
			t.Errorf("line %d is\n%s\nwant it to end in\n%s", i, lines[i], want)
		}
	}
}

func TestLoggersOfOneParentDoNotShareAttributes(t *testing.T) {
	logs, out := newLogs(t, "text")
	parent := logs.Logger().WithGroup("g")
	for range 9 { // somewhere on the way there is room behind the attributes
		parent = parent.With("a", 1)
		one, two := parent.With("b", 2), parent.With("c", 3)
		out.Reset()
		one.Info("x")
		two.Info("y")
		if text := out.String(); !strings.Contains(text, "g.a=1 g.b=2\n") || !strings.Contains(text, "g.a=1 g.c=3\n") {
			t.Error(text)
		}
	}
	for range 9 {
		parent = parent.WithGroup("h")
		one, two := parent.WithGroup("i"), parent.WithGroup("j")
		out.Reset()
		one.Info("x", "b", 2)
		two.Info("y", "c", 3)
		if text := out.String(); !strings.Contains(text, "h.i.b=2\n") || !strings.Contains(text, "h.j.c=3\n") {
			t.Error(text)
		}
	}
	if parent.Handler().WithGroup("") != parent.Handler() {
		t.Error("a group without a name must change nothing")
	}
}

type credentials struct {
	User     string
	Password string
	Nested   []map[string]any
}

// unprintable cannot be encoded.
type unprintable struct{ Channel chan int }

// brokenMarshaler claims to be JSON and is not.
type brokenMarshaler struct{}

func (brokenMarshaler) MarshalJSON() ([]byte, error) { return nil, errors.New("no") }

// hidden hides itself, as a secret of the configuration does.
type hidden string

func (hidden) LogValue() slog.Value         { return slog.StringValue("***") }
func (hidden) MarshalText() ([]byte, error) { return []byte("***"), nil }

func TestSecretsAreTakenOutOfLogLines(t *testing.T) {
	where, err := url.Parse("https://ada:hunter2@host/x?token=hunter2")
	if err != nil {
		t.Fatal(err)
	}
	for name, log := range map[string]func(*slog.Logger){
		"by key":           func(l *slog.Logger) { l.Info("m", "token", "hunter2") },
		"by key, any case": func(l *slog.Logger) { l.Info("m", "X-API-Key", "hunter2") },
		"by key, any kind": func(l *slog.Logger) { l.Info("m", "seed", []byte("hunter2")) },
		"in With":          func(l *slog.Logger) { l.With("cookie", "hunter2").Info("m") },
		"in a group":       func(l *slog.Logger) { l.Info("m", slog.Group("http", slog.Group("h", "Authorization", "hunter2"))) },
		"in WithGroup":     func(l *slog.Logger) { l.WithGroup("auth_token").With("value", "hunter2").Info("m", "also", "hunter2") },
		"by type":          func(l *slog.Logger) { l.Info("m", "x", hidden("hunter2")) },
		"by type, in any":  func(l *slog.Logger) { l.Info("m", "x", map[string]any{"y": hidden("hunter2")}) },
		"by shape":         func(l *slog.Logger) { l.Info("m", "header", "Bearer hunter2") },
		"in the message":   func(l *slog.Logger) { l.Info("got Bearer hunter2") },
		"in an error": func(l *slog.Logger) {
			l.Info("m", "err", fmt.Errorf("dial: %w", errors.New("https://ada:hunter2@host refused")))
		},
		"in a struct": func(l *slog.Logger) { l.Info("m", "cfg", credentials{User: "ada", Password: "hunter2"}) },
		"deep in a struct": func(l *slog.Logger) {
			l.Info("m", "cfg", &credentials{Nested: []map[string]any{{"api_key": "hunter2", "n": 1}}})
		},
		"in headers":        func(l *slog.Logger) { l.Info("m", "h", http.Header{"Cookie": {"hunter2"}, "X": {"Bearer hunter2"}}) },
		"in a URL":          func(l *slog.Logger) { l.Info("m", "url", where) },
		"what is not known": func(l *slog.Logger) { l.Info("m", "x", unprintable{}, "y", brokenMarshaler{}) },
	} {
		for _, format := range []string{"json", "text"} {
			logs, out := newLogs(t, format)
			log(logs.Logger())
			if text := out.String(); strings.Contains(text, "hunter2") || strings.Contains(text, "aHVudGVyMg") || !strings.Contains(text, "m") {
				t.Errorf("%s, %s: %s", name, format, text)
			}
		}
	}
}

func TestWhatIsNoSecretStaysAsItWas(t *testing.T) {
	logs, out := newLogs(t, "json")
	logs.Logger().Info("m", "route", "/o/{b3}", "n", 7, "took", time.Second, "ok", true, "nothing", nil,
		"addr", netip.MustParseAddr("127.0.0.1"), "cfg", credentials{User: "ada"}, "big", map[string]any{"n": uint64(1) << 60},
		"url", &url.URL{Scheme: "https", Host: "host", Path: "/x"}, "err", fault.New("store.put", fault.StoreFull, "3 left"))
	want := `"msg":"m","route":"/o/{b3}","n":7,"took":"1s","ok":true,"nothing":null,"addr":"127.0.0.1",` +
		`"cfg":{"Nested":null,"Password":"[redacted]","User":"ada"},"big":{"n":1152921504606846976},"url":"https://host/x","err":"store.put: 3 left"}`
	if line := strings.TrimSpace(out.String()); !strings.HasSuffix(line, want) {
		t.Errorf("%s\nwant it to end in\n%s", line, want)
	}
}

func TestTheLevelCanBeChangedWhileRunning(t *testing.T) {
	logs, out := newLogs(t, "text")
	kept := logs.Logger().With("a", 1).WithGroup("g")
	kept.Debug("hidden")
	logs.SetLevel(slog.LevelDebug)
	kept.Debug("shown")
	level, err := observe.ParseLevel("error")
	if err != nil {
		t.Fatal(err)
	}
	logs.SetLevel(level)
	kept.Warn("hidden again")
	if text := out.String(); strings.Contains(text, "hidden") || !strings.Contains(text, "shown") {
		t.Error(text)
	}
}

func TestWrongLogSettingsNameTheRightOnes(t *testing.T) {
	_, err := observe.NewLogs(nil, "xml")
	if fault.KindOf(err) != fault.Malformed || !strings.Contains(fault.NextOf(err), `"json" or "text"`) {
		t.Errorf("%v: %s", err, fault.NextOf(err))
	}
	_, err = observe.ParseLevel("loud")
	if fault.KindOf(err) != fault.Malformed || !strings.Contains(fault.NextOf(err), "debug, info, warn or error") {
		t.Errorf("%v: %s", err, fault.NextOf(err))
	}
}

func TestLagIsWarnedAtMostOnceInFiveSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logs, out := newLogs(t, "text")
		lag := observe.NewLagLog(logs.Logger().Warn)

		lag.Lagged("node/bus", "gateway", 3)
		lag.Lagged("node/bus", "edge", 1) // another consumer has its own five seconds
		lag.Lagged("edge/events", "gateway", 9)
		for range 4 {
			time.Sleep(time.Second)
			lag.Lagged("node/bus", "gateway", 10)
		}
		time.Sleep(time.Second)
		lag.Lagged("node/bus", "gateway", 2)

		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		want := []string{"bus=node/bus consumer=gateway missed=3", "consumer=edge missed=1", "bus=edge/events consumer=gateway missed=9", "bus=node/bus consumer=gateway missed=42"}
		if len(lines) != len(want) {
			t.Fatalf("%d lines, want %d:\n%s", len(lines), len(want), out)
		}
		for i := range want {
			if !strings.Contains(lines[i], want[i]) || !strings.Contains(lines[i], "level=WARN") {
				t.Errorf("line %d: %s\nwant %s", i, lines[i], want[i])
			}
		}
	})
}

func TestLagOfEndlessConsumersIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logs, out := newLogs(t, "text")
		lag := observe.NewLagLog(logs.Logger().Warn)
		for i := range 1000 {
			lag.Lagged("node/bus", fmt.Sprint("peer", i), 1)
		}
		if n := strings.Count(out.String(), "\n"); n != 257 {
			t.Errorf("%d lines for 1000 made-up names; 256 names and one line for the others were expected", n)
		}
	})
}
