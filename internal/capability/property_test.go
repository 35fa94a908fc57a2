package capability

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// The worlds that the property tests draw from are small, so that caveats and
// requests meet often.
var (
	somePaths   = []string{"/", "/o", "/o/a", "/o/a/b", "/other", "/names/my doc", "/names/\"x\"", "/é"}
	someTopics  = []string{"news", "news/local", "newsroom", "a b/c", "chat"}
	someClients = []string{"10.0.0.0/8", "10.1.0.0/16", "10.1.2.3/32", "0.0.0.0/0", "2001:db8::/32", "::/0"}
	someIPs     = []string{"10.1.2.3", "10.1.9.9", "10.9.9.9", "11.0.0.1", "2001:db8::1", "2001:db9::1", "::ffff:10.1.2.3"}
)

func some[T any](rt *rapid.T, label string, from []T) []T {
	if rapid.Bool().Draw(rt, "without "+label) {
		return nil
	}
	return rapid.SliceOfN(rapid.SampledFrom(from), 1, 3).Draw(rt, label)
}

func drawCaveats(rt *rapid.T) Caveats {
	c := Caveats{
		Scopes: some(rt, "scopes", []Scope{ObjectPut, ObjectRm, OverlayPub, Admin}),
		Paths:  some(rt, "paths", somePaths),
		Topics: some(rt, "topics", someTopics),
	}
	for _, network := range some(rt, "clients", someClients) {
		c.Clients = append(c.Clients, netip.MustParsePrefix(network))
	}
	if rapid.Bool().Draw(rt, "expires") {
		c.Expires = noon.Add(time.Duration(rapid.IntRange(-2, 2).Draw(rt, "hours")) * time.Hour)
	}
	return c
}

func drawRequest(rt *rapid.T) Request {
	return Request{
		Scope:    rapid.SampledFrom([]Scope{ObjectPut, ObjectRm, OverlayPub, Admin, Any}).Draw(rt, "scope"),
		Path:     rapid.SampledFrom(append(somePaths, "", "/o/a/..", "/o/x")).Draw(rt, "path"),
		Topic:    rapid.SampledFrom(append(someTopics, "", "news/x")).Draw(rt, "topic"),
		ClientIP: netip.MustParseAddr(rapid.SampledFrom(someIPs).Draw(rt, "ip")),
		Now:      noon.Add(time.Duration(rapid.IntRange(-3, 3).Draw(rt, "now")) * time.Hour),
	}
}

// drawChain draws a minted token and what it was attenuated to, step by step.
func drawChain(rt *rapid.T, t *testing.T, a *Authority) (tokens []string, steps []Caveats) {
	first := drawCaveats(rt)
	if first.Scopes == nil {
		first.Scopes = []Scope{Admin}
	}
	tokens, steps = append(tokens, mint(t, a, first)), append(steps, first)
	for range rapid.IntRange(0, 4).Draw(rt, "steps") {
		more := drawCaveats(rt)
		if conditions, _ := more.conditions(); len(conditions) == 0 {
			continue
		}
		tokens, steps = append(tokens, narrow(t, tokens[len(tokens)-1], more)), append(steps, more)
	}
	return tokens, steps
}

// Everything that an attenuated token allows, its parent allows.
func TestAttenuationOnlyNarrows(t *testing.T) {
	a := freshAuthority(t)
	rapid.Check(t, func(rt *rapid.T) {
		tokens, steps := drawChain(rt, t, a)
		for range 10 {
			request := drawRequest(rt)
			for i := 1; i < len(tokens); i++ {
				child, parent := a.Verify(tokens[i], request), a.Verify(tokens[i-1], request)
				if child == nil && parent != nil {
					rt.Fatalf("%+v: the child may, the parent may not: %v; steps %+v", request, parent, steps)
				}
			}
		}
	})
}

// A token covers what each step of its history allows, and nothing else
// decides. The model is written from the contract, not from the code.
func TestVerifyIsTheConjunctionOfAllSteps(t *testing.T) {
	a := freshAuthority(t)
	granted := 0
	rapid.Check(t, func(rt *rapid.T) {
		tokens, steps := drawChain(rt, t, a)
		for range 10 {
			request := drawRequest(rt)
			want := !slices.ContainsFunc(steps, func(c Caveats) bool { return !modelAllows(c, request) })
			err := a.Verify(tokens[len(tokens)-1], request)
			if (err == nil) != want {
				rt.Fatalf("%+v: allowed by the model: %t, by Verify: %v; steps %+v", request, want, err, steps)
			}
			if want {
				granted++
			}
		}
	})
	if granted == 0 {
		t.Error("no request was ever covered; the test tests nothing")
	}
}

func modelAllows(c Caveats, r Request) bool {
	if c.Scopes != nil && r.Scope != Any && !slices.Contains(c.Scopes, r.Scope) && !slices.Contains(c.Scopes, Admin) {
		return false
	}
	if !c.Expires.IsZero() && !r.Now.Before(c.Expires) {
		return false
	}
	if c.Paths != nil && (r.Path == "" || strings.Contains(r.Path, "..") || !modelBelow(c.Paths, r.Path)) {
		return false
	}
	if c.Topics != nil && (r.Topic == "" || !modelBelow(c.Topics, r.Topic)) {
		return false
	}
	inside := func(network netip.Prefix) bool { return network.Contains(r.ClientIP.Unmap()) }
	return c.Clients == nil || slices.ContainsFunc(c.Clients, inside)
}

// modelBelow compares segment by segment.
func modelBelow(prefixes []string, full string) bool {
	split := func(text string) []string {
		return slices.DeleteFunc(strings.Split(text, "/"), func(segment string) bool { return segment == "" })
	}
	return slices.ContainsFunc(prefixes, func(prefix string) bool {
		want, have := split(prefix), split(full)
		return len(want) <= len(have) && slices.Equal(want, have[:len(want)])
	})
}

// A caveat comes out of a token as it went in, whatever is in it.
func TestConditionsReadBack(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		segment := rapid.StringMatching(`[^/\x00-\x1f\x7f]{1,12}`).Filter(func(s string) bool { return isPlain(s) })
		c := Caveats{
			Paths:  []string{"/" + segment.Draw(rt, "path")},
			Topics: []string{segment.Draw(rt, "first"), segment.Draw(rt, "second") + "/" + segment.Draw(rt, "third")},
			Rate:   Rate{rapid.IntRange(1, maxCount).Draw(rt, "count"), time.Duration(rapid.Int64Range(int64(minPer), int64(maxPer)).Draw(rt, "per")), rapid.IntRange(1, maxCount).Draw(rt, "burst")},
		}
		c.Expires = time.Unix(rapid.Int64Range(0, 250_000_000_000).Draw(rt, "s"), rapid.Int64Range(0, 999_999_999).Draw(rt, "ns"))
		conditions, err := c.conditions()
		if err != nil || len(conditions) != 4 {
			rt.Fatalf("%v, %v", conditions, err)
		}
		clean, _ := c.canonical()
		for i, want := range []Caveats{{Expires: clean.Expires}, {Paths: clean.Paths}, {Topics: clean.Topics}, {Rate: clean.Rate}} {
			got, known := readCondition(conditions[i])
			if !known || fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
				rt.Fatalf("%s reads as %+v (%t), want %+v", conditions[i], got, known, want)
			}
		}
	})
}
