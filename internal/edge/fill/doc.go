// Package fill is a shared HTTP cache in front of HTTPS origins that an
// operator allows.
//
// Somebody asks for https://tiles.example.org/a.png through this node. If the
// answer is here and fresh, it is given at once. If not, one worker fetches it,
// whoever asked meanwhile waits for that one, and the next who asks finds it
// here. What may be kept, for how long, and for whom, is what RFC 9111 says;
// the room below, package freshness, says it as pure functions.
//
// # Get
//
// [Cache.Get] takes a request through four questions. May this be asked for at
// all: is the host on the list, is the path one that every program reads in the
// same way? Is there an answer that fits what would be sent? May it be used as
// it is? If not, is somebody fetching it already?
//
// Hits are answered on the caller's goroutine. A miss takes one slot of the
// queue "work" for its key, however many want it, and is refused with Busy when
// all are taken. The fill runs on a context of its own: a caller whose deadline
// passes gets Timeout, and what comes late is there for the next one.
//
// # Flights
//
// A fill under way, with those who wait for it, is a flight; flight.go has the
// picture. Several things can end one: the answer, an error, a worker that dies
// twice, a full queue, the end of the node. Each of them settles the flight, the
// first one wins, and nobody is left waiting on any path.
//
// Not everything that lands is for everybody. Only the one who asked may use an
// answer that must not be kept, or one in another language than the others
// wanted. The others look again and fetch for themselves, all at once and not
// in a row: that a key's answers cannot be kept is remembered for some seconds,
// and that they vary is known from the answer.
//
// # What is kept
//
// Bodies lie in a store of the cache's own, by their address, as they were
// sent: compressed ones stay so. The budget of that store is the quota. Beside
// it there is an index of entries: key, variant, status, header, times. It is
// bounded in number, in bytes and in variants of one key; the one that was not
// used for longest goes first. An entry whose body was evicted is a miss. A body
// that no entry refers to is deleted.
//
// With a folder, each entry is a small file too, written beside and renamed,
// with its own hash in front. A crash costs what was being written and no more;
// garbage is cleared away at the start. A disk that is full, or does not work,
// costs the cache and not the answer: the origin is asked once more, what it
// sends is given out from memory, and for a while the disk is left alone. In
// amnesia nothing touches the disk.
//
// Our ETag is the address of the body, so it is strong. The origin's own is
// kept to ask whether anything changed.
//
// # Origins are not trusted
//
// Only HTTPS to names on the list, straight and never by a proxy from the
// environment; the address that is dialled must be public unless the operator
// says otherwise; each redirect is checked like the first request. A try has a
// time-out for all of it, header and body. Headers, bodies, redirects and codings have
// caps. A compressed body is inflated on the side, into nothing, to see whether
// it is a bomb; Brotli is the one coding that passes unseen. A wrong length, half
// a body, a part instead of the whole, an ETag that is none or a 304 to nothing
// that we hold are refusals, and leave nothing behind.
//
// Time-outs, 503 and 504 are tried again, min(max, base·2ⁿ) + U[0, base] later,
// and not before a Retry-After. Other failures of the origin, 5xx included, are
// UpstreamFailed at once, unless the answer says itself that it may be kept.
// When the origin fails, what is stale may stand in where stale-if-error allows.
//
// # Purge
//
// [Cache.Purge] forgets by URL or by prefix. Fills that were under way reach
// those who wait for them, who asked before the purge, and land nowhere.
//
// # What it refuses to do
//
// It starts no goroutine: a [micronode/internal/supervise.Pool] of workers pulls
// from [Cache.Next], and [Cache.WarmUp] is a service. It asks for whole objects
// only and knows nothing of ranges; who serves an [Answer] cuts it. It sends no
// method but GET. It guesses no URL that nobody asked for. It knows no metrics
// library: [Counters] and [Event] tell what happened, by a fixed set of reasons.
package fill
