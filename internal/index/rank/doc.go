// Package rank orders the providers of an object: which one to ask first, and
// why.
//
// It is pure arithmetic. It reads no clock, does no I/O, and has no state and
// no randomness: the same providers with the same facts come out in the same
// order on every machine, whatever their order was before. So an answer can be
// explained, repeated and compared.
//
// # One provider for each node
//
// Several targets may know the same node, each with different details. [Order]
// first merges them: all addresses, the latest time at which the node was seen,
// and the region. Where they disagree, the more reliable source wins: this node
// itself, then the registry, a peer of the overlay, the DHT, an endpoint of
// Delegated Routing, and last the cache; among equals the more recently seen.
// At most [record.MaxAddrs] addresses of each kind are kept, so that false
// addresses for another node do not displace the real ones.
//
// # The score
//
// The score is a number from 0 to 1 with three digits. It has five components,
// each between 0 and 1 and each with a weight:
//
//	freshness   0.25   1 / (1 + age/1h). A connected provider has age zero.
//	                   Unknown: 0.25, as if three hours old.
//	latency     0.25   1 / (1 + latency/50ms). Unknown: 0.4, as for 75 ms.
//	region      0.20   how many of the words of the wanted region it shares from
//	                   the left: if eu-west is wanted, eu-west has 1, eu-north
//	                   0.5, us 0. Unknown: 0.25. Without a wanted region this
//	                   node's own counts; without either: 0.5.
//	success     0.20   (successes + 1) / (successes + failures + 2), so that a
//	                   newcomer has 0.5 and one lucky answer is not a record.
//	breaker     0.10   closed 1, half-open 0.5, open 0.
//
// Each component is monotonic: with all else equal, a provider that is fresher,
// nearer, of a better region, with more successes or fewer failures never has a
// lower score. Unknown values are in the lower middle, so that a proven
// provider precedes a newcomer and a newcomer precedes a proven bad one;
// otherwise a new provider would never be tried.
//
// Two conditions outweigh any sum. If the breaker is open, the score is halved:
// the provider could not be asked. If this node has no way to fetch from the
// provider (see [Usable]), it is halved too: others may have a way, so it is
// worth reporting, but not worth trying. This node itself is fresh, near and
// proven, whatever its history.
//
// Scores are compared after rounding, and equal ones are in the order of their
// IDs. So what is printed explains the order completely.
//
// # Classes
//
// A [Ranked] also has its score as a class: "best" from 0.75, "good" from 0.5,
// "fair" from 0.25, and "poor". The latency has one as well: "local" for this
// node and for up to a millisecond, "near" below 20 ms, "medium" below 100 ms,
// "far", and "unknown".
//
// # Limits of its scope
//
// The caller decides which providers to ask, and how many. The package trusts
// the history that it is given, and drops no provider.
package rank
