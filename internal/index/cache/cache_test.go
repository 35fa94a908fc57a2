package cache

import (
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"micronode/internal/index/record"
	"micronode/internal/testkit"
)

const (
	none  = "none"
	stale = "stale"
	fresh = "fresh"
)

// stateOf returns the freshness of an entry as text.
func stateOf(c *Cache, key Key, now time.Time) string {
	switch _, isFresh, ok := c.Get(key, now); {
	case !ok:
		return none
	case isFresh:
		return fresh
	}
	return stale
}

func TestLives(t *testing.T) {
	for what, c := range map[string]struct {
		entry Entry
		after time.Duration
		want  string
	}{
		"an answer, at once":               {positiveEntry("a", noon), 0, fresh},
		"an answer, in its life":           {positiveEntry("a", noon), 10*time.Second - 1, fresh},
		"an answer, at its end":            {positiveEntry("a", noon), 10 * time.Second, stale},
		"an answer, before it is gone":     {positiveEntry("a", noon), 5*time.Minute + 10*time.Second - 1, stale},
		"an answer, gone":                  {positiveEntry("a", noon), 5*time.Minute + 10*time.Second, none},
		"nobody, in its life":              {negativeEntry(noon), 2*time.Second - 1, fresh},
		"nobody, at its end":               {negativeEntry(noon), 2 * time.Second, none},
		"a name":                           {nameEntry(noon, noon.Add(time.Hour)), 10*time.Second - 1, fresh},
		"a name, stale":                    {nameEntry(noon, noon.Add(time.Hour)), 10 * time.Second, stale},
		"a name that expires before":       {nameEntry(noon, noon.Add(5*time.Second)), 5*time.Second - 1, fresh},
		"a name that has expired":          {nameEntry(noon, noon.Add(5*time.Second)), 5 * time.Second, none},
		"a stale name that has expired":    {nameEntry(noon, noon.Add(time.Minute)), time.Minute, none},
		"a clock that was set back a bit":  {positiveEntry("a", noon), -10*time.Second + 1, fresh},
		"a clock that was set back":        {positiveEntry("a", noon), -10 * time.Second, stale},
		"a clock that was set back by far": {positiveEntry("a", noon), -time.Hour, none},
		"before all times":                 {positiveEntry("a", noon), -1 << 62, none},
	} {
		cache := New(generousSpec)
		cache.Put("k", c.entry)
		if got := stateOf(cache, "k", noon.Add(c.after)); got != c.want {
			t.Errorf("%s: %s, want %s", what, got, c.want)
		}
		if until := cache.FreshUntil(c.entry); c.after >= 0 && noon.Add(c.after).Before(until) != (c.want == fresh) {
			t.Errorf("%s: fresh until %v", what, until)
		}
	}
}

func TestWithoutALifeNothingIsKept(t *testing.T) {
	c := New(Spec{Entries: 10, Bytes: 1 << 20, StaleTTL: time.Minute})
	c.Put("negative", negativeEntry(noon))
	c.Put("expired", nameEntry(noon, noon))
	c.Put("old", positiveEntry("a", noon))
	if stateOf(c, "negative", noon) != none || stateOf(c, "expired", noon) != none || stateOf(c, "old", noon) != stale || c.Len() != 1 {
		t.Errorf("%s, %s, %s, %d", stateOf(c, "negative", noon), stateOf(c, "expired", noon), stateOf(c, "old", noon), c.Len())
	}
}

// Time is the caller's. In a bubble the caller's clock is fake, and the package
// does not interfere: no goroutine is left when the bubble ends.
func TestUnderAFakeClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(generousSpec)
		c.Put("k", positiveEntry("a", time.Now()))
		time.Sleep(10*time.Second - 1)
		if got := stateOf(c, "k", time.Now()); got != fresh {
			t.Error(got)
		}
		time.Sleep(time.Nanosecond)
		if got := stateOf(c, "k", time.Now()); got != stale {
			t.Error(got)
		}
		time.Sleep(5 * time.Minute)
		if got := stateOf(c, "k", time.Now()); got != none || c.Len() != 1 {
			t.Errorf("%s, %d", got, c.Len())
		}
		if gone := c.Purge(time.Now()); gone != 1 || c.Len() != 0 || c.Bytes() != 0 {
			t.Errorf("%d gone, %d left with %d bytes", gone, c.Len(), c.Bytes())
		}
	})
}

func TestForgetAndClear(t *testing.T) {
	c := New(generousSpec)
	c.Put("a", positiveEntry("a", noon))
	c.Put("b", positiveEntry("b", noon))
	c.Forget("a")
	c.Forget("never there")
	if stateOf(c, "a", noon) != none || stateOf(c, "b", noon) != fresh || c.Len() != 1 {
		t.Error("not what was to be forgotten")
	}
	c.Clear()
	if stateOf(c, "b", noon) != none || c.Len() != 0 || c.Bytes() != 0 {
		t.Errorf("%d left with %d bytes", c.Len(), c.Bytes())
	}
}

// The caller of Put may go on using its entry.
func TestKeepsACopy(t *testing.T) {
	body := strings.Repeat("x", 1<<20)
	build := func() Entry {
		e := positiveEntry("a", noon)
		e.Answer.Name = nameEntry(noon, noon.Add(time.Hour)).Answer.Name
		e.Answer.Providers[0].Other = []string{"/unix/x"}
		e.Answer.Providers[0].Region = body[:2] // a small part of something large
		return e
	}
	e, want := build(), build()

	c := New(generousSpec)
	c.Put(Key(body[:3]), e)
	e.Answer.Providers[0].Overlay[0] = "changed"
	e.Answer.Providers[0].HTTP[0] = "changed"
	e.Answer.Providers[0].Other[0] = "changed"
	e.Answer.Providers[0].ID = "changed"
	e.Answer.Name.Key[0]++
	e.Answer.Name.Sig[0]++
	e.Answer.Name.Name = "changed"

	got, _, ok := c.Get("xxx", noon)
	if !ok || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if unsafe.StringData(got.Answer.Providers[0].Region) == unsafe.StringData(body) {
		t.Error("two bytes hold on to a megabyte")
	}
	for key := range c.table.Keys() {
		if unsafe.StringData(string(key)) == unsafe.StringData(body) {
			t.Error("a key holds on to a megabyte")
		}
	}
}

// An entry that does not fit leaves nothing behind: neither itself nor the
// outdated one.
func TestTooLarge(t *testing.T) {
	c := New(Spec{Entries: 10, Bytes: 10_000, TTL: time.Minute})
	c.Put("k", positiveEntry("a", noon))
	c.Put("other", positiveEntry("b", noon))
	c.Put("k", large(10_000, noon))
	if stateOf(c, "k", noon) != none || stateOf(c, "other", noon) != fresh {
		t.Errorf("k %s, other %s", stateOf(c, "k", noon), stateOf(c, "other", noon))
	}
	c.Put(Key(strings.Repeat("k", 10_000)), positiveEntry("a", noon))
	if c.Len() != 1 {
		t.Error("a key of 10 kB fits into 10 kB with all the rest")
	}
}

func TestBoundsAtTheEdges(t *testing.T) {
	for what, spec := range map[string]Spec{
		"no entries":    {Bytes: 1 << 20, TTL: time.Minute},
		"no bytes":      {Entries: 10, TTL: time.Minute},
		"below nothing": {Entries: -1, Bytes: -1, TTL: time.Minute},
	} {
		c := New(spec)
		c.Put("k", positiveEntry("a", noon))
		if c.Len() != 0 || c.Bytes() != 0 || stateOf(c, "k", noon) != none {
			t.Errorf("%s: %d entries, %d bytes", what, c.Len(), c.Bytes())
		}
		c.Reconfigure(generousSpec)
		c.Put("k", positiveEntry("a", noon))
		if stateOf(c, "k", noon) != fresh {
			t.Errorf("%s: nothing is kept although there is room now", what)
		}
		c.Reconfigure(spec)
		if c.Len() != 0 || c.Bytes() != 0 {
			t.Errorf("%s again: %d entries, %d bytes", what, c.Len(), c.Bytes())
		}
	}
	huge := New(Spec{Entries: 1 << 62, Bytes: 1 << 62, TTL: time.Minute})
	huge.Put("k", positiveEntry("a", noon))
	few := New(Spec{Entries: 1, Bytes: 1 << 62, TTL: time.Minute})
	few.Put("k", positiveEntry("a", noon))
	if stateOf(huge, "k", noon) != fresh || stateOf(few, "k", noon) != fresh {
		t.Error("too much room is no room")
	}
	few.Put("l", positiveEntry("a", noon))
	if few.Len() != 1 {
		t.Errorf("%d entries where one is allowed", few.Len())
	}
}

func TestReconfigure(t *testing.T) {
	c := New(generousSpec)
	for i := range 1000 {
		c.Put(keyOf(i), positiveEntry("a", noon))
	}
	bytes := c.Bytes()

	longer := generousSpec
	longer.TTL = time.Hour
	c.Reconfigure(longer)
	if stateOf(c, keyOf(0), noon.Add(time.Minute)) != fresh || c.Len() != 1000 || c.Bytes() != bytes {
		t.Error("a longer life does not hold for what is there")
	}
	fewer := longer
	fewer.Entries = 100
	c.Reconfigure(fewer)
	if n := c.Len(); n > 100 || n < 50 || c.Bytes() >= bytes/5 {
		t.Errorf("%d entries with %d bytes left of 1000 with %d", n, c.Bytes(), bytes)
	}
	smaller := longer
	smaller.Bytes = 30_000
	c.Reconfigure(smaller)
	if c.Bytes() > 30_000 || c.Bytes() < 25_000 {
		t.Errorf("%d entries with %d bytes", c.Len(), c.Bytes())
	}
	n := c.Len()
	larger := smaller
	larger.Entries, larger.Bytes = 2*n, 300_000 // each now weighs ten times as much, with ten times the maximum
	c.Reconfigure(larger)
	if c.Len() != n {
		t.Errorf("%d of %d entries are left although there is more room", c.Len(), n)
	}
	c.Clear()
	if c.Len() != 0 || c.Bytes() != 0 {
		t.Errorf("nothing costs %d bytes", c.Bytes())
	}
}

// A janitor that read an entry a moment ago does not remove its replacement.
func TestPurgeSparesWhatIsNew(t *testing.T) {
	c := New(generousSpec)
	c.Put("k", positiveEntry("a", noon.Add(-time.Hour)))
	old, _ := c.table.GetIfPresent("k")
	c.Put("k", positiveEntry("b", noon))
	if c.removeIfSame("k", old) || stateOf(c, "k", noon) != fresh {
		t.Error("the new entry is gone")
	}
}

// Frequent entries survive a flood of entries that are used only once.
func TestFlood(t *testing.T) {
	c := New(Spec{Entries: 200, Bytes: 1 << 20, TTL: time.Minute})
	const popular = 50
	ask := func() (hits int) {
		for i := range popular {
			if stateOf(c, keyOf(i), noon) == fresh {
				hits++
			}
		}
		return hits
	}
	for i := range popular {
		c.Put(keyOf(i), positiveEntry("a", noon))
	}
	for range 20 {
		ask()
	}
	for i := range 10_000 {
		c.Put(keyOf(1000+i), negativeEntry(noon))
		if i%100 == 0 {
			ask()
		}
	}
	if hits := ask(); hits < popular*3/4 {
		t.Errorf("%d of %d are left", hits, popular)
	}
	if c.Len() > 200 {
		t.Errorf("%d entries", c.Len())
	}
}

// The bytes that are counted are not fewer than those that are retained, as
// measured by the runtime.
func TestBytesAreReal(t *testing.T) {
	testkit.MemoryGate(t)
	const n = 20_000
	for what, entry := range map[string]Entry{"an answer": positiveEntry("a", noon), "nobody": negativeEntry(noon), "a name": nameEntry(noon, noon.Add(time.Hour))} {
		memory := testkit.WatchMemory()
		c := New(generousSpec)
		for i := range n {
			c.Put(keyOf(i), entry)
		}
		if counted, real := c.Bytes(), memory.Grown(); c.Len() != n || real > counted || counted > 2*real {
			t.Errorf("%s: counted %d bytes for each of %d, but it holds %d", what, counted/n, c.Len(), real/n)
		}
		runtime.KeepAlive(c)
	}
}

// Concurrent use: only entries that were put are found, the limits hold in the
// end, and the byte count adds up.
func TestTogether(t *testing.T) {
	specs := []Spec{
		{Entries: 50, Bytes: 40_000, TTL: time.Minute, NegativeTTL: time.Minute},
		{Entries: 20, Bytes: 1 << 20, TTL: time.Minute, NegativeTTL: time.Minute},
	}
	c := New(specs[0])
	tooLarge := large(2<<20, noon)
	var work sync.WaitGroup
	for g := range 8 {
		work.Go(func() {
			for i := range 2000 {
				n := (i*7 + g) % 100
				key := keyOf(n)
				switch (i + g) % 11 {
				case 0, 1, 2:
					c.Put(key, positiveEntry(fmt.Sprint(n), noon))
				case 3:
					c.Put(key, tooLarge)
				case 4:
					c.Forget(key)
				case 5:
					c.Purge(noon.Add(time.Duration(i%2) * time.Hour))
				case 6:
					if g == 0 {
						c.Reconfigure(specs[i%2])
					}
				case 7:
					if i%100 == 0 {
						c.Clear()
					}
				default:
					if e, _, ok := c.Get(key, noon); ok && e.Answer.Providers[0].ID != fmt.Sprint(n) {
						t.Errorf("%s gave what was put under %s", key, e.Answer.Providers[0].ID)
					}
				}
			}
		})
	}
	work.Wait()
	c.Reconfigure(specs[0])
	if c.Len() > specs[0].Entries || c.Bytes() > specs[0].Bytes {
		t.Errorf("%d entries, %d bytes", c.Len(), c.Bytes())
	}
	c.Clear()
	if c.Len() != 0 || c.Bytes() != 0 {
		t.Errorf("after everything is gone: %d entries, %d bytes", c.Len(), c.Bytes())
	}
}

// The hot path does not allocate.
func TestGetAllocatesNothing(t *testing.T) {
	c := New(Spec{Entries: 1000, Bytes: 1 << 20, TTL: time.Minute, StaleTTL: time.Hour})
	for i := range 1000 {
		c.Put(keyOf(i), positiveEntry("a", noon))
	}
	key := keyOf(999)
	c.Put(key, positiveEntry("a", noon))
	var e Entry
	for what, now := range map[string]time.Time{fresh: noon, stale: noon.Add(2 * time.Minute), none: noon.Add(24 * time.Hour)} {
		if got := stateOf(c, key, now); got != what {
			t.Fatalf("it is %s, want %s", got, what)
		}
		allocations := testing.AllocsPerRun(10_000, func() { e, _, _ = c.Get(key, now) })
		if allocations > 0 && !raced {
			t.Errorf("%s: %v allocations", what, allocations)
		}
	}
	_ = e
}

func BenchmarkGet(b *testing.B) {
	c := New(generousSpec)
	keys := make([]Key, 1024)
	for i := range keys {
		keys[i] = keyOf(i)
		c.Put(keys[i], positiveEntry("a", noon))
	}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i++ {
			if _, fresh, _ := c.Get(keys[i%len(keys)], noon); !fresh {
				b.Error("not there")
			}
		}
	})
}

func BenchmarkPut(b *testing.B) {
	c := New(generousSpec)
	keys := make([]Key, 1024)
	for i := range keys {
		keys[i] = keyOf(i)
	}
	e := positiveEntry("a", noon)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		c.Put(keys[i%len(keys)], e)
	}
}

func BenchmarkPurge(b *testing.B) {
	c := New(generousSpec)
	for i := range 50_000 {
		c.Put(keyOf(i), Entry{Source: record.DHT, At: noon})
	}
	for b.Loop() {
		c.Purge(noon)
	}
}
