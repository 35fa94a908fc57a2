package observe

import (
	"fmt"
	"testing"
	"time"

	"micronode/internal/testkit"
)

// A client is to be logged once a minute for each limit, and is in the status for
// ten minutes.
func TestRefusals(t *testing.T) {
	var r Refusals
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	note := func(who, limit string, wantHeld uint64, wantFirst bool) {
		t.Helper()
		if held, first := r.Note(who, limit, "limits."+limit, now); held != wantHeld || first != wantFirst {
			t.Errorf("%s and %s: %d were held, first is %v; want %d, %v", who, limit, held, first, wantHeld, wantFirst)
		}
	}
	note("192.0.2.9", "rate", 0, true)
	note("192.0.2.9", "rate", 0, false)
	note("192.0.2.9", "rate", 0, false)
	note("192.0.2.9", "memory", 0, true)
	note("192.0.2.10", "rate", 0, true)
	now = now.Add(time.Minute)
	note("192.0.2.9", "rate", 2, true)
	note("192.0.2.9", "rate", 0, false)
	list := r.Recent(now)
	if len(list) != 3 || list[0].Client != "192.0.2.9" || list[0].Limit != "rate" || list[0].Setting != "limits.rate" || list[0].Count != 5 || list[0].Last != "2026-01-02T03:05:05Z" {
		t.Errorf("the status lists %+v", list)
	}
	now = now.Add(9 * time.Minute)
	testkit.Equal(t, "clients after nine more minutes", len(r.Recent(now)), 1)
	now = now.Add(time.Minute)
	testkit.Equal(t, "clients after ten", len(r.Recent(now)), 0)
	note("192.0.2.9", "rate", 0, true)
	testkit.Equal(t, "times, counted anew", r.Recent(now)[0].Count, 1)
}

// A flood from many addresses takes bounded memory, few lines, and hides nobody who
// was refused before.
func TestRefusalsAreBounded(t *testing.T) {
	var r Refusals
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	lines := 0
	for i := range 10 * maxRefusals {
		if _, first := r.Note(fmt.Sprint("client ", i), "rate", "limits.rate", now); first {
			lines++
		}
	}
	if len(r.seen) > maxRefusals+1 || lines > maxRefusals+1 {
		t.Errorf("%d are remembered, %d lines", len(r.seen), lines)
	}
	list := r.Recent(now)
	if len(list) != maxRefusalsShown || list[0].Client != otherClients || list[0].Count != 9*maxRefusals {
		t.Errorf("%d are listed, first %+v", len(list), list[0])
	}
	now = now.Add(repeatInterval)
	r.Note("another", "rate", "limits.rate", now)
	testkit.Equal(t, "the newest", r.Recent(now)[0].Client, "another")
}
