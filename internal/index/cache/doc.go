// Package cache keeps answers for a while: the providers of an object, the
// record of a name, and also that there is none.
//
// A look-up may cost a second and requests to a dozen peers. The same question
// often comes again right away, so its answer is kept for a few seconds. This
// package guards against the three failures of a cache: stale answers,
// unbounded growth, and contention.
//
// # Freshness
//
// Every [Entry] says when it was found and whether it is negative. How long it
// is fresh follows from the [Spec]: TTL for an answer, NegativeTTL, which is
// shorter, for "not found". After that an answer is stale for StaleTTL.
// [Cache.Get] still returns it, but says so: a caller that accepts stale
// answers may use it, marked as such, and any other looks it up again. A
// negative entry is never stale: an old "not found" is useless. And a name
// record is worthless once it has expired, so no entry that holds one outlives
// it, not even as a stale one.
//
// Freshness is computed when an entry is read, not when it is put. So a new
// Spec applies to all entries at once.
//
// Time is an argument. Nothing in here reads a clock, and so no test has to
// wait for one. An entry that seems to come from the future, because a clock
// was set back, is trusted no longer than one from the past: it counts as fresh
// within one TTL of now, on either side.
//
// # Bounds
//
// The library below, otter, limits one number: the sum of the weights of the
// entries. This package promises two limits: entries and bytes. Both follow
// from one when an entry weighs its bytes, but never less than Bytes/Entries,
// its fair share: then neither limit can be exceeded. The price is that the
// cache may be full a little early, when it holds a few large entries beside
// many small ones. It is at least half full by one of the two measures when it
// begins to evict.
//
// Entries are deep copies, down to the strings. So the bytes that are counted
// are the bytes that are retained: a short substring of the body of an answer
// does not retain the whole body, and a caller cannot change an entry through
// its own references. Counted are the key, all strings, all lists, and the cost
// of the tables per entry.
//
// The library chooses the entries to evict, by frequency and recency. A flood
// of questions that are asked only once does not evict the frequent ones.
//
// # Concurrency
//
// Get of a fresh entry allocates nothing. It takes no lock that a writer holds
// for long. All maintenance runs on the callers' goroutines, a little at a
// time; the package starts none. That is why otter's own expiry is not used: it
// would start a goroutine, which reads a clock of its own. Instead a janitor
// calls [Cache.Purge], which iterates over the entries and removes the expired
// ones.
//
// # Limits of its scope
//
// It looks nothing up and does not make callers wait for each other: sharing
// one look-up between many callers is up to its user. It does not decide what
// may be cached: do not put a time-out, a rejection for lack of capacity, or an
// empty answer if some peers did not reply.
package cache
