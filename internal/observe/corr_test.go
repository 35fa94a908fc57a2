package observe_test

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"

	"micronode/internal/observe"
)

func TestNewCorrIDsAreWellFormedAndDiffer(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		id := observe.NewCorrID()
		if _, ok := observe.ParseCorrID(id); !ok || len(id) != 32 {
			t.Fatalf("%q is not 32 well-formed characters", id)
		}
		if seen[id] {
			t.Fatalf("%q came twice", id)
		}
		seen[id] = true
	}
}

func TestParseCorrID(t *testing.T) {
	for text, want := range map[string]bool{
		"":                                     false,
		"seven77":                              false,
		"eight888":                             true,
		strings.Repeat("a", 64):                true,
		strings.Repeat("a", 65):                false,
		"01J9Z3NDEKTSV4RRFFQ69G5FAV":           true,
		"123e4567-e89b-12d3-a456-426614174000": true,
		"with.dot_and-AZ09":                    true,
		"has space in it":                      false,
		"new\nline-injected":                   false,
		"quote\"quote":                         false,
		"naïve-naïve":                          false,
	} {
		id, ok := observe.ParseCorrID(text)
		if ok != want || ok && id != text || !ok && id != "" {
			t.Errorf("ParseCorrID(%q) = %q, %t", text, id, ok)
		}
	}
}

func TestCorrIDTravelsInTheContext(t *testing.T) {
	if id := observe.CorrID(context.Background()); id != "" {
		t.Errorf("a ctx that nobody marked carries %q", id)
	}
	if id := observe.CorrID(observe.WithCorrID(context.Background(), "request-1")); id != "request-1" {
		t.Errorf("carried %q", id)
	}
}

func TestCarryCorrID(t *testing.T) {
	carry := func(header string, ctx context.Context) (answer, carried string) {
		r := httptest.NewRequest("GET", "/", nil).WithContext(ctx)
		r.Header.Set(observe.CorrHeader, header)
		w := httptest.NewRecorder()
		r = observe.CarryCorrID(w, r)
		return w.Header().Get(observe.CorrHeader), observe.CorrID(r.Context())
	}
	if answer, carried := carry("client-chose-1", context.Background()); answer != "client-chose-1" || carried != answer {
		t.Errorf("a well-formed ID was not taken over: %q, %q", answer, carried)
	}
	if answer, carried := carry("bad id", context.Background()); len(answer) != 32 || carried != answer {
		t.Errorf("a malformed ID was not replaced: %q, %q", answer, carried)
	}
	marked := observe.WithCorrID(context.Background(), "from-ingress")
	if answer, carried := carry("client-chose-1", marked); answer != "from-ingress" || carried != answer {
		t.Errorf("the ID that the ctx carries must win: %q, %q", answer, carried)
	}
}
