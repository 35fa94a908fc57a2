package index

import (
	"cmp"
	"context"
	"slices"
	"time"

	"micronode/internal/breaker"
	"micronode/internal/index/hedge"
	"micronode/internal/index/rank"
	"micronode/internal/index/record"
	"micronode/internal/oap"
)

const (
	maxPeersConsidered = 64 // of the overlay in one look-up: the nearest
	maxRestTargets     = 64 // targets that are asked after the waves
)

const (
	walkKey = "dht walk" // the engine's own walk
	restKey = "rest"     // all other targets together
)

func endpointKey(url string) string { return "delegated " + url }
func peerKey(id oap.PeerID) string  { return "peer " + id.String() }

// linger is how long a look-up of a name that has a record still waits for a
// newer one. The targets answer at about the same time; waiting for the last of
// them would cost more than it brings.
const linger = 25 * time.Millisecond

// plan decides which targets a look-up asks, and when. All targets form one
// ranked list: α are the first, β the next. The rest of the list and the
// network's own walk come after both waves. A target is charged for its silence
// if it has had a little less time than a second wave has.
//
// A look-up is complete with as many usable providers as are enough, or with a
// record of the name, whose signature was checked.
func (x *Index) plan(cfg *settings, q record.Question, client uint64, after time.Duration, enough int) hedge.Plan {
	p := hedge.Plan{Question: q, After: after, MinSilence: cfg.DHT.deadline() * 3 / 4, MayHedge: x.budget.TryTake, Breakers: clientBreakers{x.breakers, client}}
	if q.Kind == record.ByName {
		p.Linger, p.Owner = linger, peerKey(q.Owner)
		p.Enough = func(a record.Answer) bool { return a.Name != nil }
	} else {
		p.Enough = func(a record.Answer) bool { return x.countUsable(a.Providers) >= enough }
	}
	ranked := x.rankTargets(cfg, q)
	alpha := min(cfg.DHT.Alpha, len(ranked))
	beta := min(alpha+cfg.DHT.Beta, len(ranked))
	last := min(beta+maxRestTargets, len(ranked))
	p.Alpha, p.Beta = ranked[:alpha:alpha], ranked[alpha:beta:beta]
	rest := ranked[beta:last:last]

	// Others could know, but are not asked: those beyond the limits, or the DHT
	// while its bootstrap peers, which were named, have not been found.
	tooMany := x.spec.Overlay != nil && q.Kind == record.CID && len(x.spec.Overlay.ConnectedPeers()) > maxPeersConsidered
	noDHT := x.spec.Engine != nil && !x.dhtAlive() && len(cfg.DHT.Bootstrap) > 0
	p.Partial = last < len(ranked) || tooMany || noDHT

	if x.dhtAlive() {
		rest = append(rest, x.sanitizedTarget(hedge.Target{Key: walkKey, Source: record.DHT, Ask: x.spec.Engine.Walk}))
	}
	switch len(rest) {
	case 0:
	case 1:
		p.Walk = &rest[0]
	default:
		askRest := hedge.Plan{Question: q, Alpha: rest, Enough: p.Enough, Linger: p.Linger, Breakers: p.Breakers}
		p.Walk = &hedge.Target{Key: restKey, Composite: true, Source: rest[len(rest)-1].Source, Ask: func(ctx context.Context, _ record.Question) (record.Answer, error) {
			out, err := hedge.Run(ctx, x.racers, askRest)
			x.metrics.retries.Add(float64(out.Retries))
			return out.Answer, err
		}}
	}
	return p
}

// clientBreakers is the breakers as a look-up of one client sees them: what one
// client asks for in vain is not held against a target that answers others.
type clientBreakers struct {
	table  *breaker.Table
	client uint64
}

func (b clientBreakers) Allow(key string) (done func(err error), err error) {
	return b.table.AllowFrom(key, b.client)
}

// dhtAlive reports whether the routing table has peers.
func (x *Index) dhtAlive() bool { return x.spec.Engine != nil && x.spec.Engine.Size() > 0 }

// countUsable is how many providers this node could fetch from.
func (x *Index) countUsable(providers []record.Provider) (n int) {
	near := x.connectedAmong(providers)
	for _, p := range providers {
		if _, connected := near[p.ID]; connected || rank.Usable(p) {
			n++
		}
	}
	return n
}

// priors is what is expected of an unknown target: how likely its answer is
// useful, and how long it takes.
var priors = map[record.Source]struct {
	use     float64
	latency time.Duration
}{
	record.Peer:      {0.3, 30 * time.Millisecond},  // connected, but knows little beyond what it has
	record.DHT:       {0.5, 80 * time.Millisecond},  // the answer should be there
	record.Delegated: {0.4, 150 * time.Millisecond}, // knows much, but is far
}

// candidate is a target with what its rank depends on.
type candidate struct {
	hedge.Target
	score       float64 // how soon a useful answer is expected; more is better
	breakerOpen bool
}

// rankTargets orders all targets: first the owner of a name, then the best of
// each source, so that a source with many targets does not displace the others;
// then the rest. Targets with an open breaker come last.
//
// The score is how likely a target is useful, per unit of time that it takes.
// Twenty milliseconds are added, so that the nearest do not win by proximity
// alone.
func (x *Index) rankTargets(cfg *settings, q record.Question) []hedge.Target {
	const weight = 2 // the number of observations that the prior counts for
	now := time.Now()
	var all []candidate
	add := func(t hedge.Target, guess time.Duration) {
		usual, was := priors[t.Source], x.targets.get(t.Key, now)
		use := (was.successes + usual.use*weight) / (was.successes + was.failures + weight)
		score := use / float64(20*time.Millisecond+cmp.Or(was.latency, guess, usual.latency))
		all = append(all, candidate{Target: t, score: score, breakerOpen: x.breakers.State(t.Key) == breaker.Open})
	}
	if x.dhtAlive() {
		for _, t := range x.spec.Engine.Closest(q, cfg.DHT.Alpha+cfg.DHT.Beta) {
			add(x.sanitizedTarget(t), 0)
		}
	}
	for _, one := range x.peersToAsk(q) {
		add(x.sanitizedTarget(hedge.Target{Key: peerKey(one.ID), Source: record.Peer, Ask: func(ctx context.Context, q record.Question) (record.Answer, error) {
			return x.spec.Overlay.Ask(ctx, one.ID, q)
		}}), one.RTT)
	}
	if q.Kind == record.CID {
		for _, t := range cfg.endpoints {
			add(t, 0)
		}
	}
	owner := ""
	if q.Kind == record.ByName {
		owner = peerKey(q.Owner)
	}
	slices.SortStableFunc(all, func(a, b candidate) int {
		return cmp.Or(falseFirst(a.breakerOpen, b.breakerOpen), falseFirst(a.Key != owner, b.Key != owner), cmp.Compare(b.score, a.score))
	})
	var first, others []hedge.Target
	seen := map[record.Source]bool{}
	for _, one := range all {
		if !seen[one.Source] && !one.breakerOpen {
			seen[one.Source] = true
			first = append(first, one.Target)
		} else {
			others = append(others, one.Target)
		}
	}
	return append(first, others...)
}

// falseFirst puts false before true.
func falseFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	default:
		return 1
	}
}

// peersToAsk lists the peers of the overlay to consider: if there are many, the
// nearest, and the owner of a name.
func (x *Index) peersToAsk(q record.Question) []ConnectedPeer {
	if x.spec.Overlay == nil {
		return nil
	}
	all := x.spec.Overlay.ConnectedPeers()
	if len(all) > maxPeersConsidered {
		all = slices.Clone(all)
		others := func(one ConnectedPeer) bool { return q.Kind != record.ByName || one.ID != q.Owner }
		slices.SortFunc(all, func(a, b ConnectedPeer) int {
			return cmp.Or(falseFirst(others(a), others(b)), cmp.Compare(a.RTT, b.RTT), a.ID.Compare(b.ID))
		})
		all = all[:maxPeersConsidered]
	}
	return all
}

// rank orders providers by what this node knows of them.
func (x *Index) rank(providers []record.Provider, region string, now time.Time) []rank.Ranked {
	near := x.connectedAmong(providers)
	return rank.Order(providers, rank.Facts{WantedRegion: region, OwnRegion: x.spec.Config.Region, Now: now, History: func(p record.Provider) rank.History {
		was := x.providers.get(p.ID, now)
		h := rank.History{Latency: was.latency, Successes: was.successes, Failures: was.failures, Breaker: x.breakers.State("peer " + p.ID)}
		if one, ok := near[p.ID]; ok {
			h.Connected, h.Latency = true, cmp.Or(one.RTT, h.Latency)
		}
		return h
	}})
}

// connectedAmong finds the providers that there is a session with.
func (x *Index) connectedAmong(providers []record.Provider) map[string]ConnectedPeer {
	if x.spec.Overlay == nil || len(providers) == 0 {
		return nil
	}
	wanted := make(map[oap.PeerID]string, len(providers))
	for _, p := range providers {
		if id, err := oap.ParsePeerID(p.ID); err == nil {
			wanted[id] = p.ID
		}
	}
	found := map[string]ConnectedPeer{}
	for _, one := range x.spec.Overlay.ConnectedPeers() {
		if text, ok := wanted[one.ID]; ok {
			found[text] = one
		}
	}
	return found
}
