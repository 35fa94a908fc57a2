// Package fill is a shared HTTP cache in front of HTTPS origins that an
// operator allows.
//
// A client requests https://tiles.example.org/a.png through this node. A fresh
// entry is served at once. Otherwise one worker fetches the object, concurrent
// requests for it wait for that fetch, and later requests are hits. RFC 9111
// says what may be stored, for how long, and for which requests; package
// freshness implements it as pure functions.
//
// # Get
//
// [Cache.Get] answers four questions about a request. Is it allowed: is the
// host on the list, and does every program read the path in the same way? Is
// there an entry that matches the forwarded header? May it be used as it is? If
// not, is a fill for it under way already?
//
// Hits are answered on the caller's goroutine. A miss takes one slot of the
// queue "work" for its key, however many requests wait for it, and is rejected
// with Busy when the queue is full. The fill runs on a context of its own: a
// caller whose deadline passes gets Timeout, and a late result serves the next
// request. A queued fill without waiters is withdrawn; one whose body arrives is
// given up, unless it is nearly done; see filltimer.go. Origins have shares of
// the queue and of the workers, and a breaker each; see breaker.go.
//
// # Flights
//
// A fill under way, with its waiters, is a flight; flight.go has the diagram. A
// flight ends with an answer, an error, a worker that dies twice, a full queue,
// or the shutdown of the node. Each of them completes the flight, the first one
// wins, and every path wakes all waiters.
//
// Not every outcome is for every waiter. An answer that must not be stored, or
// that varies by a header in which the waiters differ, is for the leader only.
// The other waiters look again and fetch for themselves, in parallel: the key
// is marked as hit-for-miss for some seconds, and the Vary of the answer is
// known.
//
// # What is kept
//
// Bodies are in a store of the cache's own, by their address, as they were
// sent: compressed ones stay compressed. The budget of that store is the quota.
// Beside it there is an index of entries: key, variant, status, header, times.
// It is bounded in number, in bytes and in variants of one key, and evicts the
// least recently used entry. An entry whose body was evicted is a miss. A body
// that no entry refers to is deleted.
//
// With a folder, each entry is also a small file, written to a temporary file
// and renamed, with its own hash in front. A crash loses only what was being
// written; leftovers are deleted at the start. A disk that is full or fails
// costs the cache and not the answer: the bytes received so far are served from
// memory, with the rest, and the disk is not tried again for a while. In
// amnesia nothing touches the disk.
//
// A body that is large or slow is streamed to the waiters while it is stored;
// stream.go has the diagram. For a short body they wait until it is complete.
//
// The origin's ETag is relayed and used for revalidation. Where the origin sent
// none, the address of the body is a strong ETag.
//
// # Origins are not trusted
//
// Only HTTPS to names on the list, directly and never by a proxy from the
// environment; the address that is dialled must be public unless the operator
// allows others; each redirect is checked like the first request, and one that
// must not be followed is relayed. A try has a time-out for its header, and
// then one that restarts with every progress of the body. Headers, bodies,
// redirects and codings have caps. A compressed body is inflated on the side,
// and the output discarded, to detect decompression bombs; codings other than
// gzip, deflate and zstd, such as Brotli, are not inspected. A wrong length, a
// truncated body, a partial response, or a 304 without a condition are refused,
// and leave nothing behind.
//
// Time-outs, 503 and 504 are retried, min(max, base·2ⁿ) + U[0, base] later,
// unless the origin wants a longer pause, or its response has a lifetime. The
// last response is relayed, 5xx included. When the origin fails, a stale entry
// is served where stale-if-error allows.
//
// # Purge
//
// [Cache.Purge] removes entries by URL or by prefix. Fills under way are served
// to their waiters, which asked before the purge, and are not stored.
//
// # What it refuses to do
//
// It starts no goroutine: a [micronode/internal/supervise.Pool] of workers
// pulls from [Cache.Next], and [Cache.WarmUp] is a service. It fetches whole
// objects only and knows nothing of ranges; the caller cuts them from an
// [Answer]. It sends no method but GET. It never guesses URLs to fetch. It
// knows no metrics library: [Counters] and [Event] report what happened, by a
// fixed set of reasons.
package fill
