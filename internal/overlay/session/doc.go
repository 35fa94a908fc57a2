// Package session makes connections between nodes, and keeps them.
//
// A session is a TCP connection with TLS on it and OAP/1 in that, from the end
// of the handshake on. docs/oap1.md is the law for what is said; this package
// says it. It knows frames and messages. What gossip and object streams mean
// is known to the rooms beside it, which see a session as something that takes
// an [Out] and brings an [Arrival] or an [Incoming].
//
// # How a connection becomes a session
//
// [Sessions.Serve] accepts. Whoever comes too often is closed at once, by the
// rate of its address before that of all; whoever is one too many as well. The
// rest get a task each and two seconds, TLS included. TLS is 1.3 with a
// certificate on both sides, and the only thing in a certificate that counts is
// its Ed25519 key: the key is the name. Then one hello, one answer, and the
// task ends. The session has two fresh ones, because a handshake leaves a large
// stack behind.
//
// [Sessions.Keep] calls. Each [Contact] has a keeper, which calls whenever there
// is no session, and never gives up. It waits between calls, each time longer
// and never for a round number of anything.
//
// Two nodes that call each other at the same moment get two connections. Which
// one stays follows from the two IDs, so both find the same answer without
// asking: see keepsOld.
//
// # One reads, one writes
//
// The task that reads owns the [Handler]: it calls Opened first, Closed last,
// and everything else in between, in order. It also keeps the clocks. There is
// no timer for a session; the deadline of the next read is whatever is due
// next, and a deadline is set only when the one that is set is too late. What
// comes in one go is delivered in one go.
//
// The task that writes is the only one that does. It takes what waits, encodes
// all of it into one buffer, and that becomes one system call: under TLS lies
// the wire, which collects records, and reads ahead for the same reason. Its
// system calls cannot block, so the scheduler is not told of them. Both
// borrow their buffers when there is something to move and give them back when
// not.
//
// Who has letters for a peer whose writer sleeps may be the writer for a moment,
// see [Session.PostHere]: a relay that has just read a batch would otherwise wake up
// a second thread to write it. It never waits. What the connection does not take
// stays with the wire, and the writer is started for it.
//
// Most sessions of a large node do nothing, and say no more than a ping every
// few seconds. Such a one costs a third of what two goroutines and TLS would
// take if they were let. Its writer sleeps, without a goroutine. Its reader dozes
// on a fresh and very small stack, beside TLS and not in it, see source. A ping
// and a pong are no messages in a queue, see talk. And TLS does not keep the
// peer's certificate, of which the key is all that we want.
//
// # What waits for a peer
//
// Three bands in one [micronode/internal/flow.Fair]: control before all, then
// gossip and chunks, by turns of their topics and streams. Gossip needs a
// permit as well, which is given back when the frame is written. Nothing waits
// for room; for permits [Session.Post] waits as long as its caller has patience.
// What is turned away comes back to the caller, and what was
// taken is settled exactly once, by [Out].Written, however the session ends.
//
// # How a session ends
//
// There are two ways. It can be over at once: a broken rule, a clock, a
// connection that is gone. Then the last words are said if the connection can
// still carry them, and what comes is discarded for up to a second, because a
// reset would eat the words. Or it drains: nothing new is started, gossip that
// was queued is sent, then a bye, and when the last open stream has ended it is
// over. The first cause is the one that is counted. [Sessions.Drain] does the
// second to all of them, and the first to those that take too long.
//
// # What it refuses to do
//
// It finds nobody: addresses come from elsewhere. It trusts no name, date or
// issuer in a certificate. It resumes nothing. It logs nothing and knows no
// metrics library: [Counters] tells, from fixed sets of reasons. It starts no
// goroutine but in the groups that it is given, and holds no lock while it
// waits.
package session
