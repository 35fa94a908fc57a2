package capability

import (
	"container/heap"
	"crypto/sha256"
	"encoding/binary"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"gopkg.in/macaroon.v2"

	"micronode/fault"
)

// How many meters are kept at most: in all, and for the tokens that were
// attenuated from one minted token. The second bound is so that the holder of
// one token cannot use up the first.
const (
	maxMeters = 4096
	maxFamily = 256
)

// meters measures how often rate caveats are used. A meter that has had time
// to fill up again is like a new one, so it is forgotten, and nothing is lost.
// What is left are the meters in use, and their number is bounded: one more is
// refused as Busy, because forgetting a meter in use would give its holder a
// fresh burst.
type meters struct {
	most, family int // set at construction

	mu       sync.Mutex
	byKey    map[meterKey]*meter // guarded by mu
	families map[string]int      // guarded by mu; meters in use by identifier of the minted token
	idle     fullFirst           // guarded by mu
}

type meterKey [sha256.Size]byte

// meter is the state of one rate caveat. All of it is guarded by the mu of
// meters.
type meter struct {
	key     meterKey
	family  string
	limiter *rate.Limiter
	full    time.Time // when it is as good as new
	at      int       // its place in the heap
}

func newMeters(most, family int) *meters {
	return &meters{most: most, family: family, byKey: map[meterKey]*meter{}, families: map[string]int{}}
}

// take counts one use of every rate caveat of a token, or of none of them.
func (ms *meters) take(op string, now time.Time, m *macaroon.Macaroon, caveats []Caveats) error {
	asked := asked(m, caveats)
	if len(asked) == 0 {
		return nil
	}
	ms.mu.Lock()
	defer ms.mu.Unlock()
	ms.forget(now)
	fresh := 0
	for i, one := range asked {
		if known := ms.byKey[one.key]; known != nil {
			asked[i] = known
		} else {
			fresh++
		}
	}
	if err := ms.room(op, now, string(m.Id()), fresh); err != nil {
		return err
	}
	var wait time.Duration
	for _, one := range asked {
		wait = max(wait, one.until(now, 1))
	}
	if wait > 0 {
		err := fault.New(op, fault.RateLimited, "the token is used more often than its rate allows")
		err.Next = "Wait for Retry-After, or ask the operator for a token with a higher rate."
		err.RetryAfter = wait
		return err
	}
	for _, one := range asked {
		one.limiter.AllowN(now, 1) // there is room, and we hold the lock
		one.full = now.Add(one.until(now, float64(one.limiter.Burst())))
		ms.keep(one)
	}
	return nil
}

// asked lists a fresh meter for every rate caveat of a token. The key of a
// meter is the token up to and including the caveat: all that was attenuated
// from there shares it.
func asked(m *macaroon.Macaroon, caveats []Caveats) []*meter {
	var list []*meter
	hash := sha256.New()
	add := func(part []byte) {
		hash.Write(binary.BigEndian.AppendUint32(nil, uint32(len(part))))
		hash.Write(part)
	}
	add(m.Id())
	for i, c := range caveats {
		add(m.Caveats()[i].Id)
		if c.Rate != (Rate{}) {
			list = append(list, &meter{key: meterKey(hash.Sum(nil)), family: string(m.Id()),
				limiter: rate.NewLimiter(c.Rate.limit(), c.Rate.Burst), at: -1})
		}
	}
	return list
}

// forget drops the meters that are full again.
func (ms *meters) forget(now time.Time) {
	for len(ms.idle) > 0 && !ms.idle[0].full.After(now) {
		gone := heap.Pop(&ms.idle).(*meter)
		delete(ms.byKey, gone.key)
		if ms.families[gone.family]--; ms.families[gone.family] == 0 {
			delete(ms.families, gone.family)
		}
	}
}

// room refuses new meters above the bounds.
func (ms *meters) room(op string, now time.Time, family string, fresh int) error {
	var detail string
	switch {
	case fresh == 0:
		return nil
	case ms.families[family]+fresh > ms.family:
		detail = "too many rates were derived from one token and are in use"
	case len(ms.byKey)+fresh > ms.most:
		detail = "too many tokens with a rate are in use"
	default:
		return nil
	}
	err := fault.New(op, fault.Busy, "%s", detail)
	err.RetryAfter = ceil(ms.idle[0].full.Sub(now))
	return err
}

// keep remembers a meter, or moves it to its new place among those known.
func (ms *meters) keep(one *meter) {
	if one.at >= 0 {
		heap.Fix(&ms.idle, one.at)
		return
	}
	ms.byKey[one.key] = one
	ms.families[one.family]++
	heap.Push(&ms.idle, one)
}

// until is how long it takes until the meter has so many uses to give.
func (one *meter) until(now time.Time, uses float64) time.Duration {
	lack := uses - one.limiter.TokensAt(now)
	if lack <= 0 {
		return 0
	}
	return ceil(time.Duration(lack / float64(one.limiter.Limit()) * float64(time.Second)))
}

// ceil rounds up to a millisecond, which is more than floating point loses.
func ceil(d time.Duration) time.Duration { return d.Truncate(time.Millisecond) + time.Millisecond }

// fullFirst is a heap of the meters in use, the one that is full soonest on
// top.
type fullFirst []*meter

func (f fullFirst) Len() int           { return len(f) }
func (f fullFirst) Less(i, j int) bool { return f[i].full.Before(f[j].full) }
func (f fullFirst) Swap(i, j int) {
	f[i], f[j] = f[j], f[i]
	f[i].at, f[j].at = i, j
}

func (f *fullFirst) Push(one any) {
	m := one.(*meter)
	m.at = len(*f)
	*f = append(*f, m)
}

func (f *fullFirst) Pop() any {
	end := len(*f) - 1
	last := (*f)[end]
	(*f)[end] = nil // so that the slice does not keep it alive
	*f = (*f)[:end]
	return last
}
