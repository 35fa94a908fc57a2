// Package cache remembers answers for a while: who has an object, what a name
// means, and also that nobody knows.
//
// A look-up may cost a second and a dozen peers their attention. The same
// question often comes again right away, so its answer is kept for a few
// seconds. That is all this package is for, and it is careful about the three
// ways in which a cache goes wrong: it tells old news, it grows, and it stands
// in the way.
//
// # Lives
//
// Every [Entry] says when it was found and whether it is negative. How long it
// is fresh follows from the [Spec]: TTL for an answer, Negative, which is
// shorter, for "nobody has it". After that an answer is stale for another while,
// which is Stale in the Spec. [Cache.Get] still finds it, but says so: whoever
// asked for nothing better may have it, marked as old, and everybody else looks
// it up anew. A negative entry is never stale: that nobody had a thing a while
// ago is no use to anyone. And a name record is worth nothing once it has
// expired, so no entry that holds one outlives it, not even as a stale one.
//
// Lives are worked out when an entry is looked at, not when it is put. So a new
// Spec holds for all entries from that moment on.
//
// Time is an argument. Nothing in here reads a clock, and so no test has to
// wait for one. An entry that seems to come from the future, because a clock was
// set back, is not trusted further than one from the past: it counts as fresh
// within one life of now, on either side.
//
// # Bounds
//
// The library below, otter, bounds one number: the sum of the weights of the
// entries. Two are promised: entries and bytes. Both follow from one when an
// entry weighs its bytes, but never less than Bytes/Entries, its fair share of
// the room: then neither of the sums can be passed. The price is that the cache
// may be full a little early, when a few large entries stand beside many small
// ones. It is at least half full by one of the two measures when it begins to
// evict.
//
// What is kept is a deep copy, down to the strings. So the bytes that are
// counted are the bytes that are held: a short string that is cut from the body
// of an answer does not hold on to the whole body, and nobody can change an
// entry by what they still have in their hands. Counted are the key, all
// strings, all lists, and what the tables cost for each entry.
//
// Which entries go when there is no room is the library's choice, by how often
// and how lately they were asked for. A flood of questions that nobody asks
// twice does not wash out those that everybody asks.
//
// # Nothing in the way
//
// Get of a fresh entry allocates nothing. It takes no lock that a writer holds
// for long. All upkeep is done on the goroutine of whoever calls, a little at a
// time; there is no goroutine in here. That is why otter's own expiry is not
// used: it would start one, which reads a clock of its own. Instead a janitor
// calls [Cache.Purge], which goes through the entries and drops those that
// nobody will be given any more.
//
// # What it refuses to do
//
// It does not look anything up and does not make callers wait for each other:
// one look-up for many callers is the business of who looks up. It does not
// decide what may be remembered: do not put what was a timeout, a refusal for
// lack of room, or a "nobody" from peers of whom some did not answer.
package cache
