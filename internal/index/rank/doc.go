// Package rank puts the providers of an object in order: whom to ask first, and
// why.
//
// It is arithmetic and nothing else. It reads no clock, opens nothing,
// remembers nothing and throws no dice: the same providers with the same facts
// come out in the same order on every machine, however they were mixed when
// they came in. So an answer can be explained, repeated and compared.
//
// # One provider for each node
//
// Several targets may know of the same node, and each tells it in its own way.
// [Order] first makes one of them: all addresses, the latest time at which
// anybody heard of it, and the region. Where they disagree, who is nearer to
// the truth speaks first: this node itself, then the registry, a peer of the
// overlay, the DHT, an endpoint of Delegated Routing, and last what was cached;
// among equals who heard of it later. At most [MaxAddrs] addresses of a sort are
// kept, so that a liar who heaps up addresses of somebody else's node does not
// drown the real ones.
//
// # The score
//
// The score is a number from 0 to 1 with three digits. Five things go into it,
// each between 0 and 1 and each with a weight:
//
//	freshness   0.25   1 / (1 + age/1h). One we are connected with is heard of
//	                   now. If nobody knows the age: 0.25, as if three hours old.
//	latency     0.25   1 / (1 + latency/50ms). Unknown: 0.4, as for 75 ms.
//	region      0.20   how many of the words of the wanted region it shares from
//	                   the left: eu-west wants eu-west (1), eu-north has half of
//	                   it (0.5), us nothing (0). Unknown: 0.25. Without a wish
//	                   this node's own region is wanted; without either: 0.5.
//	success     0.20   (successes + 1) / (successes + failures + 2), so that a
//	                   newcomer has 0.5 and one lucky answer is not a record.
//	breaker     0.10   closed 1, half-open 0.5, open 0.
//
// Each of the five only ever helps: with all else equal, a provider that is
// fresher, nearer, of a better region, with more successes or fewer failures
// never has a lower score. The unknown stands in the lower middle, so that a
// proven provider goes before a newcomer and a newcomer before a proven bad one;
// otherwise nobody would ever be tried for the first time.
//
// Two things weigh more than any sum. If the breaker is open, the score is
// halved: nobody would be allowed to ask. If we know no way to fetch from the
// provider (see [Usable]), it is halved too: it is worth telling to others, who
// may know a way, but not worth trying. What this node has itself is fresh, near
// and proven whatever history says.
//
// Scores are compared after rounding, and equal ones stand in the order of
// their IDs. So what is printed explains the order completely.
//
// # Words for numbers
//
// A [Ranked] carries its score also as a class: "best" from 0.75, "good" from
// 0.5, "fair" from 0.25, and "poor". The latency has one as well: "local" for
// this node and for what answers within a millisecond, "near" below 20 ms,
// "medium" below 100 ms, "far", and "unknown".
//
// # What it refuses to do
//
// It does not decide whom to ask at all, nor how many: that is the caller's. It
// believes the history that it is given, and it leaves nobody out.
package rank
