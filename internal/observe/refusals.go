package observe

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"micronode/client"
)

const (
	// refusalMemory is how long a rejected client stays in the status.
	refusalMemory = 10 * time.Minute

	// maxRefusals bounds how many are remembered. Beyond that they are counted
	// together, so that a flood from many addresses is bounded too.
	maxRefusals = 256

	// maxRefusalsShown is how many of them the status lists.
	maxRefusalsShown = 16

	// otherClients is the name of those that are counted together.
	otherClients = "others"
)

// Refusals remembers which clients a limit has rejected: for the log, which
// names each at most once a minute, and for the status. Metrics count all of
// them, and never say who. The zero value is ready.
type Refusals struct {
	mu   sync.Mutex //lockblock:leaf a map of bounded size
	seen map[refusalKey]*refusal
}

type refusalKey struct{ client, limit string }

type refusal struct {
	setting      string
	count        uint64
	last, logged time.Time
	held         uint64 // since it was logged
}

// Note remembers that a limit rejected a client. It reports whether to write a
// line about it, and how often that client was rejected since the last one.
func (r *Refusals) Note(who, limit, setting string, now time.Time) (held uint64, first bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := r.find(refusalKey{who, limit}, now)
	known.setting, known.last = setting, now
	known.count++
	if !known.logged.IsZero() && now.Sub(known.logged) < repeatInterval {
		known.held++
		return 0, false
	}
	held, known.held, known.logged = known.held, 0, now
	return held, true
}

// find returns the entry of a client and a limit, a new one if it has none.
func (r *Refusals) find(key refusalKey, now time.Time) *refusal {
	if r.seen == nil {
		r.seen = map[refusalKey]*refusal{}
	}
	known := r.seen[key]
	if known == nil && len(r.seen) >= maxRefusals {
		r.forget(now, repeatInterval)
	}
	if known == nil && len(r.seen) >= maxRefusals {
		key = refusalKey{otherClients, key.limit}
		known = r.seen[key]
	}
	if known == nil || now.Sub(known.last) >= refusalMemory {
		known = &refusal{}
		r.seen[key] = known
	}
	return known
}

// forget removes what was last seen so long ago.
func (r *Refusals) forget(now time.Time, age time.Duration) {
	for key, one := range r.seen {
		if now.Sub(one.last) >= age {
			delete(r.seen, key)
		}
	}
}

// Recent lists the clients of the last ten minutes, the newest first.
func (r *Refusals) Recent(now time.Time) []client.Refused {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forget(now, refusalMemory)
	var list []client.Refused
	for key, one := range r.seen {
		list = append(list, client.Refused{Client: key.client, Limit: key.limit, Setting: one.setting,
			Count: int(one.count), Last: one.last.UTC().Format(time.RFC3339)})
	}
	slices.SortFunc(list, func(a, b client.Refused) int {
		return cmp.Or(cmp.Compare(b.Last, a.Last), cmp.Compare(b.Count, a.Count), cmp.Compare(a.Client, b.Client), cmp.Compare(a.Limit, b.Limit))
	})
	return list[:min(len(list), maxRefusalsShown)]
}
