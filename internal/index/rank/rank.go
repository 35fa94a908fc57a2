package rank

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"micronode/internal/index/record"
)

// Facts are what the order depends on beside the providers themselves.
type Facts struct {
	Region string // the one that is wanted; empty: no wish
	Own    string // this node's region; empty: it has none
	Now    time.Time

	// Of is what is known of a provider from experience. It is asked once for
	// each. Nil: nothing is known of anybody.
	Of func(record.Provider) History
}

// History is what a node remembers of a provider.
type History struct {
	Latency   time.Duration // until it answered; 0: unknown
	Successes float64       // that count less as they grow old
	Failures  float64       // likewise
	Breaker   string        // "closed", "half-open", "open", or "" if there is none
	Connected bool          // there is a session with it in the overlay
}

// Ranked is a provider with its place in the order.
type Ranked struct {
	Provider record.Provider
	Score    float64 // from 0 to 1, with three digits
	Class    string  // the score in a word: best, good, fair, poor
	Latency  string  // local, near, medium, far, unknown
}

// The weights of the five parts. They add up to one.
const (
	weightFreshness = 0.25
	weightLatency   = 0.25
	weightRegion    = 0.20
	weightSuccess   = 0.20
	weightBreaker   = 0.10
)

// Where the curves of freshness and latency are at one half.
const (
	middleAge     = time.Hour
	middleLatency = 50 * time.Millisecond
)

// What counts where nothing is known.
const (
	unknownFreshness = 0.25
	unknownLatency   = 0.4
	unknownRegion    = 0.25
	noWish           = 0.5
)

// Order makes one provider for each node and puts them in order, the best
// first. What it is given is not changed.
func Order(providers []record.Provider, f Facts) []Ranked {
	merged := merge(providers)
	ranked := make([]Ranked, len(merged))
	for i, p := range merged {
		ranked[i] = f.rank(p)
	}
	// The merged ones come in the order of their IDs, and the sort is stable.
	slices.SortStableFunc(ranked, func(a, b Ranked) int { return cmp.Compare(b.Score, a.Score) })
	return ranked
}

// Usable tells whether we could fetch from a provider at all: it is this node,
// or it has an address of a kind that we can dial.
func Usable(p record.Provider) bool {
	return p.Source == record.Local || len(p.Overlay) > 0 || len(p.HTTP) > 0
}

func (f Facts) rank(p record.Provider) Ranked {
	var h History
	if f.Of != nil {
		h = f.Of(p)
	}
	score := round(f.score(p, h))
	return Ranked{Provider: p, Score: score, Class: class(score), Latency: latencyClass(p, h)}
}

// score is the weighted sum. The conversions keep a compiler from rounding
// differently on machines that can multiply and add in one step.
func (f Facts) score(p record.Provider, h History) float64 {
	sum := float64(weightFreshness*f.freshness(p, h)) +
		float64(weightLatency*latency(p, h)) +
		float64(weightRegion*f.region(p)) +
		float64(weightSuccess*success(p, h)) +
		float64(weightBreaker*breaker(h))
	if h.Breaker == "open" {
		sum /= 2
	}
	if !Usable(p) && !h.Connected {
		sum /= 2
	}
	return sum
}

func (f Facts) freshness(p record.Provider, h History) float64 {
	switch {
	case h.Connected || p.Source == record.Local:
		return 1
	case p.Seen.IsZero():
		return unknownFreshness
	default:
		return falling(f.Now.Sub(p.Seen), middleAge)
	}
}

func latency(p record.Provider, h History) float64 {
	switch {
	case p.Source == record.Local:
		return 1
	case h.Latency <= 0:
		return unknownLatency
	default:
		return falling(h.Latency, middleLatency)
	}
}

// falling goes from one down to zero and is one half at the middle. Less than
// nothing, as from a clock that is ahead, counts as nothing.
func falling(d, middle time.Duration) float64 {
	return 1 / (1 + float64(max(0, d))/float64(middle))
}

func (f Facts) region(p record.Provider) float64 {
	wanted := cmp.Or(f.Region, f.Own)
	switch {
	case wanted == "":
		return noWish
	case p.Region == "":
		return unknownRegion
	default:
		return shared(wanted, p.Region)
	}
}

// shared is the part of the wanted words that the region has too, from the left.
func shared(wanted, region string) float64 {
	words, has := strings.Split(strings.ToLower(wanted), "-"), strings.Split(strings.ToLower(region), "-")
	n := 0
	for n < min(len(words), len(has)) && words[n] == has[n] {
		n++
	}
	return float64(n) / float64(len(words))
}

func success(p record.Provider, h History) float64 {
	if p.Source == record.Local {
		return 1
	}
	good, bad := atLeastZero(h.Successes), atLeastZero(h.Failures)
	return (good + 1) / (good + bad + 2)
}

// atLeastZero makes a count of what may be the result of a division by zero.
func atLeastZero(n float64) float64 {
	const most = 1e9
	if n > 0 { // and not NaN
		return min(n, most)
	}
	return 0
}

func breaker(h History) float64 {
	switch h.Breaker {
	case "open":
		return 0
	case "half-open":
		return 0.5
	default:
		return 1
	}
}

// round leaves three digits.
func round(score float64) float64 { return math.Round(score*1000) / 1000 }

func class(score float64) string {
	switch {
	case score >= 0.75:
		return "best"
	case score >= 0.5:
		return "good"
	case score >= 0.25:
		return "fair"
	default:
		return "poor"
	}
}

func latencyClass(p record.Provider, h History) string {
	switch {
	case p.Source == record.Local:
		return "local"
	case h.Latency <= 0:
		return "unknown"
	case h.Latency <= time.Millisecond:
		return "local"
	case h.Latency < 20*time.Millisecond:
		return "near"
	case h.Latency < 100*time.Millisecond:
		return "medium"
	default:
		return "far"
	}
}
