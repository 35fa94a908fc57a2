// Package facet is what people see of a node: feeds, who follows whom, search,
// and media.
//
// A facet keeps nothing. Behind each there is an owner that does: a mailbox for
// the feed, the graph and the library of the index, the store for media. They
// are declared here as small interfaces, and whoever puts the node together
// passes them in. An owner may be in another process: what is asked of it is a
// page, or something about many at once, and it may be away. What a facet adds is
// a shape for HTTP, an order, and a bound.
//
// # The few ideas
//
// Every facet has a set of permits for what is costly: delivering a post,
// walking the graph, running a query, making a picture smaller. There is no
// queue. Who asks waits for a permit on its own goroutine, until its deadline;
// then it is told that the facet is saturated.
//
// A facet that is off costs nothing: it has no permits and no tasks, and its
// routes are one answer, which says how to turn it on.
//
// # The feed
//
// A post is a message in a box of the mailbox before it is anything else, so
// that it cannot be lost any more. Workers lease it, pin it to the boards of all
// followers, page by page, and acknowledge it. To pin a note twice is to pin it
// once, and so whatever goes wrong half-way has one remedy: to begin anew. That
// a post comes to everybody follows from the mailbox, which gives it out until
// somebody says that it is done; that it comes once, from the boards.
//
// An owner that is away is waited for, with the post in hand. To give the post
// back would use up one of its deliveries, and an owner that is started again
// after a minute would find it among the dead letters.
//
// What is read is put in order when it is read. The order is pure: it is made of
// the times of the posts and of who follows whom, and of nothing else.
//
// # What it refuses to do
//
// It does not know people. A user is a name that a caller says; which names a
// caller may write for is a matter of its capability.
package facet
