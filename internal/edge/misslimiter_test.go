package edge

import (
	"math"
	"testing"
	"testing/synctest"
	"time"
)

// An origin that is requested without end gets half of the tokens at first, and
// then the whole refill; one that is requested now and then always finds one.
func TestTheRateOfMissesIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newMissLimiter(100, 100)
		took := map[string]int{}
		flood := func(origin string) {
			for client, refused := uint64(0), 0; refused < 100; client = (client + 1) % 100 {
				if i.allow(origin, client, time.Now()) {
					took[origin]++
					refused = 0
				} else {
					refused++
				}
			}
		}
		flood("flood")
		if took["flood"] != 50 {
			t.Errorf("one origin took %d of 100 tokens, want half", took["flood"])
		}
		for second := range 10 {
			for range 100 {
				time.Sleep(10 * time.Millisecond)
				flood("flood")
			}
			if !i.allow("now and then", 1, time.Now()) {
				t.Fatalf("after %d s there is no token for another origin", second)
			}
		}
		if all := took["flood"]; math.Abs(float64(all-1050)) > 30 {
			t.Errorf("one origin had %d tokens in ten seconds at 100 a second", all)
		}
		clear(took)
		for range 1000 {
			time.Sleep(10 * time.Millisecond)
			flood("flood")
			flood("second flood")
		}
		if a, b := took["flood"], took["second flood"]; a < 400 || b < 400 || a+b > 1100 {
			t.Errorf("two that are asked for without end had %d and %d tokens", a, b)
		}
		time.Sleep(3 * time.Second)
		i.allow("another", 1, time.Now())
		if len(i.owed) != 1 {
			t.Errorf("%d origins are remembered, and one owes something", len(i.owed))
		}
	})
}

// A client that requests without end leaves tokens for another one of the same
// origin, and has the whole refill as long as it is alone.
func TestClientsShareTheRateOfMisses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newMissLimiter(100, 100)
		took := 0
		flood := func() {
			for i.allow("origin", 1, time.Now()) {
				took++
			}
		}
		flood()
		if took != 25 {
			t.Errorf("one client of one origin took %d of 100 tokens, want a quarter", took)
		}
		for second := range 10 {
			for range 100 {
				time.Sleep(10 * time.Millisecond)
				flood()
			}
			for range 5 {
				if !i.allow("origin", 2, time.Now()) {
					t.Fatalf("after %d s there is no token for another client", second)
				}
			}
		}
		if math.Abs(float64(took-975)) > 40 {
			t.Errorf("one client had %d tokens in ten seconds at 100 a second", took)
		}
	})
}
