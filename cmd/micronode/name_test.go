package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"micronode/fault"
)

func TestNames(t *testing.T) {
	node := newFakeIndex(t)
	s := newTestConsole(t)
	if s.expect(t, t.Context(), 0, []string{"name", "ls"}, "the node has no names\nSet one: micronode name set"); s.stdout.Len() > 0 {
		t.Errorf("it printed %q", &s.stdout)
	}
	if got := mustRun(t, "name", "ls", "--json"); got != "[]\n" {
		t.Errorf("%q", got)
	}
	address := addressOf("x")
	if got := mustRun(t, "name", "set", "docs", address); got != address+"  name:docs\n" || node.names["docs"] != address {
		t.Errorf("%q", got)
	}
	if got := mustRun(t, "name", "set", "name:docs", address, "--json"); got != fmt.Sprintf(`{"name":"docs","manifest":%q,"seq":1}`+"\n", address) {
		t.Errorf("%q", got)
	}
	for _, name := range []string{"docs", "name:docs"} {
		if got := mustRun(t, "name", "get", name); got != address+"\n" {
			t.Errorf("%q", got)
		}
	}
	if got := mustRun(t, "name", "get", "docs", "--json"); got != fmt.Sprintf(`{"name":"docs","manifest":%q,"source":"local"}`+"\n", address) {
		t.Errorf("%q", got)
	}
	if got, want := mustRun(t, "name", "ls"), fmt.Sprintf("  name  address%s since  \n  docs  %s  -      \n", strings.Repeat(" ", 61), address); strings.ReplaceAll(got, " ", "") != strings.ReplaceAll(want, " ", "") {
		t.Errorf("%q, not %q", got, want)
	}
	node.names["old"] = address
	if got := mustRun(t, "name", "ls"); !strings.Contains(got, "shadowed by the registry") {
		t.Errorf("%q", got)
	}
	if got := mustRun(t, "name", "rm", "docs"); got != "" || node.names["docs"] != "" {
		t.Errorf("%q", got)
	}
	if got := mustRun(t, "name", "rm", "name:old", "--json"); got != `{"name":"old","removed":true}`+"\n" {
		t.Errorf("%q", got)
	}
	newTestConsole(t).expect(t, t.Context(), fault.NotFound.Exit(), []string{"name", "rm", "docs"}, "docs: there is no such name")
	newTestConsole(t).expect(t, t.Context(), fault.NotFound.Exit(), []string{"name", "get", "docs"}, "nobody knows the name")
	newTestConsole(t).expect(t, t.Context(), fault.Conflict.Exit(), []string{"name", "set", "governed", address}, "the registry holds this name")
	newTestConsole(t).expect(t, t.Context(), fault.Malformed.Exit(), []string{"name", "set", "docs", "b3:beef"}, "is not an address")
}

func TestResolving(t *testing.T) {
	node := newFakeIndex(t)
	address := addressOf("x")
	node.names["docs"] = address
	want := "name:docs\n\n  address  " + address + "\n  source   local\n  age      1m1s\n\n" +
		"  provider                                              address        region  class  score  latency  seen\n" +
		"  " + someID + "  10.0.0.7:9500  eu      best   0.876  near     1m30s\n" +
		`  12D3\x1b[31m                                          -              -       poor   0.100  unknown  unknown` + "\n"
	if got := mustRun(t, "resolve", "name:docs"); got != want {
		t.Errorf("%s\n%s", got, want)
	}
	for _, flag := range []string{"--fresh=false", "--no-fresh"} {
		if got := mustRun(t, "resolve", "name:docs", flag); !strings.Contains(got, "1m1s, stale\n") {
			t.Errorf("%s", got)
		}
	}
	if got := mustRun(t, "resolve", "name:docs", "--json", "--fresh"); !strings.HasPrefix(got, `{"key":"name:docs","kind":"name","manifest_cid":"`+address+`","source":"local","etag":"","freshness_s":61,"providers":[{"id":"`) {
		t.Errorf("%s", got)
	}
	newTestConsole(t).expect(t, t.Context(), fault.NotFound.Exit(), []string{"resolve", "name:nothing"}, "nobody knows the name")
}

func TestProviders(t *testing.T) {
	node := newFakeIndex(t)
	address := addressOf("x")
	got := mustRun(t, "providers", address, "--limit", "3", "--region", "eu", "--min-freshness", "2m")
	if !strings.Contains(got, "  "+someID+"  10.0.0.7:9500  eu ") || !strings.HasSuffix(got, "\n\n  a hedged second look-up was sent, and won\n") {
		t.Errorf("%s", got)
	}
	if last := node.requests[len(node.requests)-1]; last != "GET /providers/"+address+"?limit=3&min_freshness=120&region=eu" {
		t.Errorf("%s", last)
	}
	if got := mustRun(t, "providers", addressOf("")); got != "  no provider is known\n" {
		t.Errorf("%q", got)
	}
	if got := mustRun(t, "providers", addressOf(""), "--json"); got != fmt.Sprintf(`{"cid":%q,"providers":[],"hedge":{"fired":false,"winner":"none"}}`+"\n", addressOf("")) {
		t.Errorf("%q", got)
	}
	for _, args := range [][]string{{"b3:beef"}, {address, "--limit=-1"}, {address, "--min-freshness", "10ms"}} {
		newTestConsole(t).expect(t, t.Context(), fault.Malformed.Exit(), append([]string{"providers"}, args...))
	}
	for wave, want := range map[string]string{"alpha": "the first one answered first", "none": "neither found it"} {
		if got := hedgeOutcome(wave); got != want {
			t.Errorf("%s: %s", wave, got)
		}
	}
}

func TestPinning(t *testing.T) {
	node := newFakeIndex(t)
	address := addressOf("x")
	node.objects[address] = []byte("x")
	if got := mustRun(t, "pin", address); got != "" {
		t.Errorf("%q", got)
	}
	if got := mustRun(t, "pin", address, "--json"); got != fmt.Sprintf(`{"address":%q,"pinned":true}`+"\n", address) {
		t.Errorf("%q", got)
	}
	if got := mustRun(t, "unpin", address, "--json"); got != fmt.Sprintf(`{"address":%q,"pinned":false}`+"\n", address) {
		t.Errorf("%q", got)
	}
	newTestConsole(t).expect(t, t.Context(), fault.Malformed.Exit(), []string{"pin", "b3:beef", address}, "is not an address")
	newTestConsole(t).expect(t, t.Context(), fault.NotFound.Exit(), []string{"pin", addressOf("absent")}, "there is no such object")
	if got := mustRun(t, "reindex"); got != "1 object\n" {
		t.Errorf("%q", got)
	}
	if got := mustRun(t, "reindex", "--json"); got != `{"objects":1}`+"\n" {
		t.Errorf("%q", got)
	}
	node.refusal = fault.Forbidden
	newTestConsole(t).expect(t, t.Context(), fault.Forbidden.Exit(), []string{"reindex"}, "not you")
}

// Every command reports a node that does not answer, and one that cannot be
// named.
func TestNoNodeForTheIndex(t *testing.T) {
	address := addressOf("x")
	for _, args := range [][]string{{"name", "ls"}, {"name", "set", "a", address}, {"name", "get", "a"}, {"name", "rm", "a"}, {"resolve", "a"},
		{"providers", address}, {"pin", address}, {"unpin", address}, {"reindex"}, {"get", "name:a"}} {
		t.Setenv("MICRO_URL", "nonsense")
		newTestConsole(t).expect(t, t.Context(), fault.Malformed.Exit(), args, "the URL of the node does not begin with http:// or https://")
		fakeNode(t, map[string]http.HandlerFunc{})
		newTestConsole(t).expect(t, t.Context(), fault.NotFound.Exit(), args)
	}
}
