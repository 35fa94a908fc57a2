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

// Order merges the providers of each node into one and returns them best first.
// The input is not changed.
func Order(providers []record.Provider, f Facts) []Ranked {
	sorted := make([]*record.Provider, len(providers))
	for i := range providers {
		sorted[i] = &providers[i]
	}
	slices.SortFunc(sorted, compareForMerge)
	merged := make([]record.Provider, 0, len(providers))
	for i, p := range sorted {
		if i == 0 || !isSameNode(sorted[i-1], p) {
			merged = append(merged, record.Provider{ID: p.ID, Source: p.Source})
		}
		merged[len(merged)-1].Merge(p)
	}
	ranked := make([]Ranked, len(merged))
	for i, p := range merged {
		ranked[i] = f.rank(p)
	}
	// merged is in the order of the IDs, and the sort is stable.
	slices.SortStableFunc(ranked, func(a, b Ranked) int { return cmp.Compare(b.Score, a.Score) })
	return ranked
}

// isSameNode reports whether two providers are one node. Without an ID, they
// are only if all addresses are equal.
func isSameNode(a, b *record.Provider) bool {
	if a.ID != "" || b.ID != "" {
		return a.ID == b.ID
	}
	return compareAddrs(a, b) == 0
}

// compareForMerge is the order of merging. It is total except for providers
// that are equal in everything, so that the input order does not matter.
func compareForMerge(a, b *record.Provider) int {
	if c := cmp.Compare(a.ID, b.ID); c != 0 {
		return c
	}
	if a.ID == "" {
		if c := compareAddrs(a, b); c != 0 {
			return c
		}
	}
	return cmp.Or(
		cmp.Compare(sourceRank(a.Source), sourceRank(b.Source)),
		b.Seen.Compare(a.Seen),
		cmp.Compare(a.Source, b.Source),
		cmp.Compare(a.Region, b.Region),
		compareAddrs(a, b),
	)
}

func compareAddrs(a, b *record.Provider) int {
	return cmp.Or(slices.Compare(a.Overlay, b.Overlay), slices.Compare(a.HTTP, b.HTTP), slices.Compare(a.Other, b.Other))
}

// sourceRank is the rank of a source; the most reliable has 0.
func sourceRank(s record.Source) int {
	order := [...]record.Source{record.Local, record.Registry, record.Peer, record.DHT, record.Delegated, record.Cache}
	if at := slices.Index(order[:], s); at >= 0 {
		return at
	}
	return len(order)
}

// Usable reports whether this node could fetch from a provider: it is this
// node, or it has an address of a kind that can be dialled.
func Usable(p record.Provider) bool {
	return p.Source == record.Local || len(p.Overlay) > 0 || len(p.HTTP) > 0
}

// rank makes the score of a provider: five components from 0 to 1, by their
// weights. This node itself is fresh, near and proven.
func (f Facts) rank(p record.Provider) Ranked {
	var h History
	if f.History != nil {
		h = f.History(p)
	}
	local := p.Source == record.Local

	freshness := unknownFreshness
	switch {
	case local || h.Connected:
		freshness = 1
	case !p.Seen.IsZero():
		freshness = hyperbolicDecay(f.Now.Sub(p.Seen), halfAge)
	}

	latency := unknownLatency
	switch {
	case local:
		latency = 1
	case h.Latency > 0:
		latency = hyperbolicDecay(h.Latency, halfLatency)
	}

	region := noPreference
	if wanted := cmp.Or(f.WantedRegion, f.OwnRegion); wanted != "" {
		region = unknownRegion
		if p.Region != "" {
			region = regionOverlap(wanted, p.Region)
		}
	}

	success := 1.0
	if !local {
		good, bad := atLeastZero(h.Successes), atLeastZero(h.Failures)
		success = (good + 1) / (good + bad + 2)
	}

	breaker := 1.0
	switch h.Breaker {
	case "open":
		breaker = 0
	case "half-open":
		breaker = 0.5
	}

	// The conversions prevent fused multiply-add, which would round differently
	// on some machines.
	score := float64(weightFreshness*freshness) + float64(weightLatency*latency) + float64(weightRegion*region) +
		float64(weightSuccess*success) + float64(weightBreaker*breaker)
	if h.Breaker == "open" {
		score /= 2
	}
	if !Usable(p) && !h.Connected {
		score /= 2
	}
	score = math.Round(score*1000) / 1000
	return Ranked{Provider: p, Score: score, Class: class(score), Latency: latencyClass(p, h)}
}

// hyperbolicDecay falls from one to zero and is one half at middle. A negative
// duration, as from a clock that is ahead, counts as zero.
func hyperbolicDecay(d, middle time.Duration) float64 {
	return 1 / (1 + float64(max(0, d))/float64(middle))
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

// atLeastZero sanitizes a count that may be the result of a division by zero.
func atLeastZero(n float64) float64 {
	const most = 1e9
	if n > 0 { // and not NaN
		return min(n, most)
	}
	return 0
}

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
