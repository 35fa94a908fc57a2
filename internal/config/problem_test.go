package config_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"micronode/fault"
	"micronode/internal/config"
)

// What an operator reads. Each case is one mistake, so the error is the one
// line, and the next step is separate.
func TestOneMistake(t *testing.T) {
	for name, c := range map[string]struct {
		file       string
		environ    []string
		flags      []config.Flag
		want, next string
	}{
		"misspelt in the file": {
			file: "[http]\n\nadr = 1",
			want: "file:m.toml:3: http.adr is not a key", next: "The nearest key is http.addr.",
		},
		"right name, wrong section": {
			file: "http.allow = []",
			want: "file:m.toml:1: http.allow is not a key", next: "The nearest key is edge.allow.",
		},
		"right name, misspelt section": {
			file: "index.dth.threshold = 1",
			want: "file:m.toml:1: index.dth.threshold is not a key", next: "The nearest key is index.dht.threshold.",
		},
		"no section at all": {
			file: "hedge_ms = 1",
			want: "file:m.toml:1: hedge_ms is not a key", next: "The nearest key is index.dht.hedge_ms.",
		},
		"swapped letters": {
			file: "[http]\nildee = 1",
			want: "file:m.toml:2: http.ildee is not a key", next: "The nearest key is http.idle.",
		},
		"a seed's name": {
			file: "drain_deadline = \"2s\"",
			want: "file:m.toml:1: drain_deadline is not a key", next: "The nearest key is node.drain.",
		},
		"a seed's name with a section": {
			file: "ingress.body_bytes = 5",
			want: "file:m.toml:1: ingress.body_bytes is not a key", next: "The nearest key is http.body.",
		},
		"a seed's name in our section": {
			file: "[http]\nbody_bytes = 5",
			want: "file:m.toml:2: http.body_bytes is not a key", next: "The nearest key is http.body.",
		},
		"a dot in quotes is not a level": {
			file: `"http.addr" = "x"`,
			want: `file:m.toml:1: "http.addr" is not a key`, next: "The nearest key is http.addr.",
		},
		"a very long key": {
			file: strings.Repeat("a", 5000) + " = 1",
			want: "file:m.toml:1: " + strings.Repeat("a", 64) + "… is not a key",
			next: "The nearest key is node.drain. If the file is for another version of micronode, `micronode config show` lists what this one knows.",
		},
		"misspelt section": {
			file: "[htpp]\naddr = \"x\"\nidle = \"5s\"",
			want: "file:m.toml:1: [htpp] is not a section", next: "The nearest section is [http].",
		},
		"a section of another version": {
			file: "[teleporter]\nrange = 1",
			want: "file:m.toml:1: [teleporter] is not a section",
			next: "The nearest section is [node]. If the file is for another version of micronode, `micronode config show` lists what this one knows.",
		},
		"a value as a section": {
			file: "[http.addr]\nhost = \"x\"",
			want: "file:m.toml:1: http.addr is a value, not a section", next: `For example: addr = "127.0.0.1:8080"`,
		},
		"a section as a value": {
			file: "http = 1",
			want: "file:m.toml:1: http is a section, not a value", next: "Write its settings below [http].",
		},
		"a list of sections": {
			file: "[[index]]\n[index.dht]\nhedge_ms = 1",
			want: "file:m.toml:1: index is one section, not a list of them", next: "Write [index], once.",
		},
		"a number without a unit": {
			file: "[http]\nidle = 60",
			want: "file:m.toml:2: http.idle: found the integer 60, want a duration with a unit, not below zero", next: `For example: idle = "1m"`,
		},
		"a duration below zero": {
			file: "[http]\nidle = \"-1s\"",
			want: `file:m.toml:2: http.idle: found the text "-1s", want a duration with a unit, not below zero`, next: `For example: idle = "1m"`,
		},
		"a number in quotes": {
			file: "[http]\nmax_conns = \"12\"",
			want: `file:m.toml:2: http.max_conns: found the text "12", want an integer, not below zero`, next: "For example: max_conns = 4096",
		},
		"a number below zero": {
			file: "index.dht.hedge_ms = -1",
			want: `file:m.toml:1: index.dht.hedge_ms: found the integer -1, want an integer, or the word "auto", not below zero`, next: "For example: hedge_ms = 150",
		},
		"a decimal unit": {
			file: "[http]\nbody = \"1MB\"",
			want: `file:m.toml:2: http.body: found the text "1MB", want a number of bytes, or one with the unit KiB, MiB, GiB or TiB`, next: `For example: body = "1MiB"`,
		},
		"a size below zero": {
			file: "[http]\nbody = -1",
			want: `file:m.toml:2: http.body: found the integer -1, want a number of bytes, or one with the unit KiB, MiB, GiB or TiB`, next: `For example: body = "1MiB"`,
		},
		"a size that is too large": {
			environ: []string{"MICRO_HTTP__BODY=8388608TiB"},
			want:    `env:MICRO_HTTP__BODY: http.body: found the text "8388608TiB", want a number of bytes, or one with the unit KiB, MiB, GiB or TiB`, next: `For example: MICRO_HTTP__BODY=1MiB`,
		},
		"a word that is not auto": {
			file: "index.dht.enabled = \"atuo\"",
			want: `file:m.toml:1: index.dht.enabled: found the text "atuo", want true or false, or the word "auto"`, next: `For example: enabled = "auto"`,
		},
		"not of the enum": {
			file: "amnesia.enforce = \"yes\"",
			want: `file:m.toml:1: amnesia.enforce: found the text "yes", want a text out of auto, on, off`, next: `For example: enforce = "auto"`,
		},
		"a list with one that is not of the enum": {
			file: "edge.headers = [\"accept\", \"cookie\"]",
			want: `file:m.toml:1: edge.headers: found the list ["accept", "cookie"], want a list of texts out of accept, range, vary`, next: `For example: headers = ["accept", "range"]`,
		},
		"a list that holds a number": {
			file: "edge.allow = [\"a\", 5]",
			want: "file:m.toml:1: edge.allow: found a list that holds the integer 5, want a list of texts", next: `For example: allow = ["…", "…"]`,
		},
		"a list that should be a text": {
			file: "http.addr = []",
			want: "file:m.toml:1: http.addr: found the list [], want a text", next: `For example: addr = "127.0.0.1:8080"`,
		},
		"a text that should be a list": {
			file: "edge.allow = \"a\"",
			want: `file:m.toml:1: edge.allow: found the text "a", want a list of texts`, next: `For example: allow = ["…", "…"]`,
		},
		"a number that is not finite": {
			file: "index.dht.threshold = inf",
			want: "file:m.toml:1: index.dht.threshold: found the number +Inf, want a finite number, not below zero", next: "For example: threshold = 0.5",
		},
		"a date": {
			file: "http.addr = 1979-05-27",
			want: "file:m.toml:1: http.addr: found a date or time, want a text", next: `For example: addr = "127.0.0.1:8080"`,
		},
		"a table": {
			file: "http.addr = {}",
			want: "file:m.toml:1: http.addr: found a table, want a text", next: `For example: addr = "127.0.0.1:8080"`,
		},
		"true for a text": {
			file: "http.addr = true",
			want: "file:m.toml:1: http.addr: found true, want a text", next: `For example: addr = "127.0.0.1:8080"`,
		},
		"a secret is not repeated": {
			file: "auth.root = 123456",
			want: "file:m.toml:1: auth.root: found an integer, want the secret itself, as a text", next: `For example: root = "…"`,
		},
		"what the node printed in place of a secret": {
			file: `auth.root = "[redacted]"`,
			want: "file:m.toml:1: auth.root: found a text, want the secret itself, as a text", next: `For example: root = "…"`,
		},
		"a key twice": {
			file: "[http]\naddr = \"a\"\n\naddr = \"b\"",
			want: "file:m.toml:4: not valid TOML: key addr is already defined", next: "Correct the line; the rest of the file was not checked.",
		},
		"a section twice": {
			file: "[http]\n[edge]\n[http]",
			want: "file:m.toml:3: not valid TOML: table http already exists", next: "Correct the line; the rest of the file was not checked.",
		},
		"without quotes": {
			file: "[http]\naddr = localhost",
			want: "file:m.toml:2: not valid TOML: unexpected character U+006C 'l' at start of value", next: "Correct the line; the rest of the file was not checked.",
		},
		"a number that no machine can hold": {
			file: "auth.root = 1e999",
			want: "file:m.toml:1: not valid TOML: unable to parse float", next: "Correct the line; the rest of the file was not checked.",
		},
		"too large a file": {
			file: strings.Repeat("#\n", 1<<19) + "#",
			want: "file:m.toml: cannot be read: it is larger than 1MiB", next: "Name a TOML file.",
		},
		"misspelt variable": {
			environ: []string{"MICRO_HTTP__ADR=x"},
			want:    "env:MICRO_HTTP__ADR: http.adr is not a key", next: "The nearest variable is MICRO_HTTP__ADDR; if it belongs to another program, unset it for the node.",
		},
		"one underscore": {
			environ: []string{"MICRO_HTTP_ADDR=x"},
			want:    "env:MICRO_HTTP_ADDR: http_addr is not a key", next: "The nearest variable is MICRO_HTTP__ADDR; if it belongs to another program, unset it for the node.",
		},
		"lower case": {
			environ: []string{"MICRO_http__addr=x"},
			want:    "env:MICRO_http__addr: http.addr is not a key", next: "The nearest variable is MICRO_HTTP__ADDR; if it belongs to another program, unset it for the node.",
		},
		"a name that would paint the terminal": {
			environ: []string{"MICRO_\x1b[31m=x"},
			want:    "env:MICRO_\uFFFD[31m: \uFFFD[31m is not a key", next: "The nearest variable is MICRO_NODE__DRAIN; if it belongs to another program, unset it for the node.",
		},
		"a value that would paint the terminal": {
			file: "amnesia.enforce = \"\\u001b[31m\\u0085\"",
			want: `file:m.toml:1: amnesia.enforce: found the text "\u001B[31m\u0085", want a text out of auto, on, off`, next: `For example: enforce = "auto"`,
		},
		"nothing where a number should be": {
			environ: []string{"MICRO_HTTP__MAX_CONNS="},
			want:    `env:MICRO_HTTP__MAX_CONNS: http.max_conns: found the text "", want an integer, not below zero`, next: "For example: MICRO_HTTP__MAX_CONNS=4096",
		},
		"nothing between commas": {
			environ: []string{"MICRO_EDGE__ALLOW=a,,b"},
			want:    `env:MICRO_EDGE__ALLOW: edge.allow: found the text "a,,b", want a list of texts`, next: "For example: MICRO_EDGE__ALLOW=…,…",
		},
		"not UTF-8": {
			environ: []string{"MICRO_HTTP__ADDR=\xff"},
			want:    "env:MICRO_HTTP__ADDR: http.addr: found the text \"\uFFFD\", want a text", next: "For example: MICRO_HTTP__ADDR=127.0.0.1:8080",
		},
		"not a duration": {
			flags: []config.Flag{{"node.drain", "soon", "--drain"}},
			want:  `flag:--drain: node.drain: found the text "soon", want a duration with a unit, not below zero`, next: "For example: --drain 2s",
		},
		"misspelt flag key": {
			flags: []config.Flag{{"node.dran", "2s", "--set"}},
			want:  "flag:--set: node.dran is not a key", next: "The nearest key is node.drain.",
		},
		"a flag twice": {
			flags: []config.Flag{{"node.drain", "1s", "--drain"}, {"node.drain", "2s", "--drain"}},
			want:  "flag:--drain: node.drain: given twice on the command line", next: "Give it once.",
		},
		"a list flag, the second wrong": {
			flags: []config.Flag{{"edge.headers", "vary", "--pass"}, {"edge.headers", "x", "--pass"}},
			want:  `flag:--pass: edge.headers: found the text "x", want a list of texts out of accept, range, vary`, next: "For example: --pass accept,range",
		},
	} {
		t.Run(name, func(t *testing.T) {
			from := config.Sources{Environ: c.environ, Flags: c.flags}
			if c.file != "" {
				from.File = writeConfig(t, c.file)
			}
			loaded, err := config.Load(defaults(), from)
			if loaded != nil || !errors.Is(err, fault.Malformed) || fault.KindOf(err) != fault.Malformed {
				t.Errorf("loaded %t, kind %s", loaded != nil, fault.KindOf(err))
			}
			if got := problems(err); got != c.want {
				t.Errorf("\ngot  %s\nwant %s", got, c.want)
			}
			if got := fault.NextOf(err); got != c.next {
				t.Errorf("\nnext %s\nwant %s", got, c.next)
			}
		})
	}
}

// All mistakes of all layers are reported at once: the file from top to bottom,
// then the variables by name, then the flags.
func TestAllMistakesAtOnce(t *testing.T) {
	file := writeConfig(t, "[http]\nadr = 1\nidle = 60\n[edgy]\nallow = 3\nquery = 4\n[index]\ndht = { hedge_ms = \"x\", treshold = 0 }\n")
	environ := []string{"MICRO_NODE__WORKERS=many", "MICRO_EDGE__QUERY=maybe"}
	flags := []config.Flag{{"amnesia.enforce", "no", "--amnesia"}}
	_, err := config.Load(defaults(), config.Sources{File: file, Environ: environ, Flags: flags})
	const want = `8 problems
  file:m.toml:2: http.adr is not a key. The nearest key is http.addr.
  file:m.toml:3: http.idle: found the integer 60, want a duration with a unit, not below zero. For example: idle = "1m"
  file:m.toml:4: [edgy] is not a section. The nearest section is [edge].
  file:m.toml:8: index.dht.hedge_ms: found the text "x", want an integer, or the word "auto", not below zero. For example: hedge_ms = 150
  file:m.toml:8: index.dht.treshold is not a key. The nearest key is index.dht.threshold.
  env:MICRO_EDGE__QUERY: edge.query: found the text "maybe", want true or false. For example: MICRO_EDGE__QUERY=true
  env:MICRO_NODE__WORKERS: node.workers: found the text "many", want an integer, not below zero. For example: MICRO_NODE__WORKERS=4
  flag:--amnesia: amnesia.enforce: found the text "no", want a text out of auto, on, off. For example: --amnesia auto`
	if got := problems(err); got != want {
		t.Errorf("got\n%s", got)
	}
	if list, ok := errors.AsType[config.Problems](err); !ok || len(list) != 8 || list[1].Key != "http.idle" {
		t.Errorf("a program cannot read them one by one: %v", list)
	}
	if one, ok := errors.AsType[*config.Problem](err); !ok || one.Key != "http.adr" {
		t.Errorf("the first of them: %v", one)
	}
}

func TestThereIsAnEndToMistakes(t *testing.T) {
	var lines strings.Builder
	var environ []string
	for i := range 100 {
		fmt.Fprintf(&lines, "x%d = 1\n", i)
		environ = append(environ, fmt.Sprintf("MICRO_X%d=1", i))
	}
	for what, from := range map[string]config.Sources{"lines": {File: writeConfig(t, lines.String())}, "variables": {Environ: environ}} {
		_, err := config.Load(defaults(), from)
		if list, _ := errors.AsType[config.Problems](err); len(list) != 32 {
			t.Errorf("%d wrong %s were told", len(list), what)
		}
	}
}

func TestFilesThatCannotBeRead(t *testing.T) {
	folder := t.TempDir()
	pipe := filepath.Join(folder, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	looped := filepath.Join(folder, "loop")
	if err := os.Symlink(looped, looped); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		path, want, next string
		kind             fault.Kind
	}{
		{filepath.Join(folder, "none"), "no such file or directory", "Write the file, or name another one.", fault.NotFound},
		{folder, "it is not a regular file", "Name a TOML file.", fault.Malformed},
		{pipe, "it is not a regular file", "Name a TOML file.", fault.Malformed},
		{looped, "too many levels of symbolic links", "Name a TOML file.", fault.Malformed},
	} {
		_, err := config.Load(defaults(), config.Sources{File: c.path})
		if got, want := problems(err), "file:"+c.path+": cannot be read: "+c.want; got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		if fault.KindOf(err) != c.kind || fault.NextOf(err) != c.next {
			t.Errorf("%s: kind %s, next %q", c.path, fault.KindOf(err), fault.NextOf(err))
		}
	}
}

// strict is a section inside another, both of which check themselves.
type strict struct {
	Listen listen   `toml:"listen" doc:"Listeners."`
	Names  []string `toml:"names" doc:"Names."`
	asked  *[]string
}

type listen struct {
	HTTP string `toml:"http" doc:"The gateway."`
	TLS  tls    `toml:"tls" doc:"Certificates."`
	log  *[]string
}

type tls struct {
	Cert string `toml:"cert" doc:"The certificate."`
	log  *[]string
}

func (s strict) Validate() error {
	*s.asked = append(*s.asked, "root")
	if len(s.Names) > 0 {
		return nil
	}
	return fault.New("node.validate", fault.Conflict, "there are no names")
}

func (l *listen) Validate() error {
	*l.log = append(*l.log, "listen")
	_, port, err := net.SplitHostPort(l.HTTP)
	switch {
	case err != nil:
		return config.Invalid("http", "Write host:port.", "%q is not an address", l.HTTP)
	case port == "1":
		return errors.Join(config.Invalid("http", "Take another port.", "port 1 is taken"), errors.New("and it is late"))
	case port == "2":
		return &fault.Error{Op: "http.validate", Kind: fault.Forbidden, Detail: "it is open to the world", Next: "Set tls.cert."}
	case port == "3":
		return fmt.Errorf("the listener: %w; and %w", fault.Conflict, errors.New("more"))
	}
	return nil
}

func (c *tls) Validate() error {
	*c.log = append(*c.log, "tls")
	if c.Cert == "bad" {
		return fault.Wrap("tls.load", config.Invalid("cert", "", "it has expired"))
	}
	return nil
}

func loadStrict(t *testing.T, file string) (asked []string, err error) {
	t.Helper()
	d := strict{Listen: listen{HTTP: "127.0.0.1:0", log: &asked, TLS: tls{log: &asked}}, Names: []string{"x"}, asked: &asked}
	_, err = config.Load(d, config.Sources{File: writeConfig(t, file), Environ: []string{"MICRO_LISTEN__TLS__CERT=" + os.Getenv("CERT")}})
	return asked, err
}

func TestSectionsCheckThemselves(t *testing.T) {
	for name, c := range map[string]struct {
		file, cert, want, next, asked string
		kind                          fault.Kind
	}{
		"all well, inner sections first": {asked: "tls listen root"},
		"a setting is named with its place": {
			file: "names = []\n[listen]\nhttp = \"nowhere\"", asked: "tls listen", kind: fault.Malformed,
			want: `file:m.toml:3: listen.http: "nowhere" is not an address`, next: "Write host:port.",
		},
		"what was joined is told apart": {
			file: "listen.http = \":1\"", asked: "tls listen", kind: fault.Malformed,
			want: "2 problems\n  file:m.toml:1: listen.http: port 1 is taken. Take another port.\n  listen: and it is late. Correct the setting that the error names.",
			next: "Correct each setting that an error names, then run `micronode config check`.",
		},
		"a fault keeps its kind and next step": {
			file: "listen.http = \":2\"", asked: "tls listen", kind: fault.Forbidden,
			want: "listen: it is open to the world", next: "Set tls.cert.",
		},
		"a sentence with several causes stays whole": {
			file: "listen.http = \":3\"", asked: "tls listen", kind: fault.Conflict,
			want: "listen: the listener: Conflict; and more", next: fault.Conflict.Next(),
		},
		"deep inside, from the environment": {
			cert: "bad", asked: "tls", kind: fault.Malformed,
			want: "env:MICRO_LISTEN__TLS__CERT: listen.tls.cert: it has expired", next: fault.Malformed.Next(),
		},
		"the root": {
			file: "names = []", asked: "tls listen root", kind: fault.Conflict,
			want: "there are no names", next: fault.Conflict.Next(),
		},
		"a section that could not be read is not asked": {
			file: "[listen]\nhttp = 5", asked: "tls", kind: fault.Malformed,
			want: "file:m.toml:2: listen.http: found the integer 5, want a text", next: `For example: http = "127.0.0.1:0"`,
		},
		"nobody is asked about a file that could not be read": {
			file: "=", asked: "", kind: fault.Malformed,
			want: "file:m.toml:1: not valid TOML: invalid character at start of key: U+003D '='", next: "Correct the line; the rest of the file was not checked.",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("CERT", c.cert)
			asked, err := loadStrict(t, c.file)
			if got := problems(err); got != c.want {
				t.Errorf("\ngot  %s\nwant %s", got, c.want)
			}
			if got := fault.NextOf(err); got != c.next || fault.KindOf(err) != c.kind {
				t.Errorf("kind %s, next %q", fault.KindOf(err), got)
			}
			if got := strings.Join(asked, " "); got != c.asked {
				t.Errorf("asked %q, want %q", got, c.asked)
			}
		})
	}
}

func TestAListOfWordsWithoutADefaultShowsAWord(t *testing.T) {
	type words struct {
		List []string `toml:"list" doc:"Words." enum:"red,blue"`
	}
	_, err := config.Load(words{}, config.Sources{File: writeConfig(t, "list = 5")})
	if got := fault.NextOf(err); got != `For example: list = ["red"]` {
		t.Error(got)
	}
}

func TestAnUnknownSectionWhereThereAreNone(t *testing.T) {
	_, err := config.Load(noSections{}, config.Sources{File: writeConfig(t, "[n]\n[m]\n")})
	if got := problems(err); got != "2 problems\n  file:m.toml:1: n is a value, not a section. For example: n = 1\n  file:m.toml:2: [m] is not a section. The nearest key is n." {
		t.Error(got)
	}
}

type noSections struct {
	N int `toml:"n" doc:"A number."`
}

// An Invalid about something that is not a setting has no origin to point to.
func (noSections) Validate() error { return config.Invalid("m", "Think again.", "it is not there") }

func TestWrongAboutNothing(t *testing.T) {
	_, err := config.Load(noSections{}, config.Sources{})
	if got := problems(err); got != "m: it is not there" || fault.NextOf(err) != "Think again." {
		t.Error(err)
	}
	if one := (noSections{}).Validate(); fault.KindOf(one) != fault.Malformed {
		t.Errorf("alone, it is %s", fault.KindOf(one))
	}
}

func TestAWrongDefaultIsCalledADefault(t *testing.T) {
	asked := []string{}
	_, err := config.Load(strict{Listen: listen{HTTP: "x", log: &asked, TLS: tls{log: &asked}}, asked: &asked}, config.Sources{})
	if got := problems(err); got != `default: listen.http: "x" is not an address` {
		t.Error(got)
	}
}

func TestMistakesOfDifferentKinds(t *testing.T) {
	_, err := config.Load(defaults(), config.Sources{File: "/nowhere/m.toml", Environ: []string{"MICRO_X=1"}})
	if fault.KindOf(err) != fault.Malformed || !errors.Is(err, fault.NotFound) || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("kind %s: %v", fault.KindOf(err), err)
	}
}
