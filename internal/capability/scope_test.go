package capability

import (
	"slices"
	"strings"
	"testing"

	"micronode/fault"
)

// The contract's list, copied by hand, and what was added to it: overlay:join,
// for nodes that nobody named.
const contractScopes = "object:put object:rm name:set index:admin index:pin edge:purge overlay:pub overlay:join " +
	"registry:propose registry:approve registry:commit registry:supersede mbox:send mbox:recv feed:post graph:write admin"

func TestScopesAreTheContracts(t *testing.T) {
	if got := join(Scopes(), " "); got != contractScopes {
		t.Errorf("Scopes() = %s", got)
	}
	Scopes()[0] = "changed"
	if Scopes()[0] != ObjectPut {
		t.Error("a caller can change the list of scopes")
	}
}

func TestAdminImpliesAllAndTheOthersOnlyThemselves(t *testing.T) {
	for _, has := range Scopes() {
		for _, need := range Scopes() {
			if got, want := has.Covers(need), has == need || has == Admin; got != want {
				t.Errorf("%s covers %s: %t", has, need, got)
			}
		}
	}
}

func TestParseScope(t *testing.T) {
	for _, scope := range Scopes() {
		if got, err := ParseScope(string(scope)); got != scope || err != nil {
			t.Errorf("ParseScope(%q) = %q, %v", scope, got, err)
		}
	}
	for text, hint := range map[string]string{
		"object:pot":             `did you mean "object:put"?`,
		"objectput":              `did you mean "object:put"?`,
		"registry:aprove":        `did you mean "registry:approve"?`,
		"Admin":                  `did you mean "admin"?`,
		"":                       `unknown scope ""`,
		"*":                      `unknown scope "*"`,
		"zzzzzz":                 `unknown scope "zzzzzz"`,
		strings.Repeat("a", 1e6): `unknown scope`,
	} {
		scope, err := ParseScope(text)
		wantKind(t, "unknown scope", err, fault.Malformed)
		if scope != "" || err == nil || !strings.Contains(err.Error(), hint) || len(err.Error()) > 200 {
			t.Errorf("ParseScope(%.20q) = %q, %.300v", text, scope, err)
		}
		if next := fault.NextOf(err); !strings.Contains(next, "graph:write") {
			t.Errorf("the next step does not list the scopes: %s", next)
		}
	}
	if _, err := ParseScope("zzzzzz"); strings.Contains(err.Error(), "did you mean") {
		t.Errorf("a scope that is near nothing is guessed: %v", err)
	}
}

func FuzzParseScope(f *testing.F) {
	for _, scope := range Scopes() {
		f.Add(string(scope))
	}
	f.Add("object:putt")
	f.Add("*")
	f.Fuzz(func(t *testing.T, text string) {
		scope, err := ParseScope(text)
		known := slices.Contains(strings.Fields(contractScopes), text)
		if known != (err == nil) || (known && string(scope) != text) {
			t.Errorf("ParseScope(%q) = %q, %v", text, scope, err)
		}
		if err != nil && len(err.Error()) > 300 {
			t.Errorf("an error of %d bytes", len(err.Error()))
		}
	})
}
