package capability

import (
	"slices"
	"strings"
	"testing"

	"micronode/fault"
	"micronode/internal/testkit"
)

// The contract's list, copied by hand, and what was added to it: overlay:join,
// for nodes that are not configured as peers.
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
		testkit.WantKind(t, err, fault.Malformed, "unknown scope")
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

// The scopes of the mailbox can be narrowed to one; the wide one covers those
// too, and not the other way round.
func TestScopesForOneMailbox(t *testing.T) {
	for _, text := range []string{"mbox:send:jobs", "mbox:recv:a/b:c", "mbox:send:Übung", "mbox:recv:" + strings.Repeat("x", 384)} {
		if got, err := ParseScope(text); string(got) != text || err != nil {
			t.Errorf("ParseScope(%q) = %q, %v", text, got, err)
		}
	}
	for _, text := range []string{"mbox:send:", "mbox:send:a b", "mbox:send:a\tb", "mbox:recv:\xff", "mbox:send:e\u0301", "mbox:recv:" + strings.Repeat("x", 385), "object:put:x", "admin:x", "mbox:sendjobs"} {
		scope, err := ParseScope(text)
		testkit.WantKind(t, err, fault.Malformed, "a scope that cannot be narrowed so")
		if scope != "" || fault.NextOf(err) == "" {
			t.Errorf("ParseScope(%q) = %q; %s", text, scope, fault.NextOf(err))
		}
	}
	for _, c := range []struct {
		has, need Scope
		want      bool
	}{
		{MboxSend, "mbox:send:jobs", true}, {Admin, "mbox:send:jobs", true}, {"mbox:send:jobs", "mbox:send:jobs", true}, {MboxSend, "mbox:send:a b", true},
		{"mbox:send:jobs", MboxSend, false}, {"mbox:send:jobs", "mbox:send:jobs2", false}, {"mbox:send:jobs", "mbox:send:jobs:x", false},
		{"mbox:send:jobs", "mbox:recv:jobs", false}, {MboxSend, "mbox:recv:jobs", false}, {"mbox:send:jobs", Admin, false},
	} {
		if got := c.has.Covers(c.need); got != c.want {
			t.Errorf("%s covers %s: %t", c.has, c.need, got)
		}
	}
}

// What is left of a scope after it was narrowed again and again, for
// forwarding, and for people.
func TestWhatIsLeftOfAScope(t *testing.T) {
	a := freshAuthority(t)
	for _, c := range []struct {
		caveats [][]Scope
		left    []Scope // of mbox:send
	}{
		{[][]Scope{{Admin}}, []Scope{MboxSend}},
		{[][]Scope{{MboxSend}}, []Scope{MboxSend}},
		{[][]Scope{{MboxSend}, {"mbox:send:a", "mbox:send:b", MboxRecv}}, []Scope{"mbox:send:a", "mbox:send:b"}},
		{[][]Scope{{"mbox:send:a", "mbox:send:b"}, {"mbox:send:b", "mbox:send:c"}}, []Scope{"mbox:send:b"}},
		{[][]Scope{{"mbox:send:a"}, {"mbox:send:b"}}, nil},
		{[][]Scope{{"mbox:recv:a"}}, nil},
	} {
		token, err := a.Mint(Caveats{Scopes: c.caveats[0]})
		for _, more := range c.caveats[1:] {
			token, err = Attenuate(token, Caveats{Scopes: more})
		}
		if err != nil {
			t.Fatal(err)
		}
		left, err := a.RemainingScopes(token, MboxSend)
		if !slices.Equal(left, c.left) || (err == nil) != (c.left != nil) {
			t.Errorf("%v leaves %v, %v", c.caveats, left, err)
		}
		if door := a.Check(token, Request{Scope: MboxSend, AllowNarrowed: true}); (door == nil) != (c.left != nil) {
			t.Errorf("%v at the door: %v", c.caveats, door)
		}
		summary, err := Inspect(token)
		if err != nil || slices.Contains(summary.Scopes, MboxSend) != slices.Contains(c.left, MboxSend) || slices.Contains(summary.Scopes, "mbox:send:b") != slices.Contains(c.left, "mbox:send:b") {
			t.Errorf("%v is shown as %v, %v", c.caveats, summary.Scopes, err)
		}
		if err := a.Check(token, Request{Scope: MboxSend}); (err == nil) != slices.Contains(c.left, MboxSend) {
			t.Errorf("%v where nobody asks again: %v", c.caveats, err)
		}
	}
}

func FuzzParseScope(f *testing.F) {
	for _, scope := range Scopes() {
		f.Add(string(scope))
	}
	f.Add("object:putt")
	f.Add("*")
	f.Add("mbox:send:jobs")
	f.Fuzz(func(t *testing.T, text string) {
		scope, err := ParseScope(text)
		wide, name := Scope(text).split()
		known := slices.Contains(strings.Fields(contractScopes), text) || wide != "" && checkName(wide, name) == nil
		if known != (err == nil) || (known && string(scope) != text) {
			t.Errorf("ParseScope(%q) = %q, %v", text, scope, err)
		}
		if err != nil && len(err.Error()) > 300 {
			t.Errorf("an error of %d bytes", len(err.Error()))
		}
	})
}
