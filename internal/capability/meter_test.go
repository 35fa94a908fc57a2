package capability

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"micronode/fault"
	"micronode/internal/testkit"
)

var admin = Request{Scope: Admin}

func rateCaveats(count int, per time.Duration, burst int) Caveats {
	return Caveats{Scopes: []Scope{Admin}, Rate: Rate{count, per, burst}}
}

// countUses is how often a token can be used before it is refused.
func countUses(t *testing.T, a *Authority, token string) int {
	t.Helper()
	for n := range 1000 {
		if err := a.Verify(token, admin); err != nil {
			testkit.WantKind(t, err, fault.RateLimited, "over the rate")
			return n
		}
	}
	t.Fatal("the token has no rate")
	return 0
}

func TestARateRefillsWhenItSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := freshAuthority(t)
		token := mint(t, a, rateCaveats(10, time.Minute, 3))
		if n := countUses(t, a, token); n != 3 {
			t.Fatalf("a burst of 3 gave %d", n)
		}
		after := fault.RetryAfterOf(a.Verify(token, admin))
		if after < 6*time.Second || after > 6*time.Second+2*time.Millisecond {
			t.Errorf("10 a minute: come back in %s", after)
		}
		time.Sleep(after - 2*time.Millisecond)
		testkit.WantKind(t, a.Verify(token, admin), fault.RateLimited, "too early")
		time.Sleep(2 * time.Millisecond)
		if n := countUses(t, a, token); n != 1 {
			t.Errorf("after Retry-After there were %d uses, want 1", n)
		}
		time.Sleep(time.Hour)
		if n := countUses(t, a, token); n != 3 {
			t.Errorf("after an hour there were %d uses, want the burst", n)
		}
	})
}

// Copies and attenuations of a token draw from its meter: passing a token on
// multiplies nothing.
func TestAttenuatedTokensShareTheMeter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := freshAuthority(t)
		token := mint(t, a, rateCaveats(1, time.Hour, 5))
		child := narrow(t, token, Caveats{Topics: []string{"news"}, Expires: time.Now().Add(24 * time.Hour)})
		slower := narrow(t, token, Caveats{Rate: Rate{1, time.Hour, 2}})
		request := Request{Scope: Admin, Topic: "news"}
		for _, one := range []string{child, token} {
			testkit.WantKind(t, a.Verify(one, request), none, "within the rate")
		}
		if n := countUses(t, a, slower); n != 2 {
			t.Errorf("the slower child was used %d times, want its own 2", n)
		}
		if n := countUses(t, a, token); n != 1 { // 5 - 2 - 2: a refused use of the child took nothing
			t.Errorf("the parent has %d uses left, want 1", n)
		}
		testkit.WantKind(t, a.Verify(child, request), fault.RateLimited, "the child of an empty parent")
		other := mint(t, a, rateCaveats(1, time.Hour, 5))
		if n := countUses(t, a, other); n != 5 {
			t.Errorf("another token with the same caveats was used %d times, want 5", n)
		}
	})
}

// A use that is refused for another reason costs nothing.
func TestOnlyCoveredUsesAreCounted(t *testing.T) {
	a := freshAuthority(t)
	token := mint(t, a, Caveats{Scopes: []Scope{ObjectPut}, Rate: Rate{1, time.Hour, 1}})
	for range 5 {
		testkit.WantKind(t, a.Verify(token, admin), fault.Forbidden, "out of scope")
	}
	testkit.WantKind(t, a.Verify(token, Request{Scope: ObjectPut}), none, "covered")
	testkit.WantKind(t, a.Verify(token, Request{Scope: ObjectPut}), fault.RateLimited, "used up")
}

func TestMetersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := freshAuthority(t)
		a.meters = newMeters(4, 3)
		var tokens []string
		for range 4 {
			tokens = append(tokens, mint(t, a, rateCaveats(1, time.Minute, 2)))
			testkit.WantKind(t, a.Verify(tokens[len(tokens)-1], admin), none, "room")
		}
		late := mint(t, a, rateCaveats(1, time.Minute, 2))
		err := a.Verify(late, admin)
		testkit.WantKind(t, err, fault.Busy, "no room")
		if after := fault.RetryAfterOf(err); after < time.Minute || after > time.Minute+2*time.Millisecond {
			t.Errorf("a meter comes free in a minute, not in %s", after)
		}
		testkit.WantKind(t, a.Verify(tokens[0], admin), none, "one that is known goes on")
		testkit.WantKind(t, a.Verify(tokens[0], admin), fault.RateLimited, "and keeps its count")
		testkit.WantKind(t, a.Verify(mint(t, a, Caveats{Scopes: []Scope{Admin}}), admin), none, "tokens without a rate need no meter")

		time.Sleep(fault.RetryAfterOf(err))
		testkit.WantKind(t, a.Verify(late, admin), none, "after Retry-After there is room")
		if n := len(a.meters.byKey); n != 2 { // the first, used twice, and the late one
			t.Errorf("%d meters are kept, want 2", n)
		}
	})
}

// The holder of one token cannot use up the meters of all.
func TestOneTokenCannotTakeAllMeters(t *testing.T) {
	a := freshAuthority(t)
	a.meters = newMeters(100, 3)
	token := mint(t, a, Caveats{Scopes: []Scope{Admin}})
	var err error
	for i := range 10 {
		err = errors.Join(err, a.Verify(narrow(t, token, Caveats{Rate: Rate{i + 1, time.Hour, 1}}), admin))
	}
	testkit.WantKind(t, err, fault.Busy, "derived rates")
	if n := len(a.meters.byKey); n != 3 {
		t.Errorf("one token holds %d meters", n)
	}
	testkit.WantKind(t, a.Verify(mint(t, a, rateCaveats(1, time.Hour, 1)), admin), none, "another token")
}

func TestARateHoldsForManyAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := freshAuthority(t)
		token := mint(t, a, rateCaveats(1, time.Hour, 50))
		var granted atomic.Int64
		var group sync.WaitGroup
		for range 8 {
			group.Go(func() {
				for range 20 {
					if a.Verify(token, admin) == nil {
						granted.Add(1)
					}
				}
			})
		}
		group.Wait()
		if granted.Load() != 50 {
			t.Errorf("%d uses of a burst of 50", granted.Load())
		}
	})
}

// For all uses at all times: no chain of rates gives more than each of its
// rates allows, and what is kept stays within the bounds and in order.
func TestMetersNeverGiveMore(t *testing.T) {
	a := freshAuthority(t)
	rapid.Check(t, func(rt *rapid.T) {
		a.meters = newMeters(6, 4)
		now := noon
		type family struct {
			tokens []string
			rates  []Rate
			used   []int // by rate
		}
		var families []*family
		for range rapid.IntRange(1, 3).Draw(rt, "families") {
			f := &family{}
			for depth := range rapid.IntRange(1, 3).Draw(rt, "depth") {
				r := Rate{rapid.IntRange(1, 3).Draw(rt, "count"), time.Duration(rapid.IntRange(1, 20).Draw(rt, "seconds")) * time.Second, rapid.IntRange(1, 4).Draw(rt, "burst")}
				if depth == 0 {
					f.tokens = append(f.tokens, mint(t, a, Caveats{Scopes: []Scope{Admin}, Rate: r}))
				} else {
					f.tokens = append(f.tokens, narrow(t, f.tokens[depth-1], Caveats{Rate: r}))
				}
				f.rates, f.used = append(f.rates, r), append(f.used, 0)
			}
			families = append(families, f)
		}
		for range 60 {
			now = now.Add(time.Duration(rapid.IntRange(0, 3000).Draw(rt, "ms")) * time.Millisecond)
			f := families[rapid.IntRange(0, len(families)-1).Draw(rt, "family")]
			which := rapid.IntRange(0, len(f.tokens)-1).Draw(rt, "token")
			if a.Verify(f.tokens[which], Request{Scope: Admin, Now: now}) == nil {
				for i := range which + 1 {
					f.used[i]++
				}
			}
			for i, r := range f.rates {
				most := float64(r.Burst) + now.Sub(noon).Seconds()*float64(r.limit())
				if float64(f.used[i]) > math.Floor(most+1e-6) {
					rt.Fatalf("rate %v was used %d times in %s", r, f.used[i], now.Sub(noon))
				}
			}
			checkMeters(rt, a.meters)
		}
	})
}

func checkMeters(t *rapid.T, ms *meters) {
	total := 0
	for family, n := range ms.perMinted {
		if n < 1 || n > ms.maxPerToken {
			t.Fatalf("family %x has %d meters", family, n)
		}
		total += n
	}
	if len(ms.byKey) > ms.max || len(ms.byKey) != len(ms.byFull) || total != len(ms.byKey) {
		t.Fatalf("%d by key, %d in the heap, %d in families, at most %d", len(ms.byKey), len(ms.byFull), total, ms.max)
	}
	for i, m := range ms.byFull {
		if m.heapIndex != i || ms.byKey[m.key] != m {
			t.Fatal(fmt.Sprintf("meter %d thinks that it is at %d", i, m.heapIndex))
		}
	}
}
