package cache

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// model is the cache without optimisations.
type model struct {
	spec Spec
	kept map[Key]Entry
}

// life returns how long an entry is fresh, and how long it is kept at all.
func (m *model) life(e Entry) (fresh, all time.Duration) {
	fresh, all = m.spec.TTL, m.spec.TTL+m.spec.StaleTTL
	if e.FromOwner && fresh > OwnerTTL {
		fresh, all = OwnerTTL, OwnerTTL+m.spec.StaleTTL
	}
	if e.Negative {
		fresh, all = m.spec.NegativeTTL, m.spec.NegativeTTL
	}
	if n := e.Answer.Name; n != nil {
		fresh, all = min(fresh, n.Expires.Sub(e.At)), min(all, n.Expires.Sub(e.At))
	}
	return fresh, all
}

func (m *model) look(key Key, now time.Time) string {
	e, ok := m.kept[key]
	switch freshFor, keptFor := m.life(e); {
	case !ok || now.Sub(e.At) >= keptFor:
		return none
	case now.Sub(e.At) < freshFor:
		return fresh
	}
	return stale
}

func (m *model) purge(now time.Time) (gone int) {
	for key := range m.kept {
		if m.look(key, now) == none {
			delete(m.kept, key)
			gone++
		}
	}
	return gone
}

func (m *model) put(key Key, e Entry) {
	if _, all := m.life(e); all <= 0 {
		delete(m.kept, key)
		return
	}
	m.kept[key] = e
}

// modelTest is a cache, its model and a clock that only the test moves.
type modelTest struct {
	cache *Cache
	model model
	now   time.Time
	seq   int // makes every entry unique
}

func newModelTest(spec Spec) *modelTest {
	return &modelTest{cache: New(spec), model: model{spec, map[Key]Entry{}}, now: noon}
}

func drawLives(t *rapid.T, spec Spec) Spec {
	lives := rapid.SampledFrom([]time.Duration{0, 1, time.Second, 10 * time.Second, time.Minute})
	spec.TTL, spec.NegativeTTL, spec.StaleTTL = lives.Draw(t, "ttl"), lives.Draw(t, "negative"), lives.Draw(t, "stale")
	return spec
}

func drawKey(t *rapid.T) Key { return keyOf(rapid.IntRange(0, 12).Draw(t, "key")) }

func (m *modelTest) drawEntry(t *rapid.T) Entry {
	m.seq++
	at := m.now.Add(-time.Duration(rapid.Int64Range(0, 5e9).Draw(t, "ago")))
	switch rapid.IntRange(0, 3).Draw(t, "sort") {
	case 0:
		return negativeEntry(at)
	case 1:
		e := nameEntry(at, at.Add(time.Duration(rapid.Int64Range(0, 1e11).Draw(t, "expires"))))
		e.FromOwner = rapid.Bool().Draw(t, "near")
		return e
	case 2:
		return large(rapid.IntRange(0, 3000).Draw(t, "bytes"), at)
	}
	return positiveEntry(fmt.Sprint(m.seq), at)
}

// actions are the operations on both.
func (m *modelTest) actions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"put": func(t *rapid.T) {
			key, e := drawKey(t), m.drawEntry(t)
			m.cache.Put(key, e)
			m.model.put(key, e)
		},
		"forget": func(t *rapid.T) {
			key := drawKey(t)
			m.cache.Forget(key)
			delete(m.model.kept, key)
		},
		"wait": func(t *rapid.T) {
			m.now = m.now.Add(rapid.SampledFrom([]time.Duration{1, time.Second, 9 * time.Second, time.Minute}).Draw(t, "time"))
		},
		"clear": func(*rapid.T) {
			m.cache.Clear()
			clear(m.model.kept)
		},
		"reconfigure": func(t *rapid.T) {
			m.model.spec = drawLives(t, m.model.spec)
			m.cache.Reconfigure(m.model.spec)
		},
	}
}

// With enough capacity the cache behaves exactly like the model.
func TestAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newModelTest(drawLives(t, generousSpec))
		actions := w.actions()
		actions["purge"] = func(t *rapid.T) {
			if got, want := w.cache.Purge(w.now), w.model.purge(w.now); got != want {
				t.Fatalf("%d purged, want %d", got, want)
			}
		}
		actions[""] = func(t *rapid.T) {
			var least, most int64
			for n := range 13 {
				key := keyOf(n)
				if got, want := stateOf(w.cache, key, w.now), w.model.look(key, w.now); got != want {
					t.Fatalf("%s is %s, want %s", key, got, want)
				}
				if e, _, ok := w.cache.Get(key, w.now); ok && !reflect.DeepEqual(e, w.model.kept[key]) {
					t.Fatalf("%s is %+v, want %+v", key, e, w.model.kept[key])
				}
			}
			for key, e := range w.model.kept {
				least += entryHeapBytes(key, e)
				most += entryHeapBytes(key, e) + 2*overhead
			}
			if n, bytes := w.cache.Len(), w.cache.Bytes(); n != len(w.model.kept) || bytes < least || bytes > most {
				t.Fatalf("%d entries with %d bytes, want %d with %d to %d", n, bytes, len(w.model.kept), least, most)
			}
		}
		t.Repeat(actions)
	})
}

// With little capacity it may have evicted more than the model, but its entries
// are correct, and it never exceeds its limits.
func TestBoundsAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bounds := func(spec Spec) Spec {
			spec.Entries = rapid.IntRange(0, 12).Draw(t, "entries")
			spec.Bytes = rapid.Int64Range(0, 12_000).Draw(t, "bytes")
			return spec
		}
		w := newModelTest(bounds(drawLives(t, Spec{})))
		actions := w.actions()
		actions["resize"] = func(*rapid.T) {
			w.model.spec = bounds(w.model.spec)
			w.cache.Reconfigure(w.model.spec)
		}
		actions["purge"] = func(*rapid.T) {
			w.cache.Purge(w.now)
			w.model.purge(w.now)
		}
		actions[""] = func(t *rapid.T) {
			var held int64
			for n := range 13 {
				key := keyOf(n)
				e, _, ok := w.cache.Get(key, w.now)
				if !ok {
					continue
				}
				held += entryHeapBytes(key, e)
				if got, want := stateOf(w.cache, key, w.now), w.model.look(key, w.now); got != want || !reflect.DeepEqual(e, w.model.kept[key]) {
					t.Fatalf("%s is %s %+v, want %s %+v", key, got, e, want, w.model.kept[key])
				}
			}
			if n, bytes := w.cache.Len(), w.cache.Bytes(); n > max(0, w.model.spec.Entries) || bytes > w.model.spec.Bytes || bytes < held {
				t.Fatalf("%d entries with %d bytes (%d held) within %+v", n, bytes, held, w.model.spec)
			}
		}
		t.Repeat(actions)
	})
}
