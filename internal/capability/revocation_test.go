package capability

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"micronode/fault"
)

// For any parent, whatever is minted from it and however the child is narrowed
// further: what the child allows, the parent allows.
func TestWhatATokenBegets(t *testing.T) {
	a := freshAuthority(t)
	granted, begot := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		tokens, _ := drawChain(rt, t, a)
		parent := tokens[len(tokens)-1]
		want := drawCaveats(rt)
		child, err := a.MintFrom(parent, want)
		if err != nil {
			if kind := fault.KindOf(err); kind != fault.Forbidden && kind != fault.Malformed {
				rt.Fatal(err)
			}
			return
		}
		begot++
		if before, after := mustInspect(rt, parent), mustInspect(rt, child); len(after.Caveats) <= len(before.Caveats) || fmt.Sprint(after.Caveats[:len(before.Caveats)]) != fmt.Sprint(before.Caveats) {
			rt.Fatalf("the child has %q, and the parent %q", after.Caveats, before.Caveats)
		}
		for range 10 {
			request := drawRequest(rt)
			may := a.Check(child, request)
			if allowed := a.Check(parent, request); may == nil && allowed != nil {
				rt.Fatalf("%+v: the child may, the parent may not: %v", request, allowed)
			}
			if may == nil {
				granted++
			}
		}
	})
	if granted == 0 || begot == 0 {
		t.Errorf("%d children, %d requests covered; the test tests nothing", begot, granted)
	}
}

func mustInspect(t interface{ Fatal(...any) }, token string) Summary {
	summary, err := Inspect(token)
	if err != nil {
		t.Fatal(err)
	}
	return summary
}

// A child uses up the rate of its parent, and a parent that has none left has
// none for its children.
func TestChildrenShareTheRateOfTheirParent(t *testing.T) {
	a := freshAuthority(t)
	parent := mint(t, a, Caveats{Scopes: []Scope{Admin}, Rate: Rate{1, time.Hour, 2}})
	child, err := a.MintFrom(parent, Caveats{Scopes: []Scope{ObjectPut}})
	if err != nil {
		t.Fatal(err)
	}
	request := Request{Scope: ObjectPut, Now: noon}
	for range 5 { // Check spends nothing
		if err := a.Check(child, request); err != nil {
			t.Fatal(err)
		}
	}
	for i, token := range []string{child, parent, child} {
		if err := a.Verify(token, request); (err == nil) != (i < 2) {
			t.Errorf("use %d: %v", i+1, err)
		}
	}
}

// Scopes that the parent does not have are rejected, and so are invalid
// parents.
func TestWhatCannotBeBegotten(t *testing.T) {
	a := freshAuthority(t)
	parent := mint(t, a, Caveats{Scopes: []Scope{ObjectPut}})
	dead := mint(t, a, Caveats{Scopes: []Scope{Admin}})
	if _, err := a.Revoke(dead); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		parent string
		want   Caveats
		kind   fault.Kind
	}{
		"another scope":      {parent, Caveats{Scopes: []Scope{ObjectPut, ObjectRm}}, fault.Forbidden},
		"admin":              {parent, Caveats{Scopes: []Scope{Admin}}, fault.Forbidden},
		"no scope":           {parent, Caveats{Paths: []string{"/o"}}, fault.Malformed},
		"no token":           {"hunter2", Caveats{Scopes: []Scope{ObjectPut}}, fault.Unauthorized},
		"a revoked parent":   {dead, Caveats{Scopes: []Scope{ObjectPut}}, fault.Unauthorized},
		"nonsense":           {parent, Caveats{Scopes: []Scope{ObjectPut}, Paths: []string{"o"}}, fault.Malformed},
		"of somebody else's": {mint(t, freshAuthority(t), Caveats{Scopes: []Scope{Admin}}), Caveats{Scopes: []Scope{ObjectPut}}, fault.Unauthorized},
	} {
		if _, err := a.MintFrom(c.parent, c.want); fault.KindOf(err) != c.kind {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A revocation holds for a token and all that is made from it, in whatever way,
// and for nothing else: neither for its ancestors nor for its siblings.
func TestARevocationHoldsForWhatWasMadeOfIt(t *testing.T) {
	for _, by := range []string{"token", "identifier"} {
		t.Run(by, func(t *testing.T) {
			a := freshAuthority(t)
			parent := mint(t, a, Caveats{Scopes: []Scope{Admin}})
			child := narrow(t, parent, Caveats{Scopes: []Scope{ObjectPut}})
			brother := narrow(t, parent, Caveats{Scopes: []Scope{ObjectPut, ObjectRm}})
			before := narrow(t, child, Caveats{Paths: []string{"/o"}})
			which := child
			if by == "identifier" {
				which = mustInspect(t, child).ID
			}
			revoked, err := a.Revoke(which)
			if err != nil || revoked.ID != mustInspect(t, child).ID {
				t.Fatalf("%+v, %v", revoked, err)
			}
			after := narrow(t, child, Caveats{Topics: []string{"news"}})
			request := Request{Scope: ObjectPut, Path: "/o", Topic: "news"}
			for name, c := range map[string]struct {
				token string
				good  bool
			}{"it": {child, false}, "made of it before": {before, false}, "made of it after": {after, false}, "its parent": {parent, true}, "its brother": {brother, true}} {
				for how, ask := range map[string]func(string, Request) error{"Verify": a.Verify, "Check": a.Check} {
					err := ask(c.token, request)
					if (err == nil) != c.good || err != nil && fault.KindOf(err) != fault.Unauthorized {
						t.Errorf("%s, by %s: %v", name, how, err)
					}
				}
			}
		})
	}
}

// A revocation is dropped when the token would have expired; that of a token
// without an expiry is kept.
func TestRevocationsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := freshAuthority(t)
		brief := mint(t, a, Caveats{Scopes: []Scope{Admin}, Expires: time.Now().Add(time.Hour)})
		endless := mint(t, a, Caveats{Scopes: []Scope{Admin}})
		for _, which := range []string{brief, endless, "00112233445566778899aabbccddeeff"} {
			if _, err := a.Revoke(which); err != nil {
				t.Fatal(err)
			}
		}
		for _, step := range []struct {
			after time.Duration
			left  int
		}{{0, 3}, {time.Hour, 2}, {MaxLife, 1}} {
			time.Sleep(step.after)
			if list := a.Revoked(); len(list) != step.left {
				t.Errorf("after %s: %+v", step.after, list)
			}
		}
		if err := a.Check(endless, Request{Scope: Admin}); fault.KindOf(err) != fault.Unauthorized {
			t.Error(err)
		}
	})
}

// The set of revocations is bounded; one that does not fit is rejected with an
// error.
func TestRevocationsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := freshAuthority(t)
		list := make([]Revocation, MaxRevocations)
		for i := range list {
			list[i] = Revocation{fmt.Sprintf("%032x", i), time.Now().Add(time.Hour)}
		}
		if fresh, err := a.AddRevocations(list); fresh != MaxRevocations || err != nil {
			t.Fatal(fresh, err)
		}
		if fresh, err := a.AddRevocations(list); fresh != 0 || err != nil {
			t.Errorf("%d are news the second time, %v", fresh, err)
		}
		token := mint(t, a, Caveats{Scopes: []Scope{Admin}})
		if _, err := a.Revoke(token); fault.KindOf(err) != fault.QuotaExceeded || fault.NextOf(err) == "" {
			t.Error(err)
		}
		time.Sleep(time.Hour)
		if _, err := a.Revoke(token); err != nil {
			t.Error(err)
		}
	})
}

// Two processes that have exchanged revocations have the same ones, and the
// same digest.
func TestRevocationsAreShared(t *testing.T) {
	a, b := freshAuthority(t), freshAuthority(t)
	for range 3 {
		if _, err := a.Revoke(mint(t, a, Caveats{Scopes: []Scope{Admin}, Expires: time.Now().Add(time.Hour)})); err != nil {
			t.Fatal(err)
		}
	}
	if a.RevokedDigest() == b.RevokedDigest() {
		t.Error("one cannot tell them apart")
	}
	if fresh, err := b.AddRevocations(a.Revoked()); fresh != 3 || err != nil || a.RevokedDigest() != b.RevokedDigest() {
		t.Error(fresh, err, b.Revoked())
	}
	if _, err := b.AddRevocations([]Revocation{{ID: "everything"}}); fault.KindOf(err) != fault.Malformed {
		t.Error(err)
	}
}

func TestWhatCannotBeRevoked(t *testing.T) {
	a := freshAuthority(t)
	for _, which := range []string{"", "x", Prefix + "x", "00112233445566778899AABBCCDDEEFF", mint(t, freshAuthority(t), Caveats{Scopes: []Scope{Admin}})} {
		if _, err := a.Revoke(which); fault.KindOf(err) != fault.Malformed || fault.NextOf(err) == "" {
			t.Errorf("%q: %v", which, err)
		}
	}
	if list := a.Revoked(); len(list) != 0 {
		t.Error(list)
	}
}
