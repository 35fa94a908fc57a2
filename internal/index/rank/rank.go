package rank

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"micronode/internal/index/record"
)

// Facts are what the order depends on besides the providers themselves.
type Facts struct {
	WantedRegion string // empty: no preference
	OwnRegion    string // of this node; empty: none
	Now          time.Time

	// History returns what is known of a provider from experience. It is called
	// once for each. Nil: nothing is known of any.
	History func(record.Provider) History
}

// History is what a node knows of a provider from experience.
type History struct {
	Latency   time.Duration // 0: unknown
	Successes float64       // weighted by age
	Failures  float64       // likewise
	Breaker   string        // "closed", "half-open", "open", or "" if there is none
	Connected bool          // there is a session with it in the overlay
}

// Ranked is a provider with its score.
type Ranked struct {
	Provider record.Provider
	Score    float64 // from 0 to 1, with three digits
	Class    string  // of the score: best, good, fair, poor
	Latency  string  // local, near, medium, far, unknown
}

// The weights of the five components. They add up to one.
const (
	weightFreshness = 0.25
	weightLatency   = 0.25
	weightRegion    = 0.20
	weightSuccess   = 0.20
	weightBreaker   = 0.10
)

// Where freshness and latency score one half.
const (
	halfAge     = time.Hour
	halfLatency = 50 * time.Millisecond
)

// Scores of unknown values.
const (
	unknownFreshness = 0.25
	unknownLatency   = 0.4
	unknownRegion    = 0.25
	noPreference     = 0.5
)

// Order merges the providers of each node and returns them best first. The
// input is not changed.
func Order(providers []record.Provider, f Facts) []Ranked {
	merged := merge(providers)
	ranked := make([]Ranked, len(merged))
	for i, p := range merged {
		ranked[i] = f.rank(p)
	}
	// merged is in the order of the IDs, and the sort is stable.
	slices.SortStableFunc(ranked, func(a, b Ranked) int { return cmp.Compare(b.Score, a.Score) })
	return ranked
}

// Usable reports whether this node could fetch from a provider: it is this
// node, or it has an address of a kind that can be dialled.
func Usable(p record.Provider) bool {
	return p.Source == record.Local || len(p.Overlay) > 0 || len(p.HTTP) > 0
}

func (f Facts) rank(p record.Provider) Ranked {
	var h History
	if f.History != nil {
		h = f.History(p)
	}
	score := round(f.score(p, h))
	return Ranked{Provider: p, Score: score, Class: class(score), Latency: latencyClass(p, h)}
}

// score is the weighted sum. The conversions prevent fused multiply-add, which
// would round differently on some machines.
func (f Facts) score(p record.Provider, h History) float64 {
	sum := float64(weightFreshness*f.freshnessScore(p, h)) +
		float64(weightLatency*latencyScore(p, h)) +
		float64(weightRegion*f.regionScore(p)) +
		float64(weightSuccess*successScore(p, h)) +
		float64(weightBreaker*breakerScore(h))
	if h.Breaker == "open" {
		sum /= 2
	}
	if !Usable(p) && !h.Connected {
		sum /= 2
	}
	return sum
}

func (f Facts) freshnessScore(p record.Provider, h History) float64 {
	switch {
	case h.Connected || p.Source == record.Local:
		return 1
	case p.Seen.IsZero():
		return unknownFreshness
	default:
		return hyperbolicDecay(f.Now.Sub(p.Seen), halfAge)
	}
}

func latencyScore(p record.Provider, h History) float64 {
	switch {
	case p.Source == record.Local:
		return 1
	case h.Latency <= 0:
		return unknownLatency
	default:
		return hyperbolicDecay(h.Latency, halfLatency)
	}
}

// hyperbolicDecay falls from one to zero and is one half at middle. A negative
// duration, as from a clock that is ahead, counts as zero.
func hyperbolicDecay(d, middle time.Duration) float64 {
	return 1 / (1 + float64(max(0, d))/float64(middle))
}

func (f Facts) regionScore(p record.Provider) float64 {
	wanted := cmp.Or(f.WantedRegion, f.OwnRegion)
	switch {
	case wanted == "":
		return noPreference
	case p.Region == "":
		return unknownRegion
	default:
		return regionOverlap(wanted, p.Region)
	}
}

// regionOverlap is the share of the wanted words that the region has, from the
// left.
func regionOverlap(wanted, region string) float64 {
	words, has := strings.Split(strings.ToLower(wanted), "-"), strings.Split(strings.ToLower(region), "-")
	n := 0
	for n < min(len(words), len(has)) && words[n] == has[n] {
		n++
	}
	return float64(n) / float64(len(words))
}

func successScore(p record.Provider, h History) float64 {
	if p.Source == record.Local {
		return 1
	}
	good, bad := atLeastZero(h.Successes), atLeastZero(h.Failures)
	return (good + 1) / (good + bad + 2)
}

// atLeastZero sanitizes a count that may be the result of a division by zero.
func atLeastZero(n float64) float64 {
	const most = 1e9
	if n > 0 { // and not NaN
		return min(n, most)
	}
	return 0
}

func breakerScore(h History) float64 {
	switch h.Breaker {
	case "open":
		return 0
	case "half-open":
		return 0.5
	default:
		return 1
	}
}

// round rounds to three digits.
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
