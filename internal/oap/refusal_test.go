package oap

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"micronode/fault"
)

// The contract's codes, and the kind of fault that each is closest to.
func TestCodesAreTheContracts(t *testing.T) {
	want := map[string]fault.Kind{
		"BadVersion": fault.Malformed, "FrameTooLarge": fault.FrameTooLarge, "RatioCap": fault.RatioCap, "QuotaExceeded": fault.QuotaExceeded,
		"Busy": fault.Busy, "NotReady": fault.NotReady, "Unauth": fault.Unauthorized, "Timeout": fault.Timeout, "Malformed": fault.Malformed,
	}
	if len(want) != len(kindOfCode) {
		t.Errorf("%d codes, the contract has %d", len(kindOfCode), len(want))
	}
	for text, kind := range want {
		code := Code(text)
		if !code.Known() || code.Kind() != kind {
			t.Errorf("%s: known %t, kind %s", text, code.Known(), code.Kind())
		}
		// The code of a peer survives the way through our own errors.
		heard := (&Error{Code: code, Msg: "because"}).Err()
		if CodeOf(fault.Wrap("overlay.session", heard)) != code || fault.KindOf(heard) != kind || !strings.Contains(heard.Error(), "because") {
			t.Errorf("%s came back as %s: %v", text, CodeOf(heard), heard)
		}
	}
}

func TestEveryKindHasACode(t *testing.T) {
	want := map[fault.Kind]Code{
		fault.Busy: Busy, fault.Backpressure: Busy, fault.StorageBusy: Busy, fault.Lagging: Busy,
		fault.QuotaExceeded: QuotaExceeded, fault.RateLimited: QuotaExceeded, fault.StoreFull: QuotaExceeded,
		fault.Timeout: Timeout, fault.FrameTooLarge: FrameTooLarge, fault.BodyTooLarge: FrameTooLarge, fault.RatioCap: RatioCap,
		fault.Unauthorized: Unauth, fault.Forbidden: Unauth, fault.RejectPolicy: Unauth, fault.UnknownSigner: Unauth, fault.RevokedKey: Unauth,
		fault.NotReady: NotReady, fault.Internal: NotReady, fault.Canceled: NotReady, fault.Degraded: NotReady, fault.BreakerOpen: NotReady,
		fault.Transient: NotReady, fault.NoRoute: NotReady, fault.BrokenPipe: NotReady, fault.UpstreamFailed: NotReady,
		fault.Malformed: Malformed, fault.InvalidSig: Malformed, fault.NotFound: Malformed, fault.Expired: Malformed,
	}
	for _, kind := range fault.Kinds() {
		code := CodeOf(fault.New("op", kind, "x"))
		if !code.Known() || want[kind] != "" && code != want[kind] {
			t.Errorf("%s: %s, want %s", kind, code, want[kind])
		}
		if same := Code(kind.Code()); same.Known() && code != same {
			t.Errorf("%s has a code of its own name, and gets %s", kind, code)
		}
	}
	if CodeOf(nil) != "" || CodeOf(errors.New("anything")) != NotReady {
		t.Error(CodeOf(nil), CodeOf(errors.New("anything")))
	}
}

// A newer peer's code is passed on as text, and counts as a transient failure.
func TestCodesThatWeDoNotKnow(t *testing.T) {
	m, err := Decode(encoded(t, &Error{Code: "TooSunny", Msg: "come at night"}))
	if err != nil {
		t.Fatal(err)
	}
	heard := m.(*Error).Err()
	if fault.KindOf(heard) != fault.Transient || !strings.Contains(heard.Error(), "TooSunny") || CodeOf(heard) != NotReady {
		t.Errorf("%v, %s, %s", heard, fault.KindOf(heard), CodeOf(heard))
	}
}

func TestEveryReasonIsComplete(t *testing.T) {
	labels := map[string]bool{}
	for _, r := range Reasons() {
		err := fault.Wrap("overlay.session", refuse("oap.x", r, "detail"))
		if r.Label() == "" || labels[r.Label()] || r.Error() == "" || !reasons[r].code.Known() {
			t.Errorf("reason %d is not complete: %+v", r, reasons[r])
		}
		labels[r.Label()] = true
		if ReasonOf(err) != r || !errors.Is(err, r) || !errors.Is(err, reasons[r].kind) || CodeOf(err) != reasons[r].code {
			t.Errorf("%s is lost on the way: %v", r, err)
		}
	}
	if ReasonOf(errors.New("x")) != 0 || ReasonOf(nil) != 0 {
		t.Error("an error that is not about bytes has a reason")
	}
}

func TestErrorForShowsNoSecrets(t *testing.T) {
	inner := fmt.Errorf("open /secret/path")
	m := ErrorFor(&fault.Error{Op: "x", Kind: fault.Busy, Detail: "the queue is full", Err: inner})
	if m.Code != Busy || m.Msg != "the queue is full" {
		t.Errorf("%+v", m)
	}
	if m := ErrorFor(inner); strings.Contains(m.Msg, "secret") || m.Msg == "" || m.Code != NotReady {
		t.Errorf("%+v", m)
	}
	long := ErrorFor(fault.New("x", fault.Malformed, "%s", strings.Repeat("é", maxText)+"\xff"))
	if _, err := Encode(nil, long); err != nil || len(long.Msg) > maxText {
		t.Errorf("%d bytes, %v", len(long.Msg), err)
	}
	odd := ErrorFor(fault.New("x", fault.Malformed, "%s", "x"+strings.Repeat("é", maxText)))
	if _, err := Encode(nil, odd); err != nil || len(odd.Msg) != maxText-1 {
		t.Errorf("%d bytes, %v", len(odd.Msg), err)
	}
}
