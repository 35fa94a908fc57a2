// Package facet serves the user-facing HTTP services of a node: feeds, the
// follow graph, search, and media.
//
// A facet keeps no state. Behind each there is an owner that does: a mailbox
// for the feed, the graph, the search, and the store for media. They are declared
// here as small interfaces, and internal/node passes them in. An owner may be in
// another process: it is asked for a page, or about many at once, and it may be
// away. A facet adds an HTTP API, an order, and a bound.
//
// # The few ideas
//
// Every facet has a set of permits for what is costly: delivering a post,
// walking the graph, running a query, making a thumbnail. There is no queue. A
// request waits for a permit on its own goroutine, until its deadline; then it
// fails with Backpressure.
//
// A facet that is off costs nothing: it has no permits and no tasks, and its
// routes have one answer, which says how to turn it on.
//
// # The feed
//
// A post is a message in a box of the mailbox before it is anything else, so
// that it cannot be lost any more. Workers lease it, post it to the boards of
// all followers, page by page, and acknowledge it. Posting a note twice has no
// further effect, so the remedy for any failure half-way is to start again. A
// post reaches all followers because the mailbox redelivers it until it is
// acknowledged; it appears once because of the boards.
//
// A worker waits for an owner that is away and keeps the post leased. Returning
// the post would use up one of its deliveries, and an owner that restarts after
// a minute would find it among the dead letters.
//
// Feeds are ranked when they are read. The order is pure: it depends on the
// times of the posts and the follow graph, and on nothing else.
//
// # What it refuses to do
//
// It does not know people. A user is a name in a request; which names a caller
// may write for is a matter of its capability.
package facet
