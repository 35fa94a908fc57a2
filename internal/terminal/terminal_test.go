package terminal

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"micronode/client"
	"micronode/fault"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Untrusted text stays readable and cannot act on a terminal.
func TestSanitize(t *testing.T) {
	for text, want := range map[string]string{
		"plain, grüße 😀":        "plain, grüße 😀",
		"\x1b[2J":               `\x1b[2J`,
		"\u009b31m\u202e\n\t":   `\u009b31m\u202e\n\t`,
		"\xff and \xc3 cut\xf0": `\xff and \xc3 cut\xf0`,
	} {
		if got := Sanitize(text); got != want {
			t.Errorf("%q became %q", text, got)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		safe := Sanitize(rapid.String().Draw(t, "text"))
		if strings.ContainsFunc(safe, func(r rune) bool { return r < ' ' || r >= 0x7f && r < 0xa0 || r == '\u202e' }) || Sanitize(safe) != safe {
			t.Fatalf("%q", safe)
		}
	})
	if got := Red.Paint("x"); got != "\x1b[31mx\x1b[0m" {
		t.Errorf("%q", got)
	}
}

func TestErrorText(t *testing.T) {
	cause := errors.New("connection refused")
	same := fault.New("client.dial", fault.NotReady, "no node")
	same.Err = cause
	for want, err := range map[string]error{
		"Not ready":                   &fault.Error{Op: "x", Kind: fault.NotReady},
		"no room":                     fault.New("store.put", fault.StoreFull, "no room"),
		"no node: connection refused": &fault.Error{Op: "client.dial", Kind: fault.NotReady, Detail: "no node", Err: wrapper{same}},
		"connection refused":          fault.Wrap("outer", fault.Wrap("inner", cause)),
		"one":                         errors.Join(errors.New("one"), nil),
		"one\ntwo":                    errors.Join(errors.New("one"), errors.New("two")),
		"step: connection refused":    &fault.Error{Op: "x", Kind: fault.Internal, Detail: "step", Err: cause},
	} {
		if got := ErrorText(err); got != want {
			t.Errorf("%v: it says %q, not %q", err, got, want)
		}
	}
}

// wrapper adds no text.
type wrapper struct{ error }

func (w wrapper) Unwrap() error { return w.error }

func TestColumnsAndNumbers(t *testing.T) {
	if got := Columns([][]string{{"a", "long word", ""}, {"bb", "c", "d"}}); !slices.Equal(got, []string{"  a   long word", "  bb  c          d"}) {
		t.Errorf("%q", got)
	}
	for want, milliseconds := range map[string]float64{"250µs": 0.25, "2.5ms": 2.5, "250ms": 250, "25s": 25_000} {
		if got := FormatMillis(&milliseconds); got != want {
			t.Errorf("%s, not %s", got, want)
		}
	}
	for want, rate := range map[string]float64{"0": 0, "0.5": 0.5, "12": 12.3} {
		if got := FormatRate(rate); got != want {
			t.Errorf("%s, not %s", got, want)
		}
	}
	if Pluralize(1, "file") != "1 file" || Pluralize(0, "file") != "0 files" {
		t.Error("a number and its noun do not agree")
	}
	if FormatMillis(nil) != "-" {
		t.Error("a time of nothing")
	}
}

func TestReadiness(t *testing.T) {
	for _, c := range []struct {
		ready, writes, degraded bool
		text                    string
		colour                  Colour
	}{
		{false, true, true, "not ready", Red},
		{true, false, true, "ready for reads only", Yellow},
		{true, true, true, "ready, but degraded", Yellow},
		{true, true, false, "ready", Green},
	} {
		if text, colour := ReadinessText(c.ready, c.writes, c.degraded); text != c.text || colour != c.colour {
			t.Errorf("%s, %q", text, colour)
		}
	}
	list := SortReasons(client.Readiness{Missing: []string{"store"}, Reasons: []client.Reason{{Dep: "amnesia"}, {Dep: "store"}}})
	if list[0].Dep != "store" || list[1].Dep != "amnesia" {
		t.Errorf("%+v", list)
	}
	err := NotReadyError(client.Readiness{Missing: []string{"store"}, Reasons: []client.Reason{{Dep: "amnesia", Reason: "off", Next: "Wait."}, {Dep: "store", Reason: "it is full", Next: "Remove objects."}}})
	if fault.KindOf(err) != fault.NotReady || ErrorText(err) != "the node is not ready: store: it is full\namnesia: off" || fault.NextOf(err) != "Remove objects." {
		t.Errorf("%v, %s", err, fault.NextOf(err))
	}
}

func TestSockets(t *testing.T) {
	for socket, want := range map[string][2]string{
		"":            {"", "@"},
		"mine":        {" --socket mine", "@mine"},
		"@mine":       {" --socket @mine", "@mine"},
		"/run/m.sock": {" --socket /run/m.sock", "/run/m.sock"},
		"it's mine":   {` --socket 'it'\''s mine'`, "@it's mine"},
	} {
		if got := [2]string{SocketFlag(socket), FormatSocket(socket)}; got != want {
			t.Errorf("%q: %q", socket, got)
		}
	}
}
