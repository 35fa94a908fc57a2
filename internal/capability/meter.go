package capability

import (
	"container/heap"
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
	maxMeters         = 4096
	maxMetersPerToken = 256
)

// meters measures how often rate caveats are used. A meter that is full again
// is like a new one, so it is evicted without loss. The rest are the meters in
// use, and their number is bounded: one more is refused as Busy, because
// evicting a meter in use would give its holder a fresh burst.
type meters struct {
	max, maxPerToken int // set at construction

	mu        sync.Mutex
	byKey     map[chainHash]*meter // guarded by mu
	perMinted map[string]int       // guarded by mu; meters in use by identifier of the minted token
	byFull    fullHeap             // guarded by mu
}

// meter is the state of one rate caveat. All of it is guarded by the mu of
// meters.
type meter struct {
	key       chainHash
	mintedID  string
	limiter   *rate.Limiter
	full      time.Time // when it is full again
	heapIndex int       // its index in the heap
}

func newMeters(most, family int) *meters {
	return &meters{max: most, maxPerToken: family, byKey: map[chainHash]*meter{}, perMinted: map[string]int{}}
}

// take counts one use of every rate caveat of a token, or of none of them.
func (ms *meters) take(op string, now time.Time, m *macaroon.Macaroon, caveats []Caveats) error {
	asked := metersOf(m, caveats)
	if len(asked) == 0 {
		return nil
	}
	ms.mu.Lock()
	defer ms.mu.Unlock()
	ms.evictFull(now)
	fresh := 0
	for i, one := range asked {
		if known := ms.byKey[one.key]; known != nil {
			asked[i] = known
		} else {
			fresh++
		}
	}
	if err := ms.checkCapacity(op, now, string(m.Id()), fresh); err != nil {
		return err
	}
	var wait time.Duration
	for _, one := range asked {
		wait = max(wait, one.until(now, 1))
	}
	if wait > 0 {
		return fault.New(op, fault.RateLimited, "the token is used more often than its rate allows").
			Advise("Wait for Retry-After, or ask the operator for a token with a higher rate.").RetryIn(wait)
	}
	for _, one := range asked {
		one.limiter.AllowN(now, 1) // there is room, and we hold the lock
		one.full = now.Add(one.until(now, float64(one.limiter.Burst())))
		ms.put(one)
	}
	return nil
}

// metersOf lists a fresh meter for every rate caveat of a token. The key of a
// meter is the token up to and including the caveat: all tokens attenuated from
// there share it.
func metersOf(m *macaroon.Macaroon, caveats []Caveats) []*meter {
	var list []*meter
	all := chainHashes(m)
	for i, c := range caveats {
		if c.Rate != (Rate{}) {
			list = append(list, &meter{key: all[i+1], mintedID: string(m.Id()), limiter: rate.NewLimiter(c.Rate.limit(), c.Rate.Burst), heapIndex: -1})
		}
	}
	return list
}

// evictFull drops the meters that are full again.
func (ms *meters) evictFull(now time.Time) {
	for len(ms.byFull) > 0 && !ms.byFull[0].full.After(now) {
		gone := heap.Pop(&ms.byFull).(*meter)
		delete(ms.byKey, gone.key)
		if ms.perMinted[gone.mintedID]--; ms.perMinted[gone.mintedID] == 0 {
			delete(ms.perMinted, gone.mintedID)
		}
	}
}

// checkCapacity rejects new meters above the bounds.
func (ms *meters) checkCapacity(op string, now time.Time, family string, fresh int) error {
	var detail string
	switch {
	case fresh == 0:
		return nil
	case ms.perMinted[family]+fresh > ms.maxPerToken:
		detail = "too many rates were derived from one token and are in use"
	case len(ms.byKey)+fresh > ms.max:
		detail = "too many tokens with a rate are in use"
	default:
		return nil
	}
	err := fault.New(op, fault.Busy, "%s", detail)
	err.RetryAfter = ceil(ms.byFull[0].full.Sub(now))
	return err
}

// put adds a meter, or moves it in the heap.
func (ms *meters) put(one *meter) {
	if one.heapIndex >= 0 {
		heap.Fix(&ms.byFull, one.heapIndex)
		return
	}
	ms.byKey[one.key] = one
	ms.perMinted[one.mintedID]++
	heap.Push(&ms.byFull, one)
}

// until is how long it takes until the meter has so many uses left.
func (m *meter) until(now time.Time, uses float64) time.Duration {
	lack := uses - m.limiter.TokensAt(now)
	if lack <= 0 {
		return 0
	}
	return ceil(time.Duration(lack / float64(m.limiter.Limit()) * float64(time.Second)))
}

// ceil rounds up to a millisecond, which is more than floating point loses.
func ceil(d time.Duration) time.Duration { return d.Truncate(time.Millisecond) + time.Millisecond }

// fullHeap is a heap of the meters in use, the one that is full soonest on
// top.
type fullHeap []*meter

func (f fullHeap) Len() int           { return len(f) }
func (f fullHeap) Less(i, j int) bool { return f[i].full.Before(f[j].full) }
func (f fullHeap) Swap(i, j int) {
	f[i], f[j] = f[j], f[i]
	f[i].heapIndex, f[j].heapIndex = i, j
}

func (f *fullHeap) Push(one any) {
	m := one.(*meter)
	m.heapIndex = len(*f)
	*f = append(*f, m)
}

func (f *fullHeap) Pop() any {
	end := len(*f) - 1
	last := (*f)[end]
	(*f)[end] = nil // so that the slice does not keep it alive
	*f = (*f)[:end]
	return last
}
