package index

import (
	"cmp"
	"context"
	"slices"
	"time"

	"micronode/internal/index/breaker"
	"micronode/internal/index/hedge"
	"micronode/internal/index/rank"
	"micronode/internal/index/record"
	"micronode/internal/oap"
)

const (
	mostNeighbours = 64 // of the overlay that one look-up considers: the nearest
	mostRest       = 64 // targets that are asked when the waves were not enough
)

const (
	walkKey = "dht walk" // the engine's own
	restKey = "rest"     // everybody else together; it has no breaker, for each of them has one
)

func endpointKey(url string) string     { return "delegated " + url }
func neighbourKey(id oap.PeerID) string { return "peer " + id.String() }

// ownerKey is the key of the one who can say what a name means; of an object,
// nobody's.
func ownerKey(q record.Question) string {
	if q.Kind != record.ByName {
		return ""
	}
	return neighbourKey(q.Of)
}

func providerKey(p record.Provider) string { return "peer " + p.ID }

// plan says whom a look-up asks, and when. All who may be asked stand in one
// line: α are the first, β the next. What is left of the line, and the
// network's own way of looking, come when neither was enough.
func (x *Index) plan(under *settings, q record.Question, after time.Duration) hedge.Plan {
	alpha, beta := under.DHT.Alpha, under.DHT.Beta
	line := x.line(under, q, alpha+beta)
	enough := x.enough(under, q)
	p := hedge.Plan{Question: q, After: after, Fair: fair(under), Enough: enough, MayHedge: x.budget.Take, Breakers: gates{x.breakers}}
	if q.Kind == record.ByName {
		p.Linger, p.Owner = linger, ownerKey(q)
	}
	p.Alpha, line = cut(line, alpha)
	p.Beta, line = cut(line, beta)
	rest, _ := cut(line, mostRest)
	if x.alive() {
		rest = append(slices.Clip(rest), x.washed(hedge.Target{Key: walkKey, Source: record.DHT, Ask: x.spec.Engine.Walk}))
	}
	switch len(rest) {
	case 0:
	case 1:
		p.Walk = &rest[0]
	default:
		p.Walk = &hedge.Target{Key: restKey, Source: rest[len(rest)-1].Source, Ask: func(ctx context.Context, q record.Question) (record.Answer, error) {
			out, err := hedge.Run(ctx, x.racers, hedge.Plan{Question: q, Alpha: rest, Enough: enough, Linger: p.Linger, Breakers: p.Breakers})
			return out.Answer, err
		}}
	}
	return p
}

// linger is how long a look-up of a name that has a record still listens for a
// newer one. Those who were asked answer at about the same time; to wait for the
// last of them would cost more than it brings.
const linger = 25 * time.Millisecond

// fair is what a target must have had of the budget to be blamed for silence:
// what a second wave has of it, and a little less.
func fair(under *settings) time.Duration { return under.DHT.deadline() * 3 / 4 }

func cut(line []hedge.Target, n int) (first, rest []hedge.Target) {
	n = min(n, len(line))
	return line[:n:n], line[n:]
}

// gates is the breakers, which do not judge what stands for many.
type gates struct{ *breaker.Table }

// Allow asks the breaker of a target.
func (g gates) Allow(key string) (done func(error), err error) {
	if key == restKey {
		return func(error) {}, nil
	}
	return g.Table.Allow(key)
}

// alive reports whether there is a network to walk.
func (x *Index) alive() bool { return x.spec.Engine != nil && x.spec.Engine.Size() > 0 }

// enough says when a look-up has what it was for: as many usable providers as
// the quorum, or a record of the name. Its signature was checked.
func (x *Index) enough(under *settings, q record.Question) func(record.Answer) bool {
	if q.Kind == record.ByName {
		return func(a record.Answer) bool { return a.Name != nil }
	}
	return func(a record.Answer) bool {
		usable, near := 0, x.sessions(a.Providers)
		for _, p := range a.Providers {
			if _, connected := near[p.ID]; connected || rank.Usable(p) {
				usable++
			}
		}
		return usable >= under.DHT.Quorum
	}
}

// connected is the peers that there is a session with, as text.
func (x *Index) connected() map[string]bool {
	all := map[string]bool{}
	if x.spec.Overlay != nil {
		for _, one := range x.spec.Overlay.Neighbours() {
			all[one.ID.String()] = true
		}
	}
	return all
}

// candidate is a target with its place in the line.
type candidate struct {
	hedge.Target
	worth float64 // how soon it is expected to be of use; more is better
	open  bool    // its breaker is
}

// line puts all who may be asked in order: first the owner of a name, then the
// best of each sort, so that no sort is left out because another has many; then
// the others. Those whose breaker is open come last.
func (x *Index) line(under *settings, q record.Question, waves int) []hedge.Target {
	now := time.Now()
	var all []candidate
	add := func(t hedge.Target, guess time.Duration) {
		all = append(all, candidate{Target: t, worth: x.worth(t, guess, now), open: x.breakers.State(t.Key) == breaker.Open})
	}
	if x.alive() {
		for _, t := range x.spec.Engine.Near(q, waves) {
			add(x.washed(t), 0)
		}
	}
	for _, one := range x.neighbours(q) {
		add(x.neighbour(one), one.RTT)
	}
	if q.Kind == record.CID {
		for _, t := range under.endpoints {
			add(t, 0)
		}
	}
	owner := ownerKey(q)
	slices.SortStableFunc(all, func(a, b candidate) int {
		return cmp.Or(order(a.open, b.open), order(a.Key != owner, b.Key != owner), cmp.Compare(b.worth, a.worth))
	})
	return seated(all)
}

// order puts false before true.
func order(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	default:
		return 1
	}
}

// seated moves the first of each source to the front.
func seated(all []candidate) []hedge.Target {
	var first, others []hedge.Target
	seen := map[record.Source]bool{}
	for _, one := range all {
		if !seen[one.Source] && !one.open {
			seen[one.Source] = true
			first = append(first, one.Target)
		} else {
			others = append(others, one.Target)
		}
	}
	return append(first, others...)
}

// neighbours lists those of the overlay that are worth asking: if there are
// many, the nearest, and the owner of a name.
func (x *Index) neighbours(q record.Question) []Neighbour {
	if x.spec.Overlay == nil {
		return nil
	}
	all := x.spec.Overlay.Neighbours()
	if len(all) > mostNeighbours {
		all = slices.Clone(all)
		others := func(one Neighbour) bool { return q.Kind != record.ByName || one.ID != q.Of }
		slices.SortFunc(all, func(a, b Neighbour) int {
			return cmp.Or(order(others(a), others(b)), cmp.Compare(a.RTT, b.RTT), a.ID.Compare(b.ID))
		})
		all = all[:mostNeighbours]
	}
	return all
}

func (x *Index) neighbour(one Neighbour) hedge.Target {
	return x.washed(hedge.Target{Key: neighbourKey(one.ID), Source: record.Peer, Ask: func(ctx context.Context, q record.Question) (record.Answer, error) {
		return x.spec.Overlay.Ask(ctx, one.ID, q)
	}})
}

// What is expected of a target of which nothing is known: how likely its answer
// is of use, and how long it takes.
var expected = map[record.Source]struct {
	use     float64
	latency time.Duration
}{
	record.Peer:      {0.3, 30 * time.Millisecond},  // it is there, but knows what it has and little more
	record.DHT:       {0.5, 80 * time.Millisecond},  // it is where the answer should be
	record.Delegated: {0.4, 150 * time.Millisecond}, // it knows much, and is far
}

// worth is how likely a target is of use, for each unit of time that it takes.
// Twenty milliseconds are added, so that the nearest do not win by being near
// alone.
func (x *Index) worth(t hedge.Target, guess time.Duration, now time.Time) float64 {
	const weight = 2 // how many experiences the expectation stands for
	usual := expected[t.Source]
	was := x.targets.of(t.Key, now)
	use := (was.successes + usual.use*weight) / (was.successes + was.failures + weight)
	return use / float64(20*time.Millisecond+cmp.Or(was.latency, guess, usual.latency))
}

// rank puts providers in order by what this node knows of them.
func (x *Index) rank(providers []record.Provider, region string, now time.Time) []rank.Ranked {
	near := x.sessions(providers)
	return rank.Order(providers, rank.Facts{Region: region, Own: x.spec.Config.Region, Now: now, Of: func(p record.Provider) rank.History {
		was := x.providers.of(p.ID, now)
		h := rank.History{Latency: was.latency, Successes: was.successes, Failures: was.failures, Breaker: x.breakers.State(providerKey(p))}
		if one, ok := near[p.ID]; ok {
			h.Connected, h.Latency = true, cmp.Or(one.RTT, h.Latency)
		}
		return h
	}})
}

// sessions finds those of the providers that there is a session with.
func (x *Index) sessions(providers []record.Provider) map[string]Neighbour {
	if x.spec.Overlay == nil || len(providers) == 0 {
		return nil
	}
	wanted := make(map[oap.PeerID]string, len(providers))
	for _, p := range providers {
		if id, err := oap.ParsePeerID(p.ID); err == nil {
			wanted[id] = p.ID
		}
	}
	found := map[string]Neighbour{}
	for _, one := range x.spec.Overlay.Neighbours() {
		if text, ok := wanted[one.ID]; ok {
			found[text] = one
		}
	}
	return found
}
