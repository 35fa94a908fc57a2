package corr_test

import (
	"context"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"micronode/internal/corr"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestNewIDsAreValidAndDiffer(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		id := corr.New()
		if !corr.Valid(id) || len(id) != 32 {
			t.Fatalf("%q is not 32 well-formed characters", id)
		}
		if seen[id] {
			t.Fatalf("%q came twice", id)
		}
		seen[id] = true
	}
}

func TestValid(t *testing.T) {
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
		if corr.Valid(text) != want || corr.Valid([]byte(text)) != want {
			t.Errorf("Valid(%q) is not %t", text, want)
		}
	}
}

func TestTheContextCarriesIt(t *testing.T) {
	if id := corr.From(context.Background()); id != "" {
		t.Errorf("a ctx that nobody marked carries %q", id)
	}
	if id := corr.From(corr.With(context.Background(), "request-1")); id != "request-1" {
		t.Errorf("carried %q", id)
	}
}
