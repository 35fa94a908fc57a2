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
	s := newSession(t)
	if s.expect(t, t.Context(), 0, []string{"name", "ls"}, "the node has no names\nSet one: micronode name set"); s.stdout.Len() > 0 {
		t.Errorf("it printed %q", &s.stdout)
	}
	if got := run(t, "name", "ls", "--json"); got != "[]\n" {
		t.Errorf("%q", got)
	}
	address := addressOf("x")
	if got := run(t, "name", "set", "docs", address); got != address+"  name:docs\n" || node.names["docs"] != address {
		t.Errorf("%q", got)
	}
	if got := run(t, "name", "set", "name:docs", address, "--json"); got != fmt.Sprintf(`{"name":"docs","manifest":%q,"seq":1}`+"\n", address) {
		t.Errorf("%q", got)
	}
	for _, name := range []string{"docs", "name:docs"} {
		if got := run(t, "name", "get", name); got != address+"\n" {
			t.Errorf("%q", got)
		}
	}
	if got := run(t, "name", "get", "docs", "--json"); got != fmt.Sprintf(`{"name":"docs","manifest":%q,"source":"local"}`+"\n", address) {
		t.Errorf("%q", got)
	}
	if got, want := run(t, "name", "ls"), fmt.Sprintf("  name  address%s since  \n  docs  %s  -      \n", strings.Repeat(" ", 61), address); strings.ReplaceAll(got, " ", "") != strings.ReplaceAll(want, " ", "") {
		t.Errorf("%q, not %q", got, want)
	}
	node.names["old"] = address
	if got := run(t, "name", "ls"); !strings.Contains(got, "shadowed by the registry") {
		t.Errorf("%q", got)
	}
	if got := run(t, "name", "rm", "docs"); got != "" || node.names["docs"] != "" {
		t.Errorf("%q", got)
	}
	if got := run(t, "name", "rm", "name:old", "--json"); got != `{"name":"old","removed":true}`+"\n" {
		t.Errorf("%q", got)
	}
	newSession(t).expect(t, t.Context(), fault.NotFound.Exit(), []string{"name", "rm", "docs"}, "docs: there is no such name")
	newSession(t).expect(t, t.Context(), fault.NotFound.Exit(), []string{"name", "get", "docs"}, "nobody knows the name")
	newSession(t).expect(t, t.Context(), fault.Conflict.Exit(), []string{"name", "set", "governed", address}, "the registry holds this name")
	newSession(t).expect(t, t.Context(), fault.Malformed.Exit(), []string{"name", "set", "docs", "b3:beef"}, "is not an address")
}

func TestResolving(t *testing.T) {
	node := newFakeIndex(t)
	address := addressOf("x")
	node.names["docs"] = address
	want := "name:docs\n\n  address  " + address + "\n  source   local\n  age      1m1s\n\n" +
		"  provider                                              address        region  class  score  latency  seen\n" +
		"  " + someID + "  10.0.0.7:9500  eu      best   0.876  near     1m30s\n" +
		`  12D3\x1b[31m                                          -              -       poor   0.100  unknown  unknown` + "\n"
	if got := run(t, "resolve", "name:docs"); got != want {
		t.Errorf("%s\n%s", got, want)
	}
	for _, flag := range []string{"--fresh=false", "--no-fresh"} {
		if got := run(t, "resolve", "name:docs", flag); !strings.Contains(got, "1m1s, stale\n") {
			t.Errorf("%s", got)
		}
	}
	if got := run(t, "resolve", "name:docs", "--json", "--fresh"); !strings.HasPrefix(got, `{"key":"name:docs","kind":"name","manifest_cid":"`+address+`","source":"local","etag":"","freshness_s":61,"providers":[{"id":"`) {
		t.Errorf("%s", got)
	}
	newSession(t).expect(t, t.Context(), fault.NotFound.Exit(), []string{"resolve", "name:nothing"}, "nobody knows the name")
}

func TestProviders(t *testing.T) {
	node := newFakeIndex(t)
	address := addressOf("x")
	got := run(t, "providers", address, "--limit", "3", "--region", "eu", "--min-freshness", "2m")
	if !strings.Contains(got, "  "+someID+"  10.0.0.7:9500  eu ") || !strings.HasSuffix(got, "\n\n  a second wave of questions was sent, and won\n") {
		t.Errorf("%s", got)
	}
	if last := node.asked[len(node.asked)-1]; last != "GET /providers/"+address+"?limit=3&min_freshness=120&region=eu" {
		t.Errorf("%s", last)
	}
	if got := run(t, "providers", addressOf("")); got != "  nobody is known to have it\n" {
		t.Errorf("%q", got)
	}
	if got := run(t, "providers", addressOf(""), "--json"); got != fmt.Sprintf(`{"cid":%q,"providers":[],"hedge":{"fired":false,"winner":"none"}}`+"\n", addressOf("")) {
		t.Errorf("%q", got)
	}
	for _, args := range [][]string{{"b3:beef"}, {address, "--limit=-1"}, {address, "--min-freshness", "10ms"}} {
		newSession(t).expect(t, t.Context(), fault.Malformed.Exit(), append([]string{"providers"}, args...))
	}
	for wave, want := range map[string]string{"alpha": "the first one won all the same", "none": "neither found it"} {
		if got := winner(wave); got != want {
			t.Errorf("%s: %s", wave, got)
		}
	}
}

func TestPinning(t *testing.T) {
	node := newFakeIndex(t)
	address := addressOf("x")
	node.objects[address] = []byte("x")
	if got := run(t, "pin", address); got != "" {
		t.Errorf("%q", got)
	}
	if got := run(t, "pin", address, "--json"); got != fmt.Sprintf(`{"address":%q,"pinned":true}`+"\n", address) {
		t.Errorf("%q", got)
	}
	if got := run(t, "unpin", address, "--json"); got != fmt.Sprintf(`{"address":%q,"pinned":false}`+"\n", address) {
		t.Errorf("%q", got)
	}
	newSession(t).expect(t, t.Context(), fault.Malformed.Exit(), []string{"pin", "b3:beef", address}, "is not an address")
	newSession(t).expect(t, t.Context(), fault.NotFound.Exit(), []string{"pin", addressOf("absent")}, "there is no such object")
	if got := run(t, "reindex"); got != "1 object\n" {
		t.Errorf("%q", got)
	}
	if got := run(t, "reindex", "--json"); got != `{"objects":1}`+"\n" {
		t.Errorf("%q", got)
	}
	node.refusal = fault.Forbidden
	newSession(t).expect(t, t.Context(), fault.Forbidden.Exit(), []string{"reindex"}, "not you")
}

// Whatever the command, a node that is not there, and one that cannot be named,
// are told.
func TestNoNodeForTheIndex(t *testing.T) {
	address := addressOf("x")
	for _, args := range [][]string{{"name", "ls"}, {"name", "set", "a", address}, {"name", "get", "a"}, {"name", "rm", "a"}, {"resolve", "a"},
		{"providers", address}, {"pin", address}, {"unpin", address}, {"reindex"}, {"get", "name:a"}} {
		t.Setenv("MICRO_URL", "nonsense")
		newSession(t).expect(t, t.Context(), fault.Malformed.Exit(), args, "the URL of the node does not begin with http:// or https://")
		fakeNode(t, map[string]http.HandlerFunc{})
		newSession(t).expect(t, t.Context(), fault.NotFound.Exit(), args)
	}
}
